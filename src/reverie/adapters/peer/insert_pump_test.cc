#include "reverie/adapters/peer/insert_pump.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/insert_mirror.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"
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
  InsertPump::Ended ended;
  pump.connect(lost, {}, ended);
  const std::uint64_t first = pump.insert(request, TimePoint::max(), done, ended);
  pump.disconnect(TimePoint::max(), ended);
  const auto link = std::make_shared<SilentLink>();
  pump.connect(link, {}, ended);

  // A thread that read it before the connection was lost passes it on now.
  pump.on_inserted(*lost, went_in(first), ended);
  pump.on_inserted(*link, went_in(first), ended);
  EXPECT_TRUE(ended.empty()) << "its second item is not in the table yet";
  pump.on_inserted(*link, went_in(first + 1), ended);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended.front().second.status.ok());
  EXPECT_EQ(ended.front().second.applied, 2u);
}

// Keeps the messages that are sent, and how those that open the writer number it.
struct InsertsLink final : SilentLink {
  void send(const FrameHeader& header, std::shared_ptr<const Message> message) override {
    if (header.sequence == static_cast<std::uint64_t>(store_wire::StoreCall::kOpenWriter)) {
      opened.push_back(store_wire::read_note(message->payload)->first);
    }
    if (header.sequence != static_cast<std::uint64_t>(store_wire::StoreCall::kInsert)) return;
    sent.push_back(message->payload);
  }
  std::vector<Payload> sent;
  std::vector<std::uint64_t> opened;
};

class InsertPumpLimits : public ::testing::Test {
 protected:
  std::uint64_t insert(Item item) {
    InsertRequest request;
    request.table = "t";
    request.items = {&item, 1};
    InsertPump::Done done = [](const InsertResult&) {};
    return pump_.insert(request, TimePoint::max(), done, ended_);
  }
  void connect(std::size_t bulk_bytes_max) {
    FrameLimits limits;
    limits.bulk_bytes_max = bulk_bytes_max;
    pump_.connect(link_, limits, ended_);
  }
  // The messages, as their server understands them: how many items each has.
  std::vector<std::size_t> item_counts() {
    InsertMirror mirror({.memory = Allocator::heap(),
                         .names = [](std::string_view) -> const wire::ColumnNames& {
                           static const auto* const none = new wire::ColumnNames;
                           return *none;
                         },
                         .kept_bytes_max = std::size_t{1} << 30});
    std::vector<std::size_t> counts;
    for (Payload payload : link_->sent) {
      auto bulk = std::make_shared<std::vector<std::byte>>();
      for (const BulkPiece& piece : payload.bulk) {
        bulk->resize(Payload::padded(bulk->size()));
        bulk->insert(bulk->end(), piece.bytes.begin(), piece.bytes.end());
      }
      payload.bulk.clear();
      if (!bulk->empty()) payload.bulk.push_back({*bulk, bulk});
      std::vector<InsertMirror::Taken> taken;
      const Status status = mirror.take(payload, taken);
      EXPECT_TRUE(status.ok()) << status.message();
      for (const auto& item : taken) {
        EXPECT_EQ(testing::value_of(item.item.trajectory.view()),
                  static_cast<float>(item.item.key));
      }
      counts.push_back(taken.size());
    }
    return counts;
  }
  static Item item(ItemKey key, std::uint32_t rows) {
    return testing::make_item(key, 1.0, static_cast<float>(key), rows);
  }

  InsertPump pump_{/*number=*/1, /*seed=*/7};
  const std::shared_ptr<InsertsLink> link_ = std::make_shared<InsertsLink>();
  InsertPump::Ended ended_;
};

TEST_F(InsertPumpLimits, AnInsertThatIsTooLargeFailsAloneWithSizeBoundAndRemedy) {
  insert(item(1, 2000));
  insert(item(2, 20'000));
  insert(item(3, 2000));
  connect(/*bulk_bytes_max=*/50'000);
  ASSERT_EQ(ended_.size(), 1u);
  expect_refused(ended_.front().second.status, StatusCode::kResourceExhausted,
                 {"'t'", "80000", "50000", "message_bytes"});
  EXPECT_EQ(ended_.front().second.applied, 0u);
  pump_.on_inserted(*link_, went_in(1), ended_);
  EXPECT_EQ(item_counts(), (std::vector<std::size_t>{1, 1}));
  pump_.on_inserted(*link_, went_in(3), ended_);
  ASSERT_EQ(ended_.size(), 3u);
  EXPECT_TRUE(ended_.back().second.status.ok());
  EXPECT_TRUE(pump_.empty());
}

TEST_F(InsertPumpLimits, InsertsThatDoNotFitInOneMessageFollowInTheNext) {
  for (ItemKey key = 1; key <= 5; ++key) insert(item(key, 5000));
  connect(/*bulk_bytes_max=*/50'000);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    store_wire::Inserted inserted = went_in(number);
    inserted.messages_taken = link_->sent.size();
    pump_.on_inserted(*link_, inserted, ended_);
  }
  EXPECT_EQ(item_counts(), (std::vector<std::size_t>{2, 2, 1}));
  EXPECT_EQ(ended_.size(), 5u);
}

TEST_F(InsertPumpLimits, TextBeyondTheBoundOfAMessageFails) {
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kString, {}}});
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{{"x", DType::kString, {}}, 0, 0, 1, false}}, std::string("x"));
  const std::string text((std::size_t{64} << 20) + 1, 'x');
  const Ref<Chunk> chunk = Chunk::open(schema, {}, 1, text.size(), Allocator::heap()).value();
  chunk->set_row(0, 0, std::as_bytes(std::span(text)));
  chunk->publish(1);
  const Piece piece{chunk.get(), 0, 1};
  connect(std::size_t{1} << 30);
  insert({1, 1.0, Trajectory(layout, {&piece, 1})});
  ASSERT_EQ(ended_.size(), 1u);
  expect_refused(ended_.front().second.status, StatusCode::kResourceExhausted,
                 {"'t'", "67108864", "text", "grpc"});
  insert(item(2, 2000));
  EXPECT_EQ(item_counts(), (std::vector<std::size_t>{1}));
}

store_wire::Inserted ended_with(Status why) {
  store_wire::Inserted inserted;
  inserted.writer = 1;
  inserted.ended = std::move(why);
  return inserted;
}

TEST_F(InsertPumpLimits, WhenTheServerEndsTheWriterWhatWasSentFailsAndTheRestFollows) {
  connect(/*bulk_bytes_max=*/50'000);
  insert(item(1, 1));
  insert(item(2, 1));
  insert(item(3, 1));
  EXPECT_EQ(item_counts(), (std::vector<std::size_t>{1})) << "the others wait for the answer";
  link_->sent.clear();
  pump_.on_inserted(*link_, ended_with(resource_exhausted("a bound")), ended_);
  ASSERT_EQ(ended_.size(), 1u);
  expect_refused(ended_.front().second.status, StatusCode::kResourceExhausted, {"a bound"});
  EXPECT_EQ(ended_.front().second.applied, 0u);
  EXPECT_EQ(link_->opened, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(item_counts(), (std::vector<std::size_t>{2})) << "to a server that has nothing of it";
  EXPECT_EQ(InsertMirror::head_of(link_->sent.front())->first_number, 2u);
  EXPECT_EQ(InsertMirror::head_of(link_->sent.front())->settled_below, 2u);

  store_wire::Inserted rest = went_in(2);
  rest.in.front().count = 2;
  pump_.on_inserted(*link_, rest, ended_);
  ASSERT_EQ(ended_.size(), 3u);
  EXPECT_TRUE(ended_.back().second.status.ok());
  EXPECT_TRUE(pump_.empty());
}

TEST_F(InsertPumpLimits, TheLastAnswerOfAnEndedWriterTellsWhatIsIn) {
  connect(/*bulk_bytes_max=*/50'000);
  std::vector<Item> items;
  for (ItemKey key = 1; key <= 3; ++key) items.push_back(item(key, 1));
  InsertRequest request;
  request.table = "t";
  request.items = items;
  InsertPump::Done done = [](const InsertResult&) {};
  pump_.insert(request, TimePoint::max(), done, ended_);
  store_wire::Inserted last = ended_with(resource_exhausted("a bound"));
  last.failed = {{1, 2, resource_exhausted("a bound")}};
  pump_.on_inserted(*link_, last, ended_);
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_.front().second.status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ended_.front().second.applied, 2u);
  EXPECT_TRUE(pump_.empty());
}

TEST_F(InsertPumpLimits, AWithdrawnInsertOfAnEndedWriterEndsAsWithdrawn) {
  connect(/*bulk_bytes_max=*/50'000);
  const std::uint64_t first = insert(item(1, 1));
  pump_.cancel(first, cancelled("withdrawn"), TimePoint{} + seconds(9), ended_);
  pump_.on_inserted(*link_, ended_with(resource_exhausted("a bound")), ended_);
  ASSERT_EQ(ended_.size(), 1u);
  expect_refused(ended_.front().second.status, StatusCode::kCancelled, {"withdrawn"});
}

TEST_F(InsertPumpLimits, WhatAnEndedWriterFailedIsNotSentOnTheNextConnection) {
  connect(/*bulk_bytes_max=*/50'000);
  insert(item(1, 1));
  insert(item(2, 1));
  pump_.on_inserted(*link_, ended_with(resource_exhausted("a bound")), ended_);
  pump_.disconnect(TimePoint::max(), ended_);
  link_->sent.clear();
  connect(/*bulk_bytes_max=*/50'000);
  EXPECT_EQ(link_->opened, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(item_counts(), (std::vector<std::size_t>{1}));
  EXPECT_EQ(InsertMirror::head_of(link_->sent.front())->first_number, 2u);
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
    pump_.connect(link, {}, ended_);
    first_ = pump_.insert(request, TimePoint::max(), done, ended_);
    pump_.on_inserted(*link, went_in(first_), ended_);
    pump_.disconnect(lost_at_, ended_);
    ASSERT_TRUE(ended_.empty());
  }
  std::shared_ptr<SilentLink> reconnect() {
    auto link = std::make_shared<SilentLink>();
    pump_.connect(link, {}, ended_);
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

// A server that closes each connection before it answers does not extend the time to retry.
TEST_F(InsertPumpLosses, WithoutAnAnswerInBetweenEndTheRequestAtTheFirstTime) {
  lose_after_one();
  (void)reconnect();
  pump_.disconnect(lost_at_ + seconds(9), ended_);
  pump_.sweep(lost_at_ + seconds(1), unavailable("gone"), ended_);
  expect_one_applied(StatusCode::kUnavailable);
}

TEST_F(InsertPumpLosses, AfterAnAnswerExtendTheTimeToRetry) {
  lose_after_one();
  const auto link = reconnect();
  pump_.on_inserted(*link, went_in(first_), ended_);
  pump_.disconnect(lost_at_ + seconds(9), ended_);
  pump_.sweep(lost_at_ + seconds(1), unavailable("gone"), ended_);
  EXPECT_TRUE(ended_.empty());
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
