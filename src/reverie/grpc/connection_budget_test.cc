#include "reverie/grpc/connection_budget.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;
constexpr std::size_t kOwn = ConnectionBudget::kOwnBytes;

TEST(ConnectionBudget, ChargesTheServerForBytesBeyondItsOwnShare) {
  const auto all = std::make_shared<ByteBudget>(100 * kMebibyte);
  {
    ConnectionBudget budget(64 * kMebibyte, all);
    budget.add_in(kOwn);
    budget.add_queued(kOwn);
    EXPECT_EQ(all->held_bytes(), 0u);
    budget.add_in(3);
    budget.add_drawn(4);
    EXPECT_EQ(all->held_bytes(), 7u);
    budget.give_back_in(5);
    EXPECT_EQ(all->held_bytes(), 4u);
    budget.add_in(kMebibyte);
    EXPECT_EQ(all->held_bytes(), kMebibyte - 2 + 4);
  }
  EXPECT_EQ(all->held_bytes(), 0u) << "a connection that goes gives everything back";
}

TEST(ConnectionBudget, EachDirectionMayUseHalfAndWhatTheOtherLeaves) {
  ConnectionBudget budget(1000);
  budget.add_in(999);
  EXPECT_FALSE(budget.is_in_full());
  budget.add_in(1);
  EXPECT_TRUE(budget.is_in_full());
  budget.add_queued(499);
  EXPECT_TRUE(budget.may_send()) << "a half is its own";
  budget.add_queued(1);
  EXPECT_FALSE(budget.may_send());
  budget.give_back_in(600);
  EXPECT_TRUE(budget.may_send());
  EXPECT_FALSE(budget.is_in_full());
}

TEST(ConnectionBudget, ASingleMessagePassesWhateverItsSize) {
  ConnectionBudget budget(1000);
  EXPECT_TRUE(budget.may_draw());
  budget.add_drawn(5000);
  EXPECT_FALSE(budget.may_draw());
  EXPECT_TRUE(budget.may_send()) << "what was drawn must go out";
  budget.add_queued(10);
  EXPECT_FALSE(budget.may_send());
  budget.give_back_queued(10);
  EXPECT_TRUE(budget.may_send());
  EXPECT_TRUE(budget.check_in(7000).ok());
  budget.add_in(7000);
  EXPECT_EQ(budget.check_in(1).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(budget.check_in(1, 7000).ok()) << "beside the one that passes";
}

TEST(ConnectionBudget, SamplesDrawnAheadShareAnEighth) {
  ConnectionBudget budget(8000);
  EXPECT_EQ(budget.reserve_drawn(9, 100), 9u);
  EXPECT_EQ(budget.reserve_drawn(9, 100), 1u);
  EXPECT_EQ(budget.reserve_drawn(9, 100), 1u) << "one at the least";
  EXPECT_EQ(budget.out_bytes(), 1100u);
}

TEST(ConnectionBudget, AFullServerLeavesEachConnectionItsOwnShare) {
  const auto all = std::make_shared<ByteBudget>(kMebibyte);
  ConnectionBudget greedy(64 * kMebibyte, all);
  ConnectionBudget honest(64 * kMebibyte, all);
  greedy.add_queued(kOwn + kMebibyte);
  EXPECT_FALSE(greedy.may_draw());
  honest.add_queued(kOwn - 1);
  EXPECT_TRUE(honest.may_draw());
  EXPECT_TRUE(honest.check_in(kOwn).ok());
  EXPECT_NE(honest.check_in(kOwn + 1).message().find("bytes_in_flight"), std::string::npos);
}

TEST(ConnectionBudget, NotifiesOnceWhenThereIsRoom) {
  const auto all = std::make_shared<ByteBudget>(kMebibyte);
  const auto other = std::make_shared<ConnectionBudget>(64 * kMebibyte, all);
  const auto budget = std::make_shared<ConnectionBudget>(4 * kMebibyte, all);
  int told = 0;
  budget->set_on_room([&told] { ++told; });
  budget->await_room(/*is_to_send=*/false, /*is_to_draw=*/true);
  EXPECT_EQ(told, 1) << "there is room";
  budget->add_queued(4 * kMebibyte);
  budget->await_room(true, true);
  EXPECT_EQ(told, 1);
  other->add_queued(2 * kMebibyte);
  budget->give_back_queued(4 * kMebibyte - kOwn);
  EXPECT_EQ(told, 1) << "the server is full";
  budget->await_room(true, true);
  EXPECT_EQ(told, 1);
  other->give_back_queued(2 * kMebibyte);
  EXPECT_EQ(told, 2) << "the server is not full any more";
  other->add_queued(2 * kMebibyte);
  other->give_back_queued(2 * kMebibyte);
  EXPECT_EQ(told, 2);
}

// A waiting call is notified, whichever thread makes room.
TEST(ConnectionBudget, NoWakeUpIsLostBetweenThreads) {
  const auto budget = std::make_shared<ConnectionBudget>(1000);
  std::atomic<int> told{0};
  budget->set_on_room([&told] { ++told; });
  for (int round = 0; round < 2000; ++round) {
    budget->add_queued(1000);
    std::thread other([&] { budget->give_back_queued(1000); });
    const int before = told.load();
    budget->await_room(true, true);
    other.join();
    ASSERT_EQ(told.load(), before + 1) << "round " << round;
  }
}

}  // namespace
}  // namespace reverie
