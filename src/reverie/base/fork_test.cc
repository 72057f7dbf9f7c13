#include "reverie/base/fork.h"

#include <memory>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/mutex.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

// Runs `in_child` in a forked child and returns its exit status.
template <typename F>
int status_of_child(F in_child) {
  const pid_t child = fork();
  if (child == 0) _exit(in_child());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST(ForkGuard, AcceptsItsOwnProcess) {
  const ForkGuard guard;
  EXPECT_TRUE(guard.check("store").ok());
}

TEST(ForkGuard, RefusesAForkedChildAndNamesTheHandle) {
  const ForkGuard guard;
  const int status = status_of_child([&] {
    const Status refused = guard.check("store");
    if (refused.code() != StatusCode::kFailedPrecondition) return 1;
    if (refused.message().find("this store was opened before a fork") == std::string::npos) {
      return 2;
    }
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(ForkGuard, AcceptsTheParentAfterAFork) {
  const ForkGuard guard;
  EXPECT_EQ(status_of_child([] { return 0; }), 0);
  EXPECT_TRUE(guard.check("store").ok());
}

TEST(ForkGuard, AcceptsTheChildInWhichItWasMade) {
  const int status = status_of_child([] { return ForkGuard().check("store").ok() ? 0 : 1; });
  EXPECT_EQ(status, 0);
}

TEST(ForkGuard, DistinguishesForkGenerations) {
  const std::uint32_t here = fork_generation();
  const int status = status_of_child([here] {
    const ForkGuard guard;
    const int grandchild = status_of_child([&] { return guard.check("store").ok() ? 1 : 0; });
    return fork_generation() == here + 1 ? grandchild : 2;
  });
  EXPECT_EQ(status, 0);
}

TEST(ForkGuard, LeaveToParentNeitherJoinsNorDestroys) {
  struct Held {
    explicit Held(bool& ended) : is_ended(ended) {}
    ~Held() { is_ended = true; }
    bool& is_ended;
  };
  const int status = status_of_child([] {
    bool is_ended = false;
    auto held = std::make_unique<Held>(is_ended);
    leave_to_parent(std::move(held));
    if (held || is_ended) return 1;
    std::thread joinable([] {});
    const std::thread::native_handle_type handle = joinable.native_handle();
    leave_to_parent(std::move(joinable));  // otherwise its destructor would end the process
    if (joinable.joinable()) return 2;
    return pthread_join(handle, nullptr) == 0 ? 0 : 3;
  });
  EXPECT_EQ(status, 0);
}

// A condition variable's destructor, pthread_cond_destroy(), waits for its waiters.
TEST(ForkGuard, AChildCanDropAConditionVariableThatAParentThreadWaitsOn) {
  auto condition = std::make_unique<CondVar>();
  Mutex mutex;
  bool waits = false;
  bool is_over = false;
  std::thread waiter([&] {
    const MutexLock lock(mutex);
    waits = true;
    while (!is_over) condition->wait(mutex);
  });
  {
    const auto is_waiting = [&] {
      const MutexLock lock(mutex);
      return waits;
    };
    EXPECT_TRUE(test::eventually(is_waiting));
  }
  EXPECT_EQ(status_of_child([&] {
              alarm(20);
              condition.reset();
              return 0;
            }),
            0);
  {
    const MutexLock lock(mutex);
    is_over = true;
    condition->notify_all();
  }
  waiter.join();
}

}  // namespace
}  // namespace reverie
