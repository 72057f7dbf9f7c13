#include "reverie/shards/retry_queue.h"

#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TimePoint at(std::int64_t ms) {
  return TimePoint{ms * 1'000'000};
}

RetryQueue::Waiting waiting(RequestId id, TimePoint deadline, TimePoint give_up_at) {
  return {id, deadline, give_up_at, [](const Status&) {}};
}
std::vector<RequestId> ids(const std::list<RetryQueue::Waiting>& all) {
  std::vector<RequestId> ids;
  for (const RetryQueue::Waiting& one : all) ids.push_back(one.id);
  return ids;
}
using Ids = std::vector<RequestId>;

TEST(RetryQueue, TakesTheEntriesOfOneRequestAndKeepsTheOthersInOrder) {
  RetryQueue queue;
  for (const RequestId id : Ids{1, 2, 1, 3}) queue.add(waiting(id, TimePoint::max(), at(9)));
  EXPECT_EQ(ids(queue.take(1)), (Ids{1, 1}));
  EXPECT_EQ(ids(queue.take(1)), Ids{});
  EXPECT_EQ(ids(queue.take_all()), (Ids{2, 3}));
  EXPECT_EQ(ids(queue.take_all()), Ids{});
}

TEST(RetryQueue, DeadlinesAndRetryTimesUseSeparateClocks) {
  RetryQueue queue;
  queue.add(waiting(1, at(100), at(50)));
  queue.add(waiting(2, TimePoint::max(), at(70)));
  queue.add(waiting(3, at(110), TimePoint::max()));

  RetryQueue::Due due = queue.take_due(at(99), at(20));
  EXPECT_EQ(ids(due.expired), Ids{});
  EXPECT_EQ(ids(due.given_up), Ids{});
  EXPECT_EQ(due.next, at(21)) << "1 ms to the deadline of request 1";

  due = queue.take_due(at(100), at(70));
  EXPECT_EQ(ids(due.expired), Ids{1}) << "a deadline comes before the end of the retry time";
  EXPECT_EQ(ids(due.given_up), Ids{2});
  EXPECT_EQ(due.next, at(80));

  due = queue.take_due(at(110), at(80));
  EXPECT_EQ(ids(due.expired), Ids{3});
  EXPECT_EQ(due.next, TimePoint::max());
}

}  // namespace
}  // namespace reverie
