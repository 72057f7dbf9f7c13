// Clients over our own protocol that are lost while the server has samples for them.
#include <algorithm>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/store_connection.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "tests/support/items.h"
#include "tests/support/silent_link.h"

namespace reverie {
namespace {

struct NarrowLink final : testing::SilentLink {
  bool has_room() const override { return is_roomy; }

  bool is_roomy = true;
};

// Batches whose first part alone was sent, and a request that has drawn a part of its batch.
TEST(LostReader, UnsentBatchesOfALostClientReturnToTheirQueueInOrder) {
  constexpr std::uint32_t kRows = 300'000;  // 1.2 MB: a part has one or two items
  constexpr ItemKey kItems = 10;
  TableOptions queue = testing::table_options("q", "Fifo", "Fifo", 100, RateLimiter::queue(100));
  queue.max_times_sampled = 1;
  queue.undoes_unsent = true;
  const std::shared_ptr<LocalService> service = LocalService::open({queue}, {}).value();
  const auto store = std::make_shared<PeerStore>(service, Clock::system());
  store->tables["q"] = {wire::ColumnNames::of(queue.signature), true, false};
  const auto link = std::make_shared<NarrowLink>();
  const auto connection = StoreConnection::make(
      store, [&](const std::weak_ptr<StoreLinkEvents>&, const FrameLimits&) { return link; },
      nullptr, nullptr);
  Greeting greeting;
  greeting.name = store_wire::kClientName;
  Resumption resumption;
  resumption.session = 1;
  connection->on_frames({{{FrameKind::kHello, 0, 0, 0}, encode(greeting)},
                         {{FrameKind::kResume, 0, 0, 0}, encode(resumption)}});
  for (std::uint64_t id = 1; id <= 3; ++id) {
    store_wire::SampleMessage ask;
    ask.table = "q";
    ask.count = ask.min_count = 4;
    connection->on_frames(
        {{{FrameKind::kCall, static_cast<std::uint64_t>(store_wire::StoreCall::kSample), 0, id},
          *store_wire::message_of(store_wire::write_sample(ask))}});
  }
  link->is_roomy = false;
  for (ItemKey key = 1; key <= kItems; ++key) {
    Item item = testing::make_item(key, 1.0, static_cast<float>(key), kRows);
    ASSERT_TRUE(insert_and_wait(*service, {"q", {&item, 1}}).status.ok());
  }
  connection->on_lost(unavailable("it was killed"));
  SampleRequest rest;
  rest.table = "q";
  rest.count = rest.min_count = kItems;
  rest.deadline = Clock::system().now();
  const SampleResult left = sample_and_wait(*service, std::move(rest));
  EXPECT_GE(left.batch.size(), 6u);
  EXPECT_TRUE(std::ranges::is_sorted(left.batch.keys()));
  EXPECT_EQ(left.batch.keys().back(), kItems);
}

}  // namespace
}  // namespace reverie
