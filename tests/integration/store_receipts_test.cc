// Receipts of one client of a real store, and memory that it reads; the rest is in
// src/reverie/adapters/peer/store_connection_test.cc.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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
  bool offer_map(const std::shared_ptr<SharedArena>&) override { return is_mapped; }

  std::function<void()> when_answered;
  bool is_mapped = false;
};

Frame frame_of(FrameKind kind, Message message) {
  Frame frame;
  frame.header.kind = kind;
  frame.message = std::move(message);
  return frame;
}

class StoreReceipts : public ::testing::Test {
 protected:
  StoreReceipts() {
    for (ItemKey key = 1; key <= 3; ++key) {
      Item item = testing::make_item(key, 1.0);
      EXPECT_TRUE(insert_and_wait(*inner_, {"t", {&item, 1}}).status.ok());
    }
    store_->tables["t"].keeps_receipts = true;
    store_->tables["empty"].keeps_receipts = true;
    Greeting greeting;
    greeting.name = std::string(store_wire::kClientName);
    connection_->on_frames({frame_of(FrameKind::kHello, encode(greeting))});
    Resumption resumption;
    resumption.session = 1;
    connection_->on_frames({frame_of(FrameKind::kResume, encode(resumption))});
    EXPECT_TRUE(connection_->is_open());
  }
  ~StoreReceipts() override {
    connection_->on_lost(unavailable("the client is gone"));
    service_->close();
  }
  void sample(std::uint64_t id, std::string_view table, std::size_t count,
              std::vector<std::uint64_t> received = {}) {
    store_wire::SampleMessage ask;
    ask.table = table;
    ask.count = ask.min_count = count;
    ask.received = std::move(received);
    Frame asked =
        frame_of(FrameKind::kCall, *store_wire::message_of(store_wire::write_sample(ask)));
    asked.header.sequence = static_cast<std::uint64_t>(StoreCall::kSample);
    asked.header.call = id;
    connection_->on_frames({asked});
  }

  const std::shared_ptr<LocalService> inner_ =
      LocalService::open(
          {testing::table_options("t", "Fifo", "Fifo", 10, RateLimiter::min_size(1)),
           testing::table_options("empty", "Fifo", "Fifo", 10, RateLimiter::min_size(1))},
          {})
          .value();
  const std::shared_ptr<CountedReceipts> service_ = std::make_shared<CountedReceipts>(inner_);
  const std::shared_ptr<PeerStore> store_ = std::make_shared<PeerStore>(service_, Clock::system());
  const std::shared_ptr<HookedLink> link_ = std::make_shared<HookedLink>();
  const std::shared_ptr<StoreConnection> connection_ = StoreConnection::make(
      store_, [this](const std::weak_ptr<StoreLinkEvents>&, const FrameLimits&) { return link_; },
      nullptr, nullptr);
};

// A batch of two parts: the client is lost once the first has been sent, on the thread of the link.
TEST_F(StoreReceipts, DrawsThatAreSentWhileTheClientIsLostAreNotKeptForItsReceipt) {
  int answers = 0;
  link_->when_answered = [&] {
    if (++answers == 1) connection_->on_lost(unavailable("the client is gone"));
  };
  sample(1, "t", PackedWriter::kItemsMax + 1);
  EXPECT_GE(answers, 1);
  EXPECT_EQ(service_->open_draws, 0u);
}

TEST_F(StoreReceipts, ASampleThatWaitsHoldsBackNoReceiptOfLaterOnes) {
  sample(1, "empty", 1);
  sample(2, "t", 1);
  sample(3, "t", 1);
  EXPECT_EQ(service_->open_draws, 2u);
  sample(4, "t", 1, {3});
  EXPECT_EQ(service_->open_draws, 2u) << "those of 2 and 4";
  sample(5, "t", 1, {2, 4, 1, 77});
  EXPECT_EQ(service_->open_draws, 1u);
}

// A sample in the arena of the server's chunks, which the client maps.
class StoreLeases : public StoreReceipts {
 protected:
  void SetUp() override {
    store_->leased_bytes_max = std::size_t{1} << 30;
    link_->is_mapped = true;
    constexpr std::uint32_t kRows = 10'000;
    const Ref<Chunk> chunk =
        Chunk::open(testing::float_schema(), {}, kRows, 0, store_->arena).value();
    chunk->publish(kRows);
    Item item = testing::item_over(*chunk, 9, 1.0, 0, kRows);
    ASSERT_TRUE(insert_and_wait(*inner_, {"empty", {&item, 1}}).status.ok());
    sample(1, "empty", 1);
    ASSERT_GT(store_->leased_bytes.load(), 0u);
    ASSERT_NE(store_->arena.arena(), nullptr);
  }
};

// The client may read until it learns that its frames are refused.
TEST_F(StoreLeases, AreNotReusedAfterAClientWhoseFramesAreRefused) {
  connection_->on_lost(resource_exhausted("a frame is too large"));
  EXPECT_EQ(store_->leased_bytes.load(), 0u);
  EXPECT_EQ(store_->arena.arena(), nullptr);
}

TEST_F(StoreLeases, AreReusedOnceTheClientIsGone) {
  connection_->on_lost(unavailable("the client is gone"));
  EXPECT_EQ(store_->leased_bytes.load(), 0u);
  EXPECT_NE(store_->arena.arena(), nullptr);
}

}  // namespace
}  // namespace reverie
