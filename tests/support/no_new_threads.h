// A process that can start no more threads, and the signals that a thread blocks.
#pragma once

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

namespace reverie::test {

// While it lives, no std::thread can be started: each asks for a stack that no machine has.
class NoNewThreads {
 public:
  NoNewThreads() {
    constexpr std::size_t kStackBytes = std::size_t{1} << 50;
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t large;
    pthread_attr_init(&large);
    EXPECT_EQ(pthread_attr_setstacksize(&large, kStackBytes), 0);
    EXPECT_EQ(pthread_setattr_default_np(&large), 0);
    pthread_attr_destroy(&large);
  }
  ~NoNewThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  pthread_attr_t before_;
};

// The signals that the calling thread blocks.
inline std::vector<int> blocked_signals() {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  std::vector<int> blocked;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (sigismember(&now, signal) == 1) blocked.push_back(signal);
  }
  return blocked;
}

}  // namespace reverie::test
