#include "reverie/calls/serving_queue.h"

#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace reverie {
namespace {

ServingTask request(std::uint64_t call) {
  ServingTask task;
  task.request.id = {1, call};
  return task;
}

class ServingQueueTest : public ::testing::Test {
 protected:
  // The number of the next request; 0 if there is none.
  std::uint64_t take() {
    const std::optional<ServingTask> task = queue_.take();
    return task ? task->request.id.call : 0;
  }

  ServingQueue queue_;
  const std::unique_ptr<Peer> peer_ = [] {
    Peer::Options options;
    options.name = "serving";
    return std::move(Peer::make(options)).value();
  }();
};

TEST_F(ServingQueueTest, GivesTasksInOrder) {
  for (const std::uint64_t call : {1u, 2u, 3u}) queue_.push(request(call));
  std::optional<ServingTask> first = queue_.take();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->request.id, (InboundId{1, 1}));
  EXPECT_EQ(take(), 2u);
  queue_.give_back(std::move(*first));
  EXPECT_EQ(take(), 1u) << "in front of the others";
  EXPECT_EQ(take(), 3u);
  EXPECT_FALSE(queue_.take());
}

TEST_F(ServingQueueTest, DoesNotHandOutAWithdrawnRequest) {
  queue_.push(request(1));
  queue_.push(request(2));
  queue_.tell_withdrawn();
  queue_.withdraw({{1, 1}, {9, 2}});  // and a request of another session
  EXPECT_EQ(take(), 2u);
  const std::optional<ServingTask> notice = queue_.take();
  ASSERT_TRUE(notice) << "it was not there: it must have been handed out";
  EXPECT_TRUE(notice->is_withdrawn);
  EXPECT_EQ(notice->request.id, (InboundId{9, 2}));
  EXPECT_FALSE(queue_.take());
}

TEST_F(ServingQueueTest, WithdrawingATakenRequestIsNotReportedUnlessAsked) {
  queue_.push(request(1));
  EXPECT_EQ(take(), 1u);
  queue_.withdraw({{1, 1}});
  EXPECT_FALSE(queue_.take());
}

// As many as a peer may have called when it dies. A pass for each of them would take minutes.
TEST_F(ServingQueueTest, WithdrawsManyRequestsInOnePass) {
  constexpr std::uint64_t kCalls = 65'536;
  std::set<InboundId> gone;
  for (std::uint64_t call = 1; call <= kCalls; ++call) {
    queue_.push(request(call));
    if (call != kCalls / 2) gone.insert({1, call});
  }
  gone.insert({1, kCalls + 1});
  gone.insert({1, kCalls + 2});
  queue_.tell_withdrawn();
  queue_.withdraw(std::move(gone));
  EXPECT_EQ(take(), kCalls / 2);
  EXPECT_EQ(take(), kCalls + 1) << "it was not there";
  EXPECT_EQ(take(), kCalls + 2);
  EXPECT_FALSE(queue_.take());
}

TEST_F(ServingQueueTest, SaysWhetherAThreadIsNeededForTheNextTask) {
  for (std::uint64_t call = 1; call <= 3; ++call) queue_.push(request(call));
  EXPECT_TRUE(queue_.take()->needs_help);
  queue_.expect_thread();
  EXPECT_FALSE(queue_.take()->needs_help) << "one is on its way";
  queue_.note_thread_started();
  EXPECT_TRUE(queue_.take()->needs_help) << "that one is here, and has a task";
}

TEST_F(ServingQueueTest, NeedsAThreadWhereAllOthersAreBusyAndOneMoreIsAllowed) {
  queue_.set_threads_max(1);
  EXPECT_TRUE(queue_.needs_thread());
  queue_.expect_thread();
  EXPECT_FALSE(queue_.needs_thread()) << "one is on its way";
  queue_.note_thread_started();
  EXPECT_FALSE(queue_.needs_thread()) << "there is one, and no further one is allowed";
  queue_.set_threads_max(2);
  EXPECT_TRUE(queue_.needs_thread());
  queue_.close();
  EXPECT_FALSE(queue_.needs_thread());
}

TEST_F(ServingQueueTest, DoesNotCountOnAThreadThatFailedToStart) {
  for (std::uint64_t call = 1; call <= 2; ++call) queue_.push(request(call));
  EXPECT_TRUE(queue_.take()->needs_help);
  queue_.expect_thread();
  queue_.note_thread_failed();
  EXPECT_TRUE(queue_.take()->needs_help);
}

TEST_F(ServingQueueTest, WakesAThreadForEachTaskAndAllWhenItCloses) {
  std::atomic<std::uint64_t> sum{0};
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (const std::optional<ServingTask> task = queue_.wait(*peer_)) {
        sum += task->request.id.call;
      }
      ++ended;
    });
  }
  for (std::uint64_t call = 1; call <= 100; ++call) queue_.push(request(call));
  EXPECT_TRUE(test::eventually([&] { return sum == 5050; }));
  EXPECT_EQ(ended, 0);
  queue_.close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 3);
}

TEST_F(ServingQueueTest, EndsIdleThreadsBeyondTheMaximum) {
  std::atomic<std::size_t> ended{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ServingQueue::kIdleMax + 2; ++i) {
    threads.emplace_back([&] {
      EXPECT_FALSE(queue_.wait(*peer_));
      ++ended;
    });
  }
  EXPECT_TRUE(test::eventually([&] { return ended == 2; }));
  queue_.close();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ServingQueueTest, ThreadsBeyondANewBoundEndAndTheOthersKeepServing) {
  std::atomic<std::uint64_t> sum{0};
  std::atomic<std::size_t> ended{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ServingQueue::kIdleMax; ++i) {
    queue_.expect_thread();
    threads.emplace_back([&] {
      queue_.note_thread_started();
      while (const std::optional<ServingTask> task = queue_.wait(*peer_)) {
        sum += task->request.id.call;
      }
      ++ended;
    });
  }
  for (std::uint64_t call = 1; call <= 10; ++call) queue_.push(request(call));
  EXPECT_TRUE(test::eventually([&] { return sum == 55; }));
  queue_.set_threads_max(1);
  EXPECT_TRUE(test::eventually([&] { return ended == ServingQueue::kIdleMax - 1; }));
  for (std::uint64_t call = 11; call <= 100; ++call) queue_.push(request(call));
  EXPECT_TRUE(test::eventually([&] { return sum == 5050; }));
  EXPECT_EQ(ended, ServingQueue::kIdleMax - 1);
  queue_.close();
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ServingQueueTest, GivesRemainingTasksAfterClose) {
  queue_.push(request(1));
  queue_.close();
  ASSERT_TRUE(queue_.wait(*peer_));
  EXPECT_FALSE(queue_.wait(*peer_));
}

// A thread that waits in the peer's seat is woken by messages, and by tasks that come from others.
TEST_F(ServingQueueTest, TheThreadThatReadsThePeersMessagesSeesEveryTask) {
  Peer::Options options;
  options.name = "caller";
  options.uses_shared_memory = false;
  const auto caller = std::move(Peer::make(options)).value();
  ASSERT_TRUE(
      peer_->define("give", [this](Request got) { queue_.push({.request = std::move(got)}); })
          .ok());
  const Result<std::string> address = peer_->listen("127.0.0.1:0");
  ASSERT_TRUE(address.ok()) << address.status().to_string();
  ASSERT_TRUE(caller->connect(*address).ok());
  std::atomic<int> served{0};
  queue_.expect_thread();
  std::thread thread([&] {
    queue_.note_thread_started();
    while (const std::optional<ServingTask> task = queue_.wait(*peer_)) {
      if (task->request.function == "give") peer_->answer(task->request.id, {});
      ++served;
    }
  });
  for (int i = 0; i < 200; ++i) {
    if (i % 2 == 0) {
      queue_.push(request(7));
    } else {
      EXPECT_EQ(caller->sync("serving", "give", {}, {}).kind, CallResult::Kind::kAnswer);
    }
    ASSERT_TRUE(test::eventually([&] { return served == i + 1; }));
  }
  queue_.close();
  thread.join();
}

}  // namespace
}  // namespace reverie
