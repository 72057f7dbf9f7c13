// Receipts of one client of a real store; the rest is in
// src/reverie/adapters/peer/store_connection_test.cc.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/store_connection.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "tests/support/forwarding_service.h"
#include "tests/support/items.h"
#include "tests/support/silent_link.h"

namespace reverie {
namespace {

using store_wire::StoreCall;

// A store that counts the draws whose receipt it awaits.
class CountedReceipts final : public testing::ForwardingService {
 public:
  using ForwardingService::ForwardingService;
  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    return inner_->sample(std::move(request), [this, done = std::move(done)](SampleResult result) {
      open_draws += result.batch.size();
      done(std::move(result));
    });
  }
  void receive(std::string_view, std::span<const DrawId> draws) override {
    open_draws -= draws.size();
  }

  std::size_t open_draws = 0;
};

// Calls the test with each answer.
class HookedLink final : public testing::SilentLink {
 public:
  void send(const FrameHeader& header, std::shared_ptr<const Message>) override {
    if (header.kind == FrameKind::kAnswer && when_answered) when_answered();
  }

  std::function<void()> when_answered;
};

Frame frame_of(FrameKind kind, Message message) {
  Frame frame;
  frame.header.kind = kind;
  frame.message = std::move(message);
  return frame;
}

// A batch of two parts: the client is lost once the first has been sent, on the thread of the link.
TEST(StoreReceipts, DrawsThatAreSentWhileTheClientIsLostAreNotKeptForItsReceipt) {
  constexpr std::size_t kCount = PackedWriter::kItemsMax + 1;
  const auto inner =
      LocalService::open(
          {testing::table_options("t", "Fifo", "Fifo", 10, RateLimiter::min_size(1))}, {})
          .value();
  Item item = testing::make_item(1, 1.0);
  ASSERT_TRUE(insert_and_wait(*inner, {"t", {&item, 1}}).status.ok());
  const auto service = std::make_shared<CountedReceipts>(inner);
  const auto store = std::make_shared<PeerStore>(service, Clock::system());
  store->tables["t"].keeps_receipts = true;
  std::shared_ptr<HookedLink> link;
  const auto connection = StoreConnection::make(
      store,
      [&](const std::weak_ptr<StoreLinkEvents>&, const FrameLimits&) {
        link = std::make_shared<HookedLink>();
        return link;
      },
      nullptr, nullptr);

  Greeting greeting;
  greeting.name = std::string(store_wire::kClientName);
  connection->on_frames({frame_of(FrameKind::kHello, encode(greeting))});
  Resumption resumption;
  resumption.session = 1;
  connection->on_frames({frame_of(FrameKind::kResume, encode(resumption))});
  ASSERT_TRUE(connection->is_open());
  int answers = 0;
  link->when_answered = [&] {
    if (++answers == 1) connection->on_lost(unavailable("the client is gone"));
  };
  store_wire::SampleMessage ask;
  ask.table = "t";
  ask.count = ask.min_count = kCount;
  Frame asked = frame_of(FrameKind::kCall, *store_wire::message_of(store_wire::write_sample(ask)));
  asked.header.sequence = static_cast<std::uint64_t>(StoreCall::kSample);
  asked.header.call = 1;
  connection->on_frames({asked});
  EXPECT_GE(answers, 1);
  EXPECT_EQ(service->open_draws, 0u);
  service->close();
}

}  // namespace
}  // namespace reverie
