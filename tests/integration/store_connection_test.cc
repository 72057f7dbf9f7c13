// The server's side of one client of a store, over a link that calls the test.
#include "reverie/adapters/peer/store_connection.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

using store_wire::StoreCall;

// A store that counts the draws whose receipt it awaits. Only samples come here.
class CountedReceipts final : public ReplayService {
 public:
  explicit CountedReceipts(std::shared_ptr<ReplayService> inner) : inner_(std::move(inner)) {}
  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    return inner_->sample(std::move(request), [this, done = std::move(done)](SampleResult result) {
      open_draws += result.batch.size();
      done(std::move(result));
    });
  }
  void receive(std::string_view, std::span<const DrawId> draws) override {
    open_draws -= draws.size();
  }
  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    return inner_->insert(request, std::move(done));
  }
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override {
    return inner_->mutate(request, std::move(done));
  }
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override {
    return inner_->lookup(request, std::move(done));
  }
  RequestId reset(std::string_view table, Done<Status> done) override {
    return inner_->reset(table, std::move(done));
  }
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    return inner_->info(std::move(done));
  }
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override {
    return inner_->why_blocked(table, std::move(done));
  }
  RequestId new_client(Done<Result<std::uint64_t>> done) override {
    return inner_->new_client(std::move(done));
  }
  void cancel(RequestId id) override { inner_->cancel(id); }
  void close() override { inner_->close(); }

  std::size_t open_draws = 0;

 private:
  const std::shared_ptr<ReplayService> inner_;
};

// A link whose other side does nothing.
class HookedLink final : public StoreLink {
 public:
  void start(std::string_view) override {}
  void trust() override {}
  void send(const FrameHeader& header, std::shared_ptr<const Message>) override {
    if (header.kind == FrameKind::kAnswer && when_answered) when_answered();
  }
  void hang_up() override {}
  bool has_room() const override { return true; }
  bool is_over() const override { return false; }
  std::string transport() override { return "nothing"; }
  bool offer_map(const std::shared_ptr<SharedArena>&) override { return false; }
  std::shared_ptr<const ArenaView> map() override { return nullptr; }
  bool look(const std::function<bool()>& is_done) override { return is_done(); }
  void post(std::function<void()>) override {}

  std::function<void()> when_answered;
};

Frame frame_of(FrameKind kind, Message message) {
  Frame frame;
  frame.header.kind = kind;
  frame.message = std::move(message);
  return frame;
}

// A batch of two parts: the client is lost once the first has been sent, on the thread of the link.
TEST(StoreConnection, DrawsThatAreSentWhileTheClientIsLostAreNotKeptForItsReceipt) {
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
