// A process is killed or stopped at any write to memory that it shares with another: the other
// process's calls end, nothing hangs, and the next process can use ring and arena again.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/os/byte_ring.h"
#include "reverie/os/shared_arena.h"
#include "reverie/rpc/peer.h"
#include "tests/support/number_values.h"

namespace reverie {
namespace {

constexpr std::size_t kBulk = 200'000;
constexpr Duration kPatience = std::chrono::seconds(60);

Peer::Options options_of(const std::string& name) {
  Peer::Options options;
  options.name = name;
  options.uses_tcp = false;
  options.uses_shared_memory = true;
  options.dead_after = std::chrono::milliseconds(300);
  options.find_timeout = std::chrono::milliseconds(200);
  return options;
}

Payload bulk_payload(std::byte value, std::size_t size = kBulk) {
  auto bytes = std::make_shared<std::vector<std::byte>>(size, value);
  Payload payload;
  const std::int64_t shape[] = {static_cast<std::int64_t>(size)};
  const std::span<const std::byte> view = *bytes;
  ValueWriter(payload).lent_tensor(DType::kUInt8, shape, view, TensorMaker::kNumpy,
                                   std::move(bytes));
  return payload;
}

void define_all(Peer& peer) {
  EXPECT_TRUE(peer.define("echo",
                          [&peer](Request request) {
                            peer.answer(request.id, std::move(request.message.payload));
                          })
                  .ok());
}

CallResult call(Peer& peer, const std::string& to, Payload payload) {
  CallOptions options;
  options.deadline = Clock::system().now() + kPatience;
  return peer.sync(to, "echo", std::move(payload), options);
}

// Makes more calls than a ring holds, so that its writer has to wait for room.
void fill_ring(Peer& peer, const std::string& to) {
  constexpr int kCalls = 24;
  const auto left = std::make_shared<std::atomic<int>>(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    CallOptions options;
    options.deadline = Clock::system().now() + kPatience;
    const auto done = [left](CallResult) {
      if (left->fetch_sub(1) == 1) left->notify_all();
    };
    if (!peer.call(to, "echo", bulk_payload(std::byte{1}, 100'000), options, done).ok()) done({});
  }
  for (int seen = left->load(); seen > 0; seen = left->load()) left->wait(seen);
}

// Makes small and large calls until one fails or `count` are answered. Checks the answers.
int calls_until_lost(Peer& peer, const std::string& to, int count) {
  for (int i = 0; i < count; ++i) {
    const CallResult small = call(peer, to, number_payload(i));
    if (small.kind != CallResult::Kind::kAnswer) return i;
    if (i % 10 == 5) fill_ring(peer, to);
    EXPECT_EQ(number_of(small.payload), i);
    const auto value = static_cast<std::byte>(i % 251);
    const CallResult large = call(peer, to, bulk_payload(value));
    if (large.kind != CallResult::Kind::kAnswer) return i;
    EXPECT_EQ(large.payload.bulk.at(0).bytes.size(), kBulk);
    EXPECT_EQ(large.payload.bulk.at(0).bytes[kBulk - 1], value);
  }
  return count;
}

// --- The child, which is struck when it reaches a step for the `count`-th time.
std::atomic<int> steps_left{0};
int struck_by = 0;
RingStep ring_step_of_strike;
ArenaStep arena_step_of_strike;

void strike_at_ring(RingStep at) {
  if (at == ring_step_of_strike && steps_left.fetch_sub(1) == 1) ::kill(::getpid(), struck_by);
}
void strike_at_arena(ArenaStep at) {
  if (at == arena_step_of_strike && steps_left.fetch_sub(1) == 1) ::kill(::getpid(), struck_by);
}

struct Strike {
  std::string name;
  int signal;
  int count;  // which time the step is reached
  bool may_be_missed;
  std::function<void()> arm;
};

std::vector<Strike> strikes() {
  std::vector<Strike> all;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const std::string how = signal == SIGKILL ? "killed" : "stopped";
    for (int step = 0; step <= static_cast<int>(RingStep::kAwake); ++step) {
      // A writer only sleeps while no thread of its process polls.
      const bool is_rare = step == static_cast<int>(RingStep::kWriterWoken);
      all.push_back(
          {format("ring step {} {}", step, how), signal, is_rare ? 1 : 30, is_rare, [step] {
             ring_step_of_strike = static_cast<RingStep>(step);
             ring_hook.store(strike_at_ring);
           }});
    }
    for (int step = 0; step <= static_cast<int>(ArenaStep::kCopied); ++step) {
      // The receiver of a link reads bytes in place and copies none.
      if (step == static_cast<int>(ArenaStep::kCopied)) continue;
      all.push_back({format("arena step {} {}", step, how), signal, 30, false, [step] {
                       arena_step_of_strike = static_cast<ArenaStep>(step);
                       arena_hook.store(strike_at_arena);
                     }});
    }
  }
  return all;
}

// Starts a child that serves and calls its parent, and is struck meanwhile.
pid_t struck_child(const Strike& strike, const std::string& address) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  struck_by = strike.signal;
  steps_left = strike.count;
  strike.arm();
  const auto peer = std::move(Peer::make(options_of("child"))).value();
  define_all(*peer);
  if (!peer->connect(address).ok()) ::_exit(2);
  (void)calls_until_lost(*peer, "parent", strike.may_be_missed ? 200 : 100'000);
  ::_exit(3);
}

TEST(StruckPeer, CallsEndAndTheNextProcessIsServedWhereverAPeerIsStruck) {
  const std::string address = format("unix:@struck-{}", random_seed());
  for (const Strike& strike : strikes()) {
    SCOPED_TRACE(strike.name);
    const pid_t child = struck_child(strike, address);
    {
      const auto parent = std::move(Peer::make(options_of("parent"))).value();
      define_all(*parent);
      ASSERT_TRUE(parent->listen(address).ok());
      // Calls the child too, until it is gone or silent; calls fail if its name never arrived, or
      // is gone already.
      const TimePoint until = Clock::system().now() + kPatience;
      int status = 0;
      while (::waitpid(child, &status, WUNTRACED | WNOHANG) == 0 && Clock::system().now() < until) {
        (void)calls_until_lost(*parent, "child", 20);
      }
      if (strike.may_be_missed && WIFEXITED(status)) continue;
      ASSERT_TRUE(strike.signal == SIGKILL ? WIFSIGNALED(status) : WIFSTOPPED(status))
          << "the step was not reached: status " << status;
      const TimePoint begin = Clock::system().now();
      EXPECT_NE(call(*parent, "child", bulk_payload(std::byte{1})).kind, CallResult::Kind::kAnswer);
      EXPECT_LT(Clock::system().now() - begin, std::chrono::seconds(10));
      EXPECT_EQ(parent->pending_calls(), 0u);
      // Another peer is served with the same memory.
      const auto other = std::move(Peer::make(options_of("other"))).value();
      ASSERT_TRUE(other->connect(address).ok());
      // On a busy machine either peer may be declared dead now and then.
      int answered = 0;
      while (answered < 20 && Clock::system().now() < until) {
        answered = calls_until_lost(*other, "parent", 20);
      }
      EXPECT_EQ(answered, 20);
    }
    if (strike.signal == SIGSTOP) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
}

}  // namespace
}  // namespace reverie
