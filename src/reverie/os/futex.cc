#include "reverie/os/futex.h"

#include <climits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "reverie/base/waiting.h"

namespace reverie {

void futex_wait(const FutexWord& word, std::uint32_t seen, Duration at_most) {
  if (at_most <= Duration(0)) return;
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec limit{};
  limit.tv_sec = at_most.count() / kSecond;
  limit.tv_nsec = at_most.count() % kSecond;
  // Not FUTEX_PRIVATE: the other side may be another process.
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake_all(FutexWord& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool spin_while_equal(const FutexWord& word, std::uint32_t seen, Duration at_most) {
  return look_for([&] { return word.load(std::memory_order_acquire) != seen; }, at_most);
}

}  // namespace reverie
