#include "reverie/os/child_process.h"

#include <array>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/os/shared_memory.h"
#include "tests/support/no_new_threads.h"

namespace reverie {
namespace {

constexpr Duration kLong = std::chrono::seconds(30);

ChildProcess shell(const std::string& program, std::vector<int> descriptors = {}) {
  return ChildProcess::start({{"sh", "-c", program}, std::move(descriptors)}).value();
}

TEST(ChildProcess, ReportsHowItEnded) {
  ChildProcess child = shell("exit 3");
  ASSERT_TRUE(child.wait(kLong));
  EXPECT_EQ(child.end_text(), "exited with status 3");
  ChildProcess killed = shell("kill -9 $$");
  ASSERT_TRUE(killed.wait(kLong));
  EXPECT_EQ(killed.end_text(), "was killed by signal 9 (Killed)");
}

TEST(ChildProcess, AWaitEndsWhenTheTimeIsUp) {
  ChildProcess child = shell("exec tail -f /dev/null");
  EXPECT_FALSE(child.has_ended());
  EXPECT_FALSE(child.wait(std::chrono::milliseconds(5)));
  child.kill();
  EXPECT_TRUE(child.has_ended());
  child.kill();
}

TEST(ChildProcess, IsKilledWithItsObject) {
  int pid = 0;
  {
    const ChildProcess child = shell("exec tail -f /dev/null");
    pid = child.pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

TEST(ChildProcess, GetsTheDescriptorsInOrderAndNoOthers) {
  const SharedMemory first = SharedMemory::create("first", 16).value();
  const SharedMemory second = SharedMemory::create("second", 16).value();
  const int inherited = dup(second.fd());  // without close-on-exec
  ChildProcess child = shell(
      "printf 2nd >&3 && printf 1st >&4 && for fd in 5 6 7 8 9; do "
      "if [ -e /proc/self/fd/$fd ]; then exit 1; fi; done",
      {second.fd(), first.fd()});
  ASSERT_TRUE(child.wait(kLong));
  EXPECT_EQ(child.end_text(), "exited with status 0");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.bytes().data())), "1st");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.bytes().data())), "2nd");
  close(inherited);
}

TEST(ChildProcess, AMissingProgramIsAnError) {
  const auto refused = ChildProcess::start({{"/no/such/program"}, {}});
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("/no/such/program"), std::string::npos);
  EXPECT_EQ(ChildProcess::start({}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ChildProcess::start({{"true"}, {987654}}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ChildProcess, WithoutAThreadASignalEndsItWithItsParent) {
  const pid_t child = fork();
  if (child == 0) {
    const test::NoNewThreads none;
    int signal = 0;
    const bool is_bound = exit_with_parent(getppid()).ok() &&
                          prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGKILL;
    _exit(is_bound ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(ChildProcess, ADeadParentIsDetected) {
  EXPECT_EQ(exit_with_parent(1 << 22).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace reverie
