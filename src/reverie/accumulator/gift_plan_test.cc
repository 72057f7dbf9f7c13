#include "reverie/accumulator/gift_plan.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

TimePoint at(std::int64_t time_ms) {
  return TimePoint{} + std::chrono::milliseconds(time_ms);
}

std::vector<std::string> receivers(const GiftPlan& plan, const std::string& giver) {
  std::vector<std::string> names;
  for (const AccumulatorGift& gift : plan.of(giver)) names.push_back(gift.to);
  return names;
}

using Names = std::vector<std::string>;

TEST(GiftPlan, AsksMembersInTurnAndTheLeaderLast) {
  GiftPlan plan("leader");
  EXPECT_TRUE(plan.assign(at(0)).empty());
  plan.on_report("a", 0, true, at(0));
  plan.on_report("b", 0, true, at(0));
  for (const char* name : {"p", "q", "r", "s"}) plan.on_report(name, 1, false, at(1));
  EXPECT_EQ(plan.waits_since(), at(1));
  EXPECT_EQ(plan.assign(at(1)), (Names{"a", "b", "leader"}));
  EXPECT_EQ(receivers(plan, "a"), (Names{"p", "s"}));
  EXPECT_EQ(receivers(plan, "b"), Names{"q"});
  EXPECT_EQ(receivers(plan, "leader"), Names{"r"});
  EXPECT_TRUE(plan.assign(at(2)).empty());
}

TEST(GiftPlan, AsksAnotherMemberWhenTheFirstTakesTooLong) {
  GiftPlan plan("leader");
  plan.on_report("a", 0, true, at(0));
  plan.on_report("p", 1, false, at(0));
  EXPECT_EQ(plan.assign(at(0)), Names{"a"});
  EXPECT_EQ(plan.next_tick(), at(0) + GiftPlan::kPatience);
  EXPECT_EQ(plan.assign(plan.next_tick()), (Names{"a", "leader"}));
  EXPECT_TRUE(plan.of("a").empty());
  EXPECT_EQ(receivers(plan, "leader"), Names{"p"});
  plan.on_gifts(plan.of("leader"));
  EXPECT_TRUE(plan.of("leader").empty());
  EXPECT_EQ(plan.next_tick(), TimePoint::max());
  EXPECT_EQ(plan.waits_since(), TimePoint::max());
}

TEST(GiftPlan, AsksAgainWhenAGiftIsLostAndWhenAMemberNeedsTheModelAgain) {
  GiftPlan plan("leader");
  plan.on_report("a", 0, true, at(0));
  plan.on_report("p", 1, false, at(0));
  EXPECT_EQ(plan.assign(at(0)), Names{"a"});
  std::vector<AccumulatorGift> gifts = plan.of("a");
  plan.on_gifts(gifts);
  EXPECT_TRUE(plan.assign(at(10)).empty());
  gifts[0].is_lost = true;
  plan.on_gifts(gifts);
  EXPECT_EQ(plan.assign(at(10)), (Names{"a", "leader"}));
  EXPECT_EQ(receivers(plan, "leader"), Names{"p"});
  plan.on_gifts(gifts);  // a repeated message
  EXPECT_EQ(receivers(plan, "leader"), Names{"p"});
  plan.on_gifts(plan.of("leader"));
  plan.on_report("p", 1, true, at(20));
  EXPECT_TRUE(plan.assign(at(1000)).empty());
  plan.on_report("p", 2, false, at(2000));  // it no longer has the model
  plan.on_report("p", 1, true, at(2001));   // a report that comes late
  EXPECT_EQ(plan.waits_since(), at(2000));
  EXPECT_EQ(plan.assign(at(2000)), (Names{"a", "leader"}));
  EXPECT_EQ(receivers(plan, "a"), Names{"p"});
}

TEST(GiftPlan, GiveToAllServesWaitingMembers) {
  GiftPlan plan("leader");
  plan.on_report("a", 0, true, at(0));
  plan.on_report("p", 1, false, at(0));
  EXPECT_EQ(plan.assign(at(0)), Names{"a"});
  const std::vector<AccumulatorGift> gifts = plan.give_to_all({"a", "leader", "p"});
  ASSERT_EQ(gifts.size(), 2u);
  EXPECT_EQ(gifts[0].to, "a");
  EXPECT_EQ(gifts[0].number, 0u);
  EXPECT_EQ(gifts[1].to, "p");
  plan.on_gifts(gifts);
  EXPECT_EQ(plan.waits_since(), TimePoint::max());
}

}  // namespace
}  // namespace reverie
