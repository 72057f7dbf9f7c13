// Signals belong to the threads of the program: a handler of theirs never runs on a thread that
// was started while they were blocked.
//
//     const SignalsBlocked blocked;
//     thread_ = std::thread([this] { run(); });
#pragma once

#include <pthread.h>
#include <signal.h>

namespace reverie {

// Blocks all signals of the calling thread, and of threads that it starts, until its scope ends,
// also by an exception: then the calling thread's mask is what it was.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace reverie
