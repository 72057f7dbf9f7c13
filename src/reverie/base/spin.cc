#include "reverie/base/spin.h"

#include <thread>

namespace reverie {
namespace {

// Two threads that look for each other need a core each.
constexpr unsigned kCoresMin = 2;

}  // namespace

bool Spinner::has_cores() {
  static const bool has_cores = std::thread::hardware_concurrency() >= kCoresMin;
  return has_cores;
}

}  // namespace reverie
