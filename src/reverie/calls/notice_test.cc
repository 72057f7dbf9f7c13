#include "reverie/calls/notice.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace reverie {
namespace {

std::shared_ptr<Peer> noticing_peer(const std::string& name) {
  Peer::Options options;
  options.name = name;
  return Peer::make(options).value();
}

StatusCode told(Peer& caller) {
  const TimePoint until = Clock::system().now() + std::chrono::seconds(30);
  return caller.sync("told", "over", Payload(), {until, false}).status.code();
}

TEST(Notice, IsGivenOnceItsFunctionIsCalledAndLeavesWithItsOwner) {
  const std::shared_ptr<Peer> peer = noticing_peer("told");
  const std::shared_ptr<Peer> caller = noticing_peer("caller");
  ASSERT_TRUE(caller->connect(peer->listen("127.0.0.1:0").value()).ok());
  std::shared_ptr<Notice> notice = Notice::open(peer, "over").value();
  EXPECT_FALSE(notice->is_given());
  expect_refused(Notice::open(peer, "over").status(), StatusCode::kAlreadyExists, {"over"});
  EXPECT_EQ(told(*caller), StatusCode::kOk) << "the refused one left it alone";
  EXPECT_TRUE(notice->is_given());
  notice.reset();
  EXPECT_EQ(told(*caller), StatusCode::kNotFound);
  EXPECT_TRUE(Notice::open(peer, "over").ok());
}

}  // namespace
}  // namespace reverie
