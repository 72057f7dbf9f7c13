#include "reverie/base/fork.h"

#include <atomic>

#include <pthread.h>

namespace reverie {
namespace {

std::atomic<std::uint32_t> forks{0};

const bool registered = [] {
  pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return true;
}();

}  // namespace

std::uint32_t fork_generation() {
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

Status ForkGuard::refuse(std::string_view what) {
  return failed_precondition(
      "this {} was opened before a fork and cannot be used in the child; open one in the child, "
      "or start workers with the 'spawn' method (for a DataLoader: "
      "multiprocessing_context='spawn', or a dataset() of a client with num_workers=0)",
      what);
}

}  // namespace reverie
