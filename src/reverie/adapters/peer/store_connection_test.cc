// What its clients do right is tested in tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/store_connection.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_replay_service.h"
#include "tests/support/flaky_service.h"
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

}  // namespace
}  // namespace reverie
