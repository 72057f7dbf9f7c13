#include "reverie/adapters/peer/insert_pump.h"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/items.h"
#include "tests/support/silent_link.h"

namespace reverie {
namespace {

using testing::SilentLink;

store_wire::Inserted went_in(std::uint64_t number) {
  store_wire::Inserted inserted;
  inserted.writer = 1;
  inserted.messages_taken = 1;
  inserted.in = {{number, 1}};
  return inserted;
}

TEST(InsertPump, AnAnswerOfAnEarlierConnectionConfirmsNothing) {
  InsertPump pump(/*number=*/1, /*seed=*/7);
  std::vector<Item> items;
  items.push_back(testing::make_item(11, 1.0));
  items.push_back(testing::make_item(12, 1.0));
  InsertRequest request;
  request.table = "t";
  request.items = items;
  InsertPump::Done done = [](const InsertResult&) {};
  const auto lost = std::make_shared<SilentLink>();
  pump.connect(lost);
  const std::uint64_t first = pump.insert(request, TimePoint::max(), done);
  InsertPump::Ended ended;
  pump.disconnect(TimePoint::max(), ended);
  const auto link = std::make_shared<SilentLink>();
  pump.connect(link);

  // A thread that read it before the connection was lost passes it on now.
  pump.on_inserted(*lost, went_in(first), ended);
  pump.on_inserted(*link, went_in(first), ended);
  EXPECT_TRUE(ended.empty()) << "its second item is not in the table yet";
  pump.on_inserted(*link, went_in(first + 1), ended);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended.front().second.status.ok());
  EXPECT_EQ(ended.front().second.applied, 2u);
}

// The items that a lost connection confirmed are in the table, whatever comes after it.
class InsertPumpLosses : public ::testing::Test {
 protected:
  // Two items are sent and the first is confirmed; then the connection is lost.
  void lose_after_one() {
    items_.push_back(testing::make_item(11, 1.0));
    items_.push_back(testing::make_item(12, 1.0));
    InsertRequest request;
    request.table = "t";
    request.items = items_;
    InsertPump::Done done = [](const InsertResult&) {};
    const auto link = std::make_shared<SilentLink>();
    pump_.connect(link);
    first_ = pump_.insert(request, TimePoint::max(), done);
    pump_.on_inserted(*link, went_in(first_), ended_);
    pump_.disconnect(lost_at_, ended_);
    ASSERT_TRUE(ended_.empty());
  }
  std::shared_ptr<SilentLink> reconnect() {
    auto link = std::make_shared<SilentLink>();
    pump_.connect(link);
    return link;
  }
  void expect_one_applied(StatusCode code) const {
    ASSERT_EQ(ended_.size(), 1u);
    EXPECT_EQ(ended_.front().second.status.code(), code);
    EXPECT_EQ(ended_.front().second.applied, 1u);
  }

  const TimePoint lost_at_{};
  InsertPump pump_{/*number=*/1, /*seed=*/7};
  std::vector<Item> items_;
  std::uint64_t first_ = 0;
  InsertPump::Ended ended_;
};

TEST_F(InsertPumpLosses, LeaveTheCountOfConfirmedItemsWhenNoServerReturns) {
  lose_after_one();
  pump_.sweep(lost_at_ + seconds(1), unavailable("gone"), ended_);
  expect_one_applied(StatusCode::kUnavailable);
}

TEST_F(InsertPumpLosses, LeaveTheCountOfConfirmedItemsWhenTheClientCloses) {
  lose_after_one();
  (void)reconnect();
  pump_.close(cancelled("closed"), ended_);
  expect_one_applied(StatusCode::kCancelled);
}

TEST_F(InsertPumpLosses, LeaveTheCountOfConfirmedItemsWhenTheNextServerRefuses) {
  lose_after_one();
  const auto link = reconnect();
  store_wire::Inserted refused;
  refused.writer = 1;
  refused.messages_taken = 1;
  refused.failed = {{first_, 0, invalid_argument("no such table")}};
  pump_.on_inserted(*link, refused, ended_);
  expect_one_applied(StatusCode::kInvalidArgument);
}

// Both items travel again, so the next server must confirm both.
TEST_F(InsertPumpLosses, CompleteARequestOnlyWhenTheNextServerHasAllOfIt) {
  lose_after_one();
  const auto link = reconnect();
  pump_.on_inserted(*link, went_in(first_), ended_);
  EXPECT_TRUE(ended_.empty()) << "its second item is not in the table yet";
  pump_.on_inserted(*link, went_in(first_ + 1), ended_);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_TRUE(ended_.front().second.status.ok());
  EXPECT_EQ(ended_.front().second.applied, 2u);
}

}  // namespace
}  // namespace reverie
