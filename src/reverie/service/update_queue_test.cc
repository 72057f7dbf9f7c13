#include "reverie/service/update_queue.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/scale.h"

namespace reverie {
namespace {

using Call = std::shared_ptr<const UpdateCall>;

constexpr Duration kPace = std::chrono::milliseconds(1);

class UpdateQueueTest : public ::testing::Test {
 protected:
  // Adds an update of the keys [first, first + count).
  void add_keys(ItemKey first, std::size_t count, const std::string& table = "t",
                double priority = 1.0) {
    std::vector<ItemKey> keys(count);
    for (std::size_t i = 0; i < count; ++i) keys[i] = first + i;
    const std::vector<double> priorities(count, priority);
    MutateRequest request;
    request.table = table;
    request.keys = keys;
    request.key_priorities = priorities;
    queue.add(request);
  }
  void add_tickets(std::vector<std::uint64_t> tickets) {
    const std::vector<double> priorities(tickets.size(), 2.0);
    MutateRequest request;
    request.table = "t";
    request.tickets = tickets;
    request.ticket_priorities = priorities;
    queue.add(request);
  }
  Call next(bool is_urgent = false) { return queue.next(now, is_urgent); }
  static std::vector<ItemKey> keys_of(const UpdateCall& call) {
    const MutateRequest request = call.request();
    return {request.keys.begin(), request.keys.end()};
  }

  UpdateQueue queue{kPace};
  TimePoint now = TimePoint() + std::chrono::seconds(1);
};

TEST_F(UpdateQueueTest, TheFirstUpdateIsSentAtOnceAndLaterOnesTogether) {
  add_keys(1, 2);
  const Call first = next();
  ASSERT_TRUE(first);
  EXPECT_EQ(keys_of(*first), (std::vector<ItemKey>{1, 2}));
  add_keys(3, 1);
  add_keys(4, 2);
  EXPECT_EQ(queue.due(), TimePoint::max()) << "one call at a time";
  now = now + 2 * kPace;
  EXPECT_FALSE(next());
  queue.end(*first, {});
  EXPECT_LE(queue.due(), now);
  const Call second = next();
  ASSERT_TRUE(second);
  EXPECT_EQ(keys_of(*second), (std::vector<ItemKey>{3, 4, 5}));
  EXPECT_EQ(second->update_count(), 2u);
  EXPECT_EQ(second->request().key_priorities.size(), 3u);
  EXPECT_EQ(queue.update_count(), 2u);
  queue.end(*second, {});
  EXPECT_EQ(queue.update_count(), 0u);
  EXPECT_FALSE(queue.take_failure());
}

TEST_F(UpdateQueueTest, CallsArePacedUnlessFullOrUrgent) {
  add_keys(1, 1);
  queue.end(*next(), {});
  add_keys(2, 1);
  EXPECT_FALSE(next());
  EXPECT_EQ(queue.due(), now + kPace);
  EXPECT_TRUE(next(/*is_urgent=*/true));
  add_keys(3, UpdateCall::kPrioritiesMax);
  const Call full = next();
  ASSERT_TRUE(full) << "although another one is in progress";
  add_keys(4, UpdateCall::kPrioritiesMax - 1);
  EXPECT_FALSE(next());
  add_keys(5, 2);  // does not fit into that call
  EXPECT_EQ(keys_of(*next()).size(), UpdateCall::kPrioritiesMax - 1);
  EXPECT_FALSE(next());
}

TEST_F(UpdateQueueTest, FullCallsInProgressAreBounded) {
  for (std::size_t i = 0; i <= UpdateQueue::kCallsMax; ++i) {
    add_keys(1, UpdateCall::kPrioritiesMax);
  }
  std::vector<Call> begun;
  while (Call call = next()) begun.push_back(std::move(call));
  EXPECT_EQ(begun.size(), UpdateQueue::kCallsMax);
  EXPECT_EQ(queue.due(), TimePoint::max());
  queue.end(*begun.front(), {});
  EXPECT_TRUE(next());
  EXPECT_FALSE(queue.has_waiting());
}

TEST_F(UpdateQueueTest, UpdatesOfDifferentTablesAndKindsUseSeparateCalls) {
  add_keys(1, 1);
  add_tickets({7, 8});
  add_keys(2, 1, "u");
  add_keys(3, 1, "u");
  std::vector<std::string> calls;
  while (const Call call = next(/*is_urgent=*/true)) {
    calls.push_back(call->table() + std::to_string(call->request().keys.size()) +
                    std::to_string(call->request().tickets.size()));
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"t10", "t02", "u20"}));
}

TEST_F(UpdateQueueTest, ARefusedCallIsRepeatedUpdateByUpdateInOrder) {
  for (const ItemKey key : {1u, 2u, 3u}) add_keys(key, 2);
  const Call together = next();
  EXPECT_EQ(together->update_count(), 3u);
  add_keys(9, 1);
  queue.end(*together, invalid_argument("negative"));
  EXPECT_FALSE(queue.has_failure()) << "not known whose";
  EXPECT_EQ(queue.update_count(), 4u);
  for (const ItemKey key : {1u, 2u, 3u}) {
    const Call alone = next();
    ASSERT_TRUE(alone);
    EXPECT_EQ(keys_of(*alone), (std::vector<ItemKey>{key, key + 1}));
    queue.end(*alone, key == 2 ? invalid_argument("negative") : Status());
  }
  const auto failure = queue.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->table, "t");
  EXPECT_EQ(failure->status.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(queue.take_failure()) << "told once";
  EXPECT_EQ(queue.update_count(), 1u);
}

// Call after call, with the priorities that a store has at the end: the newer ones.
TEST_F(UpdateQueueTest, ARefusedCallIsRepeatedBeforeTheLaterCallsOfItsTable) {
  constexpr std::size_t kHalf = UpdateCall::kPrioritiesMax / 2;
  add_keys(1, kHalf, "t", -1);     // faulty
  add_keys(9'000, kHalf, "t", 2);  // good, in the same call
  add_keys(9'000, kHalf, "t", 3);
  add_keys(1, kHalf, "t", 4);
  add_keys(9'000, 1, "u", 5);
  const Call refused = next();
  const Call newer = next();
  ASSERT_TRUE(refused && newer) << "both are full";
  const Call other = next(/*is_urgent=*/true);
  ASSERT_TRUE(other);
  add_keys(9'000, 1, "t", 6);
  queue.end(*refused, invalid_argument("negative"));
  EXPECT_FALSE(next(/*is_urgent=*/true)) << "while a later call of this table is in progress";
  EXPECT_EQ(queue.due(), TimePoint::max());
  queue.end(*newer, {});
  EXPECT_LE(queue.due(), now) << "whatever is in progress for other tables";
  queue.end(*other, {});
  std::vector<std::pair<ItemKey, double>> firsts;
  while (const Call call = next(/*is_urgent=*/true)) {
    firsts.emplace_back(call->request().keys[0], call->request().key_priorities[0]);
    const bool is_faulty = call->request().key_priorities[0] < 0;
    queue.end(*call, is_faulty ? invalid_argument("negative") : Status());
  }
  EXPECT_EQ(firsts,
            (std::vector<std::pair<ItemKey, double>>{{1, -1}, {9'000, 2}, {9'000, 3}, {9'000, 6}}));
  EXPECT_EQ(queue.update_count(), 0u);
  EXPECT_TRUE(queue.take_failure());
}

TEST_F(UpdateQueueTest, ARefusedCallHoldsBackItsOwnTableAlone) {
  constexpr std::size_t kHalf = UpdateCall::kPrioritiesMax / 2;
  add_keys(1, kHalf, "t", -1);
  add_keys(1, kHalf, "t", 2);
  add_keys(1, kHalf + 1, "t", 3);
  const Call refused = next();
  const Call newer = next(/*is_urgent=*/true);
  ASSERT_TRUE(refused && newer);
  queue.end(*refused, invalid_argument("negative"));
  add_keys(7, 1, "t", 4);
  add_keys(8, 1, "u", 5);
  const Call other = next(/*is_urgent=*/true);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->table(), "u");
  EXPECT_FALSE(next(/*is_urgent=*/true));
  queue.end(*other, {});
  EXPECT_EQ(queue.update_count(), 4u) << "that one is done, although others wait";
}

TEST_F(UpdateQueueTest, OtherErrorsFailAllUpdatesOfACall) {
  add_keys(1, 1);
  add_keys(2, 1);
  queue.end(*next(), unavailable("gone"));
  EXPECT_EQ(queue.update_count(), 0u);
  EXPECT_EQ(queue.take_failure()->status.code(), StatusCode::kUnavailable);
}

// The model is a map to which every update is written at once, except the faulty ones.
TEST_F(UpdateQueueTest, TheLastUpdateOfAKeyWinsWhateverTheTiming) {
  Random random(7);
  using Priorities = std::map<std::pair<std::string, ItemKey>, double>;
  Priorities model;
  Priorities store;
  std::deque<std::pair<Call, Status>> in_progress;
  // Calls on one connection take effect in order.
  const auto run = [&](Call call) {
    const MutateRequest request = call->request();
    Status status;
    if (std::ranges::any_of(request.key_priorities, [](double p) { return p < 0; })) {
      status = invalid_argument("negative");
    }
    for (std::size_t i = 0; status.ok() && i < request.keys.size(); ++i) {
      store[{call->table(), request.keys[i]}] = request.key_priorities[i];
    }
    in_progress.emplace_back(std::move(call), std::move(status));
  };
  const auto end_one = [&](std::size_t index) {
    const auto [call, status] = in_progress[index];
    in_progress.erase(in_progress.begin() + static_cast<std::ptrdiff_t>(index));
    queue.end(*call, status);
  };
  const auto steps = static_cast<int>(scaled_in_release(4'000, 20'000));
  for (int step = 0; step < steps; ++step) {
    const ItemKey key = random.below(8);
    const auto count = static_cast<std::size_t>(1 + random.below(4));
    const bool is_faulty = random.below(50) == 0;
    const std::string table = random.below(4) == 0 ? "u" : "t";
    add_keys(key, count, table, is_faulty ? -1 : step);
    for (std::size_t i = 0; !is_faulty && i < count; ++i) model[{table, key + i}] = step;
    now = now + random.below(400) * std::chrono::microseconds(1);
    const bool is_urgent = random.below(20) == 0;
    while (Call call = next(is_urgent)) run(std::move(call));
    // Answers may overtake each other.
    if (!in_progress.empty() && random.below(3) == 0) end_one(random.below(in_progress.size()));
  }
  while (queue.update_count() > 0) {
    while (Call call = next(/*is_urgent=*/true)) run(std::move(call));
    end_one(0);
  }
  EXPECT_TRUE(in_progress.empty());
  EXPECT_EQ(store, model);
}

}  // namespace
}  // namespace reverie
