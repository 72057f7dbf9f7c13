// A writer's messages as the server takes them: what no client of ours sends, and when it answers.
#include "reverie/adapters/peer/served_writer.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/insert_ledger.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "tests/support/forwarding_service.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

// A connection without a client: keeps what the writer posts, and counts the items in its answers.
class QuietOwner final : public ServedWriter::Owner {
 public:
  void send_inserted(const store_wire::Inserted& inserted) override {
    for (const auto& run : inserted.in) in += run.count;
    for (const auto& failure : inserted.failed) failed.push_back(failure.first);
    if (!inserted.ended.ok()) ended.push_back(inserted.ended);
  }
  bool ends_writers_alone() const override { return knows_ended_writers; }
  void end(const Status&) override {}
  void post(std::function<void()> work) override { posted_.push_back(std::move(work)); }
  void run_posted() {
    for (const auto& work : std::exchange(posted_, {})) work();
  }

  bool knows_ended_writers = false;
  std::uint64_t in = 0;
  std::vector<std::uint64_t> failed;
  std::vector<Status> ended;

 private:
  std::vector<std::function<void()>> posted_;
};

// Its log has failed since an item was inserted.
class FailedLog final : public testing::ForwardingService {
 public:
  using ForwardingService::ForwardingService;
  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    return inner_->insert(request, [done = std::move(done)](InsertResult result) {
      result.status = data_loss("the journal has failed");
      result.is_unlogged = true;
      done(std::move(result));
    });
  }
};

class ServedWriterTest : public ::testing::Test {
 protected:
  ServedWriterTest() {
    StoreOptions options;
    options.clock = &clock_;
    TableOptions queue = testing::table_options("full", "Fifo", "Fifo", 10, RateLimiter::queue(1));
    queue.max_times_sampled = 1;
    service_ = LocalService::open({queue}, options).value();
    store_ = std::make_shared<PeerStore>(service_, clock_);
    store_->kept_bytes_max = std::size_t{1} << 20;
    store_->sessions = insert_sessions_of(*service_, clock_);
    writer_ = std::make_shared<ServedWriter>(store_, owner_, 1, std::string(32, 'a'));
    EXPECT_TRUE(writer_->begin(1));
  }
  ~ServedWriterTest() override { writer_->end(); }

  // A message with `count` requests of one item each, numbered from `first_number`.
  Status send(std::uint64_t first_number, std::uint64_t count = 1) {
    ledger_.begin(1, first_number, 1);
    for (std::uint64_t i = 0; i < count; ++i) {
      ledger_.add(testing::make_item(++last_key_, 1.0), "full", /*begins=*/true, {});
    }
    return writer_->take(ledger_.finish());
  }
  // A message whose item takes more memory than a writer may keep.
  Status send_large(std::uint64_t first_number) {
    ledger_.begin(1, first_number, 1);
    ledger_.add(testing::make_item(++last_key_, 1.0, 0, 300'000), "full", /*begins=*/true, {});
    return writer_->take(flat(ledger_.finish()));
  }
  // As it arrives: with the bulk in one piece.
  static Payload flat(Payload payload) {
    auto bulk = std::make_shared<std::vector<std::byte>>();
    for (const BulkPiece& piece : payload.bulk) {
      bulk->resize(Payload::padded(bulk->size()));
      bulk->insert(bulk->end(), piece.bytes.begin(), piece.bytes.end());
    }
    payload.bulk = {{*bulk, bulk}};
    return payload;
  }
  std::int64_t pending_inserts() {
    std::int64_t pending = 0;
    service_->info([&](const Result<std::vector<TableInfo>>& infos) {
      pending = infos.value().front().pending_inserts;
    });
    return pending;
  }
  // Makes room for an item that waits.
  void draw() {
    SampleRequest request;
    request.table = "full";
    request.deadline = TimePoint{0};
    std::size_t drawn = 0;
    service_->sample(std::move(request),
                     [&](const SampleResult& result) { drawn = result.batch.size(); });
    EXPECT_EQ(drawn, 1u);
    owner_->run_posted();
  }

  ManualClock clock_;
  std::shared_ptr<LocalService> service_;
  std::shared_ptr<PeerStore> store_;
  std::shared_ptr<QuietOwner> owner_ = std::make_shared<QuietOwner>();
  std::shared_ptr<ServedWriter> writer_;
  InsertLedger ledger_;
  ItemKey last_key_ = 0;
};

TEST_F(ServedWriterTest, AWaitingInsertIsAnsweredWhenItsTableHasRoom) {
  ASSERT_TRUE(send(1, 3).ok());
  EXPECT_EQ(owner_->in, 1u);
  draw();
  EXPECT_EQ(owner_->in, 2u);
  draw();
  EXPECT_EQ(owner_->in, 3u);
}

TEST_F(ServedWriterTest, ANumberThatCameBeforeIsRefusedThoughItsInsertWaits) {
  ASSERT_TRUE(send(1, 4).ok());
  for (const std::uint64_t number : {2u, 4u, 0u}) {
    const Status status = send(number);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
    EXPECT_NE(status.message().find("the next is 5"), std::string::npos) << status.message();
  }
  for (int i = 0; i < 3; ++i) draw();
  EXPECT_EQ(owner_->in, 4u) << "those that wait are inserted";
}

// The connection breaks before its answer, so the writer repeats the item on the next one.
TEST_F(ServedWriterTest, AnItemThatTheLogLacksIsNotConfirmedWhenItIsRepeated) {
  const auto store = std::make_shared<PeerStore>(std::make_shared<FailedLog>(service_), clock_);
  store->kept_bytes_max = std::size_t{1} << 20;
  store->sessions = store_->sessions;
  const auto insert = [&](std::uint64_t ordinal) {
    const auto owner = std::make_shared<QuietOwner>();
    const auto writer = std::make_shared<ServedWriter>(store, owner, 1, std::string(32, 'b'));
    EXPECT_TRUE(writer->begin(ordinal));
    InsertLedger ledger;
    ledger.begin(1, 1, 1);
    ledger.add(testing::make_item(7, 1.0), "full", /*begins=*/true, {});
    EXPECT_TRUE(writer->take(ledger.finish()).ok());
    owner->run_posted();
    writer->end();
    return owner->in;
  };
  EXPECT_EQ(insert(1), 0u);
  EXPECT_EQ(insert(2), 0u);
}

TEST_F(ServedWriterTest, AnInsertThatIsWithdrawnBeforeItIsReadIsNotDone) {
  writer_->pause_reading();
  ASSERT_TRUE(send(1, 4).ok());
  writer_->withdraw(1);
  writer_->withdraw(3);
  writer_->resume_reading();
  owner_->run_posted();
  EXPECT_EQ(owner_->failed, (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(owner_->in, 1u);
  draw();
  EXPECT_EQ(owner_->in, 2u);
  ASSERT_TRUE(send(5).ok());
  draw();
  EXPECT_EQ(owner_->in, 3u);
}

TEST_F(ServedWriterTest, ABoundEndsItAloneAndWithdrawsItsWaitingItems) {
  owner_->knows_ended_writers = true;
  ASSERT_TRUE(send(1, 3).ok());
  ASSERT_TRUE(send_large(4).ok()) << "the connection goes on";
  ASSERT_EQ(owner_->ended.size(), 1u);
  EXPECT_EQ(owner_->ended.front().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(owner_->in, 1u);
  EXPECT_EQ(owner_->failed, (std::vector<std::uint64_t>{3, 2})) << "the last is withdrawn first";
  EXPECT_EQ(pending_inserts(), 0);
  ASSERT_TRUE(send(5).ok()) << "what its client sent before it knew is dropped";
  draw();
  EXPECT_EQ(owner_->in, 1u);
  EXPECT_EQ(pending_inserts(), 0);

  // As its owner and its client continue.
  writer_->end();
  writer_ = std::make_shared<ServedWriter>(store_, owner_, 1, std::string(32, 'a'));
  ASSERT_TRUE(writer_->begin(2));
  ledger_.restart();
  ASSERT_TRUE(send(6).ok());
  EXPECT_EQ(owner_->in, 2u);
  EXPECT_EQ(owner_->ended.size(), 1u);
}

TEST_F(ServedWriterTest, ABoundIsAnErrorOfTheConnectionForAClientThatKnowsNoOtherEnd) {
  ASSERT_TRUE(send(1, 2).ok());
  EXPECT_EQ(send_large(3).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(owner_->ended.empty());
  EXPECT_EQ(pending_inserts(), 1) << "until the connection ends the writer";
}

TEST_F(ServedWriterTest, MessagesThatItHasNotReadAreDroppedWithIt) {
  owner_->knows_ended_writers = true;
  writer_->pause_reading();
  ASSERT_TRUE(send_large(1).ok());
  ASSERT_TRUE(send(2).ok());
  EXPECT_TRUE(owner_->ended.empty());
  writer_->resume_reading();
  owner_->run_posted();
  EXPECT_EQ(owner_->ended.size(), 1u);
  EXPECT_EQ(owner_->in, 0u);
}

TEST_F(ServedWriterTest, NumbersMayHaveGaps) {
  ASSERT_TRUE(send(1).ok());
  ASSERT_TRUE(send(7).ok());
  draw();
  EXPECT_EQ(owner_->in, 2u);
}

TEST_F(ServedWriterTest, NumbersThatBeginAgainAtZeroAreRefused) {
  const Status status = send(UINT64_MAX - 1, 2);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
  EXPECT_TRUE(send(UINT64_MAX - 2, 2).ok());
}

}  // namespace
}  // namespace reverie
