#include "reverie/base/mutex.h"

#include "reverie/base/cores.h"
#include "reverie/base/cpu_pause.h"

namespace reverie {
namespace {

// 8 to 20 us: about as long as a batch of 256 draws, and as a sleep and its wake-up. So a thread
// that spins in vain has spent no more than sleeping would have cost.
constexpr int kSpins = 400;

}  // namespace

void Mutex::lock_slow() {
  // On a single core the holder cannot leave while another thread spins.
  const int spins = available_cores() > 1 ? kSpins : 0;
  for (int spin = 0; spin < spins; ++spin) {
    cpu_pause();
    std::uint32_t expected = kFree;
    if (state_.load(std::memory_order_relaxed) == kFree &&
        state_.compare_exchange_weak(expected, kHeld, std::memory_order_acquire)) {
      return;
    }
  }
  while (state_.exchange(kContended, std::memory_order_acquire) != kFree) {
    state_.wait(kContended, std::memory_order_relaxed);
  }
}

void CondVar::wait(Mutex& mutex) {
  std::unique_lock<std::mutex> inner(inner_);
  mutex.unlock();
  condition_.wait(inner);
  inner.unlock();
  mutex.lock();
}

void CondVar::wait_for(Mutex& mutex, std::chrono::nanoseconds at_most) {
  std::unique_lock<std::mutex> inner(inner_);
  mutex.unlock();
  condition_.wait_for(inner, at_most);
  inner.unlock();
  mutex.lock();
}

void CondVar::notify_all() {
  std::lock_guard<std::mutex> inner(inner_);
  condition_.notify_all();
}

}  // namespace reverie
