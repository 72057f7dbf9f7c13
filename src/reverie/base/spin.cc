#include "reverie/base/spin.h"

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reverie {
namespace {

// Two threads that look for each other need a core each.
constexpr unsigned kCoresMin = 2;

}  // namespace

bool Spinner::has_cores() {
  static const bool has_cores = std::thread::hardware_concurrency() >= kCoresMin;
  return has_cores;
}

void Spinner::pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace reverie
