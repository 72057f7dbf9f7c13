// A member's logic by itself. tests/sim/groups_sim_test.cc tests it on a simulated network.
#include "reverie/group/group_core.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/group/gather_round.h"

namespace reverie {
namespace {

constexpr std::size_t kEarlyRoom = std::size_t{1} << 20;
constexpr std::uint64_t kCurrent = 5;
constexpr std::uint64_t kNext = 6;

// A member of a group of two, which the other one sends parts of rounds that have not begun here.
class GroupCoreTest : public ::testing::Test {
 protected:
  GroupCoreTest() : core_({.group = "g", .self = {"a", 1, 0}}, {}, kEarlyRoom) {
    core_.join(now_);
    for (const GroupCore::Outgoing& out : core_.take_outgoing()) {
      const Membership both{1, kCurrent, {{"a", 1, 0}, {"b", 2, 0}}};
      core_.on_answered(out.ticket, {CallResult::Kind::kAnswer, {}, encode(both)}, now_);
    }
    EXPECT_EQ(core_.membership().id, kCurrent);
    (void)core_.take_outgoing();
  }

  StatusCode send(std::uint64_t membership, const std::string& round, std::size_t value_bytes) {
    RoundMessage message;
    message.membership = membership;
    message.round = {round, 0};
    message.head.resize(value_bytes);
    Request request;
    request.id = {1, ++last_call_};
    request.caller = "b";
    request.message.payload = encode(message);
    core_.on_request(std::move(request), now_);
    const std::vector<GroupCore::Outgoing> out = core_.take_outgoing();
    EXPECT_EQ(out.size(), 1u);
    return out.front().kind == GroupCore::Outgoing::Kind::kFail ? out.front().error.code
                                                                : StatusCode::kOk;
  }
  // How many are kept until one is refused.
  std::size_t sent_until_refused(std::uint64_t membership, const std::string& round,
                                 std::size_t value_bytes) {
    std::size_t count = 0;
    while (count < kEarlyRoom) {
      const StatusCode code = send(membership, round, value_bytes);
      if (code != StatusCode::kOk) {
        EXPECT_EQ(code, StatusCode::kResourceExhausted);
        break;
      }
      ++count;
    }
    return count;
  }

  TimePoint now_{};
  GroupCore core_;
  std::uint64_t last_call_ = 0;
};

TEST_F(GroupCoreTest, BoundsWhatItKeepsForRoundsThatHaveNotBegun) {
  EXPECT_EQ(sent_until_refused(kCurrent, "x", 100'000), 10u);
  EXPECT_EQ(send(kNext, "x", 100'000), StatusCode::kResourceExhausted);
  // The round takes what was sent of it.
  const auto round = std::make_shared<GatherRound>("values", Payload(), 0, 0, 2);
  ASSERT_TRUE(core_.begin("x", kCurrent, round, TimePoint::max(), now_).ok());
  (void)core_.take_outgoing();
  EXPECT_EQ(sent_until_refused(kNext, "y", 100'000), 10u);
  // No membership followed to which it belongs.
  now_ = now_ + std::chrono::seconds(11);
  core_.tick(now_);
  (void)core_.take_outgoing();
  EXPECT_EQ(sent_until_refused(kCurrent, "y", 100'000), 10u);
}

TEST_F(GroupCoreTest, KeepsOneMessageOfAnySize) {
  EXPECT_EQ(sent_until_refused(kCurrent, "x", 2 * kEarlyRoom), 1u);
  EXPECT_EQ(send(kNext, "x", 0), StatusCode::kResourceExhausted);
}

TEST_F(GroupCoreTest, BoundsMessagesWithoutAnyValueToo) {
  EXPECT_LE(sent_until_refused(kNext, "x", 0), kEarlyRoom / 512);
  EXPECT_EQ(send(kCurrent, "x", 0), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace reverie
