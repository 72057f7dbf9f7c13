// What its clients do right is tested in tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/store_connection.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/insert_ledger.h"
#include "tests/support/fake_replay_service.h"
#include "tests/support/flaky_service.h"
#include "tests/support/items.h"
#include "tests/support/silent_link.h"

namespace reverie {
namespace {

using store_wire::StoreCall;
using testing::FlakyService;

// Keeps what is sent and posted.
struct RecordedLink final : testing::SilentLink {
  void send(const FrameHeader& header, std::shared_ptr<const Message> message) override {
    sent.emplace_back(header, std::move(message));
  }
  void hang_up() override { is_ended = true; }
  bool has_room() const override { return is_roomy; }
  bool is_over() const override { return is_ended; }
  void post(std::function<void()> work) override { posted.push_back(std::move(work)); }

  std::vector<std::pair<FrameHeader, std::shared_ptr<const Message>>> sent;
  std::vector<std::function<void()>> posted;
  bool is_roomy = true;
  bool is_ended = false;
};

// A client that has made the handshake with a server whose table has no items yet.
class StoreConnectionTest : public ::testing::Test {
 protected:
  StoreConnectionTest() {
    service_->set(FlakyService::Mode::kSilent);
    connection_ = StoreConnection::make(
        std::make_shared<PeerStore>(service_, clock_),
        [this](const std::weak_ptr<StoreLinkEvents>&, const FrameLimits&) { return link_; },
        nullptr, nullptr);
    Greeting greeting;
    greeting.name = store_wire::kClientName;
    Resumption resumption;
    resumption.session = 1;
    connection_->on_frames({{{FrameKind::kHello, 0, 0, 0}, encode(greeting)},
                            {{FrameKind::kResume, 0, 0, 0}, encode(resumption)}});
    EXPECT_TRUE(connection_->is_open());
  }
  ~StoreConnectionTest() override { connection_->end_now({}); }

  void ask_for_sample(std::uint64_t id) {
    const FrameHeader header{FrameKind::kCall, static_cast<std::uint64_t>(StoreCall::kSample), 0,
                             id};
    store_wire::SampleMessage ask;
    ask.table = "t";
    ask.count = ask.min_count = 1;
    connection_->on_frames({{header, *store_wire::message_of(store_wire::write_sample(ask))}});
  }
  void run_posted() {
    for (const auto& work : std::exchange(link_->posted, {})) work();
  }
  void expect_refused_by_number(std::uint64_t id) {
    ASSERT_TRUE(link_->is_ended);
    EXPECT_EQ(link_->sent.back().first.kind, FrameKind::kRefused);
    const Status why = store_wire::read_status(link_->sent.back().second->payload);
    EXPECT_EQ(why.code(), StatusCode::kDataLoss);
    EXPECT_NE(why.message().find(std::to_string(id)), std::string::npos) << why.to_string();
  }

  ManualClock clock_;
  const std::shared_ptr<FlakyService> service_ =
      std::make_shared<FlakyService>(std::make_shared<FakeReplayService>());
  const std::shared_ptr<RecordedLink> link_ = std::make_shared<RecordedLink>();
  std::shared_ptr<StoreConnection> connection_;
};

TEST_F(StoreConnectionTest, ANumberThatIsUsedTwiceEndsIt) {
  ask_for_sample(7);
  ask_for_sample(8);
  run_posted();
  ASSERT_FALSE(link_->is_ended);
  ask_for_sample(7);
  run_posted();
  expect_refused_by_number(7);
}

TEST_F(StoreConnectionTest, ANumberThatIsUsedTwiceWhileNothingCanBeSentEndsIt) {
  link_->is_roomy = false;
  ask_for_sample(7);
  ask_for_sample(7);
  run_posted();
  ASSERT_FALSE(link_->is_ended);
  link_->is_roomy = true;
  connection_->on_room();
  run_posted();
  expect_refused_by_number(7);
}

// A client with writers 1 and 2, whose chunks may take 1 MiB each.
class StoreConnectionWriters : public ::testing::Test {
 protected:
  void connect(bool knows_ended_writers) {
    service_->add_table("t");
    store_->kept_bytes_max = std::size_t{1} << 20;
    store_->sessions = insert_sessions_of(*service_, clock_);
    connection_ = StoreConnection::make(
        store_, [this](const std::weak_ptr<StoreLinkEvents>&, const FrameLimits&) { return link_; },
        nullptr, nullptr);
    Greeting greeting;
    greeting.name = store_wire::kClientName;
    Resumption resumption;
    resumption.session = 1;
    resumption.receiver_session = knows_ended_writers ? store_wire::kKnowsEndedWriters : 0;
    connection_->on_frames({{{FrameKind::kHello, 0, 0, 0}, encode(greeting)},
                            {{FrameKind::kResume, 0, 0, 0}, encode(resumption)}});
    open(1, /*ordinal=*/1);
    open(2, /*ordinal=*/1);
  }
  ~StoreConnectionWriters() override { connection_->end_now({}); }

  void call(StoreCall kind, const Payload& payload) {
    const FrameHeader header{FrameKind::kCall, static_cast<std::uint64_t>(kind), 0, 0};
    connection_->on_frames({{header, *store_wire::message_of(payload)}});
    for (const auto& work : std::exchange(link_->posted, {})) work();
  }
  void open(std::uint32_t writer, std::uint64_t ordinal) {
    const std::string session(32, static_cast<char>('a' + writer));
    call(StoreCall::kOpenWriter, store_wire::write_note({writer, ordinal, session}));
    ledgers_[writer].restart();
  }
  void insert(std::uint32_t writer, std::uint64_t number, std::uint32_t rows = 1) {
    InsertLedger& ledger = ledgers_[writer];
    ledger.begin(writer, number, number);
    ledger.add(testing::make_item(++last_key_, 1.0, 0, rows), "t", /*begins=*/true, {});
    call(StoreCall::kInsert, ledger.finish());  // of one column: its bulk is one piece, if any
  }
  void insert_too_large(std::uint32_t writer, std::uint64_t number) {
    insert(writer, number, 300'000);
  }
  // The last answer about inserts.
  store_wire::Inserted answer() {
    for (auto sent = link_->sent.rbegin(); sent != link_->sent.rend(); ++sent) {
      if (sent->first.kind != FrameKind::kAnswer) continue;
      return store_wire::read_inserted(sent->second->payload).value();
    }
    ADD_FAILURE() << "there is no answer";
    return {};
  }
  std::size_t size() { return service_->size("t"); }

  ManualClock clock_;
  const std::shared_ptr<FakeReplayService> service_ = std::make_shared<FakeReplayService>();
  const std::shared_ptr<PeerStore> store_ = std::make_shared<PeerStore>(service_, clock_);
  const std::shared_ptr<RecordedLink> link_ = std::make_shared<RecordedLink>();
  std::shared_ptr<StoreConnection> connection_;
  std::map<std::uint32_t, InsertLedger> ledgers_;
  ItemKey last_key_ = 0;
};

TEST_F(StoreConnectionWriters, OneThatMeetsABoundEndsAloneAndCanBeOpenedAgain) {
  connect(/*knows_ended_writers=*/true);
  insert_too_large(1, 1);
  EXPECT_EQ(answer().writer, 1u);
  EXPECT_EQ(answer().ended.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->sessions->count(), 2u);
  const std::size_t sent = link_->sent.size();
  // Its client has sent these before it knew.
  insert(1, 2);
  call(StoreCall::kWithdraw, store_wire::write_note({1, 2, {}}));
  EXPECT_EQ(link_->sent.size(), sent);
  EXPECT_EQ(size(), 0u);

  insert(2, 1);
  EXPECT_EQ(answer().writer, 2u);
  EXPECT_EQ(size(), 1u);
  open(1, /*ordinal=*/2);
  insert(1, 3);
  EXPECT_EQ(answer().writer, 1u);
  EXPECT_TRUE(answer().ended.ok());
  EXPECT_EQ(size(), 2u);
  EXPECT_FALSE(link_->is_ended);
}

TEST_F(StoreConnectionWriters, OneThatHasEndedCanAlsoBeEndedByItsClient) {
  connect(/*knows_ended_writers=*/true);
  insert_too_large(1, 1);
  EXPECT_NE(connection_->idle_since(), TimePoint::max());
  call(StoreCall::kEndWriter, store_wire::write_note({1, 0, {}}));
  open(1, /*ordinal=*/2);
  insert(1, 2);
  EXPECT_EQ(size(), 1u);
  EXPECT_FALSE(link_->is_ended);
}

TEST_F(StoreConnectionWriters, OfAnEarlierClientEndWithTheConnection) {
  connect(/*knows_ended_writers=*/false);
  insert_too_large(1, 1);
  ASSERT_TRUE(link_->is_ended);
  EXPECT_EQ(link_->sent.back().first.kind, FrameKind::kRefused);
  EXPECT_EQ(store_wire::read_status(link_->sent.back().second->payload).code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace reverie
