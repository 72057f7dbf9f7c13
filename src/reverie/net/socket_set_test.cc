#include "reverie/net/socket_set.h"

#include <array>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/eventually.h"

namespace reverie {
namespace {

bool never() {
  return false;
}

TimePoint after(Duration duration) {
  return Clock::system().now() + duration;
}

constexpr Duration kLong = std::chrono::seconds(60);

// A set with one socket, whose other end the test holds.
class SocketSetTest : public ::testing::Test {
 protected:
  SocketSetTest() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends_), 0);
    threads_.loop(0).run_and_wait([this] {
      set_ = SocketSet::make(threads_.loop(0), [this](auto ready) { on_loop(ready); }).value();
    });
    EXPECT_TRUE(set_->add(7, ends_[0]).ok());
  }
  ~SocketSetTest() override {
    threads_.loop(0).run_and_wait([this] { set_->stop(); });
    for (const int end : ends_) ::close(end);
  }

  // The loop's thread may have the seat for a moment.
  void sit(bool yields = false) {
    ASSERT_TRUE(test::eventually([&] { return set_->take_seat(yields); }));
  }
  void send() { EXPECT_EQ(::write(ends_[1], "x", 1), 1); }
  void receive() {
    char byte = 0;
    EXPECT_EQ(::read(ends_[0], &byte, 1), 1);
  }
  void on_loop(std::span<const SocketSet::Ready> ready) {
    for (const auto& one : ready) {
      EXPECT_EQ(one.id, 7u);
      if (one.can_write) {
        ++written_;
        set_->want_write(7, ends_[0], false);
      }
      if (!one.can_read) continue;
      receive();
      ++read_;
    }
  }

  IoThreads threads_;
  int ends_[2] = {-1, -1};
  std::shared_ptr<SocketSet> set_;
  std::array<SocketSet::Ready, SocketSet::kReadyMax> memory_;
  std::atomic<int> read_{0};  // by the loop
  std::atomic<int> written_{0};
};

TEST_F(SocketSetTest, TheLoopReadsWhileNoThreadHasTheSeat) {
  for (int i = 1; i <= 3; ++i) {
    send();
    EXPECT_TRUE(test::eventually([&] { return read_ == i; }));
  }
}

TEST_F(SocketSetTest, TheThreadInTheSeatIsWokenAndTheLoopIsNot) {
  for (int i = 0; i < 100; ++i) {
    sit();
    std::jthread sender([this] { send(); });
    const auto ready = set_->wait(memory_, never, after(kLong));
    ASSERT_EQ(ready.size(), 1u);
    EXPECT_EQ(ready.front().id, 7u);
    EXPECT_TRUE(ready.front().can_read);
    receive();
    set_->leave_seat();
  }
  EXPECT_EQ(read_, 0);
}

TEST_F(SocketSetTest, WhatComesWhileTheSeatIsLeftIsReadByTheLoop) {
  for (int i = 1; i <= 100; ++i) {
    sit();
    send();
    set_->leave_seat();
    EXPECT_TRUE(test::eventually([&] { return read_ == i; }));
  }
}

TEST_F(SocketSetTest, OneThreadHasTheSeat) {
  sit();
  EXPECT_FALSE(set_->take_seat(false));
  EXPECT_FALSE(set_->take_seat(true));
  EXPECT_FALSE(set_->shall_yield()) << "it does not";
  set_->leave_seat();
  sit(/*yields=*/true);
  set_->leave_seat();
}

TEST_F(SocketSetTest, AThreadThatYieldsIsWokenForOneThatDoesNot) {
  sit(/*yields=*/true);
  std::jthread other([this] {
    EXPECT_FALSE(set_->take_seat(true));
    EXPECT_FALSE(set_->shall_yield());
    EXPECT_FALSE(set_->take_seat(false));
  });
  const TimePoint until = after(kLong);
  while (!set_->shall_yield() && Clock::system().now() < until) {
    EXPECT_TRUE(set_->wait(memory_, never, until).empty());
  }
  EXPECT_TRUE(set_->shall_yield());
  set_->leave_seat();
}

TEST_F(SocketSetTest, ANudgeWakesTheSleeperWhateverTheMoment) {
  sit();
  for (int i = 0; i < 1000; ++i) {
    std::atomic<bool> is_done{false};
    std::jthread other([&] {
      is_done.store(true);
      set_->nudge();
    });
    const TimePoint until = after(kLong);
    while (!is_done && Clock::system().now() < until) {
      (void)set_->wait(
          memory_, [&] { return is_done.load(); }, until);
    }
    ASSERT_LT(Clock::system().now(), until);
  }
  set_->leave_seat();
}

TEST_F(SocketSetTest, AWaitEndsAtItsDeadline) {
  sit();
  const TimePoint until = after(std::chrono::milliseconds(20));
  EXPECT_TRUE(set_->wait(memory_, never, until).empty());
  EXPECT_GE(Clock::system().now(), until);
  EXPECT_TRUE(set_->wait(memory_, never, TimePoint()).empty()) << "long past";
  set_->leave_seat();
}

TEST_F(SocketSetTest, RoomIsReportedOnlyIfItIsWanted) {
  sit();
  EXPECT_TRUE(set_->look(memory_).empty());
  set_->want_write(7, ends_[0], true);
  const auto ready = set_->look(memory_);
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_TRUE(ready.front().can_write);
  EXPECT_FALSE(ready.front().can_read);
  set_->leave_seat();
  EXPECT_TRUE(test::eventually([&] { return written_ == 1; }));
}

TEST_F(SocketSetTest, ARemovedSocketIsNotReported) {
  set_->remove(ends_[0]);
  send();
  sit();
  EXPECT_TRUE(set_->look(memory_).empty());
  set_->leave_seat();
  EXPECT_EQ(read_, 0);
}

TEST_F(SocketSetTest, AHangUpIsReadable) {
  sit();
  ::shutdown(ends_[1], SHUT_RDWR);
  const auto ready = set_->wait(memory_, never, after(kLong));
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_TRUE(ready.front().can_read);
  set_->remove(ends_[0]);
  set_->leave_seat();
}

}  // namespace
}  // namespace reverie
