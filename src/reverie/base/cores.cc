#include "reverie/base/cores.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>

namespace reverie {

unsigned cores_of_quota(const char* cpu_max) {
  unsigned long quota_us = 0;
  unsigned long period_us = 0;
  if (std::sscanf(cpu_max, "%lu %lu", &quota_us, &period_us) != 2 || period_us == 0) return 0;
  return static_cast<unsigned>(std::min((quota_us + period_us - 1) / period_us, 1'000'000ul));
}

unsigned available_cores() {
  static const unsigned cores = [] {
    const unsigned of_affinity = std::max(1u, std::thread::hardware_concurrency());
    std::ifstream file("/sys/fs/cgroup/cpu.max");
    std::string cpu_max;
    std::getline(file, cpu_max);
    const unsigned of_quota = cores_of_quota(cpu_max.c_str());
    return of_quota == 0 ? of_affinity : std::min(of_affinity, of_quota);
  }();
  return cores;
}

}  // namespace reverie
