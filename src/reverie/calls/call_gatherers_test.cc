#include "reverie/calls/call_gatherers.h"

#include <optional>
#include <set>

#include <gtest/gtest.h>

namespace reverie {
namespace {

Request request_of(std::uint64_t call) {
  Request request;
  request.id = {1, call};
  return request;
}

TEST(CallGatherers, WithdrawARequestFromTheGathererThatHasIt) {
  CallGatherers all;
  const auto first =
      std::make_shared<CallGatherer>(CallGatherer::Options{.size = 9, .max_wait = std::nullopt});
  auto second =
      std::make_shared<CallGatherer>(CallGatherer::Options{.size = 9, .max_wait = std::nullopt});
  all.add(first);
  all.add(second);
  for (const std::uint64_t call : {1, 2}) {
    Request request = request_of(call);
    (void)(call == 1 ? first : second)->add(request);
  }
  std::set<InboundId> gone = {{1, 2}, {1, 3}};
  all.withdraw(gone);
  EXPECT_EQ(gone, (std::set<InboundId>{{1, 3}})) << "what waits in no gatherer is left";
  EXPECT_EQ(first->count(), 1u);
  EXPECT_EQ(second->count(), 0u);
  second.reset();
  gone = {{1, 1}, {1, 2}};
  all.withdraw(gone);
  EXPECT_EQ(gone, (std::set<InboundId>{{1, 2}})) << "one that has ended is left out";
  EXPECT_EQ(first->count(), 0u);
}

TEST(CallGatherers, CloseEveryGatherer) {
  CallGatherers all;
  const auto gatherer = std::make_shared<CallGatherer>(CallGatherer::Options{});
  all.add(gatherer);
  all.close();
  EXPECT_TRUE(gatherer->is_closed());
  Request request = request_of(1);
  EXPECT_FALSE(gatherer->add(request));
}

}  // namespace
}  // namespace reverie
