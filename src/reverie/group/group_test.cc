// Groups over real sockets on this machine. tests/sim/groups_sim_test.cc tests the rules on a
// simulated network.
#include "reverie/group/group.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/group/broker.h"
#include "reverie/group/membership.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"
#include "tests/support/eventually.h"
#include "tests/support/late_calls.h"

namespace reverie {
namespace {

TimePoint soon(double s = 30.0) {
  return Clock::system().now() + seconds(s);
}

std::shared_ptr<Peer> make_peer(const std::string& name) {
  Peer::Options options;
  options.name = name;
  Result<std::unique_ptr<Peer>> peer = Peer::make(options);
  EXPECT_TRUE(peer.ok()) << peer.status().to_string();
  return std::move(*peer);
}

class GroupTest : public ::testing::Test {
 protected:
  GroupTest() {
    broker_peer_ = make_peer("broker");
    auto broker = Broker::make(broker_peer_);
    EXPECT_TRUE(broker.ok());
    broker_ = std::move(*broker);
    const auto address = broker_peer_->listen("127.0.0.1:0");
    EXPECT_TRUE(address.ok());
    address_ = *address;
  }

  std::unique_ptr<Group> join(const std::string& name, std::int64_t sort_order = 0,
                              Group::Options options = {}) {
    auto peer = make_peer(name);
    EXPECT_TRUE(peer->connect(address_).ok());
    options.name = "g";
    options.sort_order = sort_order;
    auto group = Group::join(std::move(peer), options);
    EXPECT_TRUE(group.ok()) << group.status().to_string();
    return std::move(*group);
  }
  std::vector<std::unique_ptr<Group>> join_all(std::size_t count) {
    std::vector<std::unique_ptr<Group>> groups;
    for (std::size_t i = 0; i < count; ++i) groups.push_back(join("m" + std::to_string(i)));
    for (const auto& group : groups) EXPECT_TRUE(group->wait_members(count, soon()).ok());
    return groups;
  }

  std::shared_ptr<Peer> broker_peer_;
  std::unique_ptr<Broker> broker_;
  std::string address_;
};

std::vector<float> floats_of(const GroupRound& round) {
  std::vector<float> values(round.layout().pieces()[0].count);
  round.layout().unload(0, round.reduced()->bytes(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

Result<Group::RoundPtr> sum(Group& group, const std::vector<float>& values,
                            const std::string& name = "sum",
                            TimePoint deadline = TimePoint::max()) {
  const ReduceLeaf leaf{"x",
                        DType::kFloat32,
                        {static_cast<std::int64_t>(values.size())},
                        std::as_bytes(std::span(values))};
  return group.all_reduce(name, ReduceOp::kSum, {&leaf, 1}, deadline);
}

TEST_F(GroupTest, SumsArraysOfAnySize) {
  const auto groups = join_all(3);
  for (const std::size_t size : {0u, 1u, 1000u, 100'000u, 1'500'000u}) {
    std::vector<std::shared_ptr<GroupRound>> rounds;
    std::vector<std::vector<float>> values;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      values.emplace_back(size);
      std::iota(values[i].begin(), values[i].end(), static_cast<float>(i));
      auto round = sum(*groups[i], values[i]);
      ASSERT_TRUE(round.ok()) << round.status().to_string();
      std::fill(values[i].begin(), values[i].end(), 1e9f);  // the group has its own copy
      rounds.push_back(*round);
    }
    for (const auto& round : rounds) {
      const Status ended = round->wait(soon());
      ASSERT_TRUE(ended.ok()) << ended.to_string();
      const std::vector<float> got = floats_of(*round);
      for (std::size_t at = 0; at < size; at += 1 + at / 7) {
        ASSERT_EQ(got[at], 3.0f * static_cast<float>(at) + 3.0f) << at;
      }
    }
  }
}

TEST_F(GroupTest, GivesTheSameBytesThroughSharedMemoryAndOverCalls) {
  std::vector<std::vector<float>> results;
  for (const bool shares : {true, false}) {
    std::vector<std::unique_ptr<Group>> groups;
    for (int i = 0; i < 3; ++i) {
      Group::Options options;
      options.uses_shared_memory = shares || i == 1;  // one refusal is enough
      groups.push_back(join("m" + std::to_string(i), i, options));
    }
    for (const auto& group : groups) ASSERT_TRUE(group->wait_members(3, soon()).ok());
    EXPECT_FALSE(groups[0]->shares_memory().has_value());
    for (const std::size_t size : {7u, 300'000u}) {
      std::vector<std::shared_ptr<GroupRound>> rounds;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        std::vector<float> values(size);
        for (std::size_t at = 0; at < size; ++at) {
          values[at] = 1.0f / static_cast<float>(1 + at + 1000 * i);
        }
        auto round = sum(*groups[i], values);
        ASSERT_TRUE(round.ok()) << round.status().to_string();
        rounds.push_back(*round);
      }
      for (const auto& round : rounds) {
        const Status ended = round->wait(soon());
        ASSERT_TRUE(ended.ok()) << ended.to_string();
        ASSERT_EQ(floats_of(*round), floats_of(*rounds[0]));
      }
      results.push_back(floats_of(*rounds[0]));
    }
    for (const auto& group : groups) EXPECT_EQ(group->shares_memory(), shares);
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

// Members that claim several hosts: shared memory is used within a host, calls between hosts.
TEST_F(GroupTest, ReducesWithinEachHostAndThenBetweenHosts) {
  const std::vector<std::string> hosts = {"x", "y", "x", "z", "y", "x", "y"};
  std::vector<std::vector<std::vector<float>>> runs;
  for (int run = 0; run < 2; ++run) {
    std::vector<std::unique_ptr<Group>> groups;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      Group::Options options;
      options.host = hosts[i];
      groups.push_back(join(format("m{}", i), static_cast<std::int64_t>(i), options));
    }
    for (const auto& group : groups) {
      ASSERT_TRUE(group->wait_members(hosts.size(), soon()).ok());
    }
    std::vector<std::vector<float>>& results = runs.emplace_back();
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax}) {
      for (const std::size_t size : {0u, 5u, 1000u, 700'000u}) {
        std::vector<std::shared_ptr<GroupRound>> rounds;
        for (std::size_t i = 0; i < groups.size(); ++i) {
          std::vector<float> values(size);
          for (std::size_t at = 0; at < size; ++at) {
            values[at] = static_cast<float>(at % 1000) + 0.1f * static_cast<float>(i);
          }
          const ReduceLeaf leaf{"x",
                                DType::kFloat32,
                                {static_cast<std::int64_t>(size)},
                                std::as_bytes(std::span(values))};
          auto round = groups[i]->all_reduce("r", op, {&leaf, 1});
          ASSERT_TRUE(round.ok()) << round.status().to_string();
          rounds.push_back(*round);
        }
        for (const auto& round : rounds) {
          const Status ended = round->wait(soon());
          ASSERT_TRUE(ended.ok()) << ended.to_string();
          ASSERT_EQ(floats_of(*round), floats_of(*rounds[0]));
        }
        results.push_back(floats_of(*rounds[0]));
        const float factor = op == ReduceOp::kSum ? 7.0f : 1.0f;
        const float rest = op == ReduceOp::kSum ? 2.1f : op == ReduceOp::kMean ? 0.3f : 0.6f;
        for (std::size_t at = 0; at < size; at += 1 + at / 7) {
          const float expected = factor * static_cast<float>(at % 1000) + rest;
          ASSERT_NEAR(results.back()[at], expected, 1e-6f * (expected + 1)) << at;
        }
      }
    }
    for (const auto& group : groups) {
      EXPECT_EQ(group->shares_memory(), true);
      EXPECT_EQ(group->host_count(), 3u);
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_F(GroupTest, ALostMemberEndsARoundOnAllHosts) {
  std::vector<std::unique_ptr<Group>> groups;
  for (std::size_t i = 0; i < 5; ++i) {
    Group::Options options;
    options.host = i < 3 ? "x" : "y";
    groups.push_back(join(format("m{}", i), static_cast<std::int64_t>(i), options));
  }
  for (const auto& group : groups) ASSERT_TRUE(group->wait_members(5, soon()).ok());
  const std::vector<float> ones(100'000, 1.0f);
  for (const std::size_t leaves : {4u, 1u}) {  // one member on each host
    std::vector<std::shared_ptr<GroupRound>> rounds;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (i == leaves || !groups[i]) continue;
      auto round = sum(*groups[i], ones);
      ASSERT_TRUE(round.ok()) << round.status().to_string();
      rounds.push_back(*round);
    }
    groups[leaves].reset();
    for (const auto& round : rounds) {
      const Status ended = round->wait(soon());
      EXPECT_EQ(ended.code(), StatusCode::kUnavailable) << ended.to_string();
      EXPECT_EQ(round->lost(), (std::vector<std::string>{format("m{}", leaves)}));
    }
    const auto alive = static_cast<std::size_t>(std::count_if(
        groups.begin(), groups.end(), [](const auto& one) { return one != nullptr; }));
    std::vector<std::shared_ptr<GroupRound>> again;
    for (const auto& group : groups) {
      if (!group) continue;
      EXPECT_TRUE(test::eventually([&] { return group->membership().members.size() == alive; }));
      auto round = sum(*group, ones);
      ASSERT_TRUE(round.ok()) << round.status().to_string();
      again.push_back(*round);
    }
    for (const auto& round : again) {
      const Status ended = round->wait(soon());
      ASSERT_TRUE(ended.ok()) << ended.to_string();
      EXPECT_EQ(floats_of(*round), std::vector<float>(ones.size(), static_cast<float>(alive)));
    }
  }
}

TEST_F(GroupTest, DifferingArraysOnAnotherHostAreRefusedByName) {
  std::vector<std::unique_ptr<Group>> groups;
  for (std::size_t i = 0; i < 4; ++i) {
    Group::Options options;
    options.host = i < 2 ? "x" : "y";
    groups.push_back(join(format("m{}", i), static_cast<std::int64_t>(i), options));
  }
  for (const auto& group : groups) ASSERT_TRUE(group->wait_members(4, soon()).ok());
  std::vector<std::shared_ptr<GroupRound>> rounds;
  for (std::size_t i = 0; i < 4; ++i) {
    auto round = sum(*groups[i], std::vector<float>(i < 2 ? 3 : 4));
    ASSERT_TRUE(round.ok()) << round.status().to_string();
    rounds.push_back(*round);
  }
  for (const auto& round : rounds) {
    const Status ended = round->wait(soon());
    EXPECT_EQ(ended.code(), StatusCode::kInvalidArgument) << ended.to_string();
    EXPECT_NE(ended.message().find("x float32"), std::string::npos) << ended.message();
  }
}

TEST_F(GroupTest, SendsArraysThatAreLargerThanItsSharedMemory) {
  Group::Options options;
  options.shared_bytes_max = 100'000;
  const auto a = join("a", 0, options);
  ASSERT_TRUE(a->wait_members(1, soon()).ok());
  const auto b = join("b", 1);
  for (Group* const group : {a.get(), b.get()}) ASSERT_TRUE(group->wait_members(2, soon()).ok());
  for (const std::size_t size : {10u, 100'000u, 10u}) {
    auto first = sum(*a, std::vector<float>(size, 1.0f));
    auto second = sum(*b, std::vector<float>(size, 2.0f));
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_TRUE((*first)->wait(soon()).ok());
    ASSERT_TRUE((*second)->wait(soon()).ok());
    EXPECT_EQ(floats_of(**first), std::vector<float>(size, 3.0f));
    EXPECT_EQ(floats_of(**second), std::vector<float>(size, 3.0f));
  }
  EXPECT_EQ(a->shares_memory(), true);
}

TEST_F(GroupTest, OrdersMembersAndGathersTheirValues) {
  const auto a = join("a", 5);
  ASSERT_TRUE(a->wait_members(1, soon()).ok());
  const auto b = join("b", 1);
  const std::vector<Group*> groups = {a.get(), b.get()};
  for (Group* const group : groups) ASSERT_TRUE(group->wait_members(2, soon()).ok());
  EXPECT_TRUE(a->update());
  EXPECT_FALSE(a->update());
  EXPECT_EQ(a->membership().members[0].name, "b");
  std::vector<std::shared_ptr<GroupRound>> rounds;
  for (std::size_t i = 0; i < 2; ++i) {
    Payload mine;
    ValueWriter(mine).integer(static_cast<std::int64_t>(10 + i));
    auto round = groups[i]->all_gather("values", "numbers", mine);
    ASSERT_TRUE(round.ok());
    rounds.push_back(*round);
  }
  for (const auto& round : rounds) {
    ASSERT_TRUE(round->wait(soon()).ok());
    const auto values = round->values();
    ASSERT_EQ(values.size(), 2u);
    EXPECT_EQ(ValueReader(values.at(0)).next()->integer, 11);
    EXPECT_EQ(ValueReader(values.at(1)).next()->integer, 10);
    EXPECT_EQ(round->members(), (std::vector<std::string>{"b", "a"}));
  }
}

// A peer with a small bound of its own refuses to send a part, though no member is lost.
TEST_F(GroupTest, ARefusedPartEndsTheRoundWithTheReasonAndLosesNoMember) {
  for (std::size_t bounded = 0; bounded < 2; ++bounded) {
    std::vector<std::unique_ptr<Group>> groups;
    for (std::size_t i = 0; i < 2; ++i) {
      Peer::Options options;
      options.name = "m" + std::to_string(i);
      if (i == bounded) options.call_bytes_max = std::size_t{1} << 20;
      Result<std::unique_ptr<Peer>> peer = Peer::make(options);
      ASSERT_TRUE(peer.ok()) << peer.status().to_string();
      ASSERT_TRUE((*peer)->connect(address_).ok());
      auto group =
          Group::join(std::move(*peer), {.name = "g", .sort_order = static_cast<std::int64_t>(i)});
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      groups.push_back(std::move(*group));
    }
    std::vector<std::shared_ptr<GroupRound>> rounds;
    for (const auto& group : groups) {
      ASSERT_TRUE(group->wait_members(2, soon()).ok());
      Payload value;
      value.head.resize(std::size_t{2} << 20);
      auto round = group->all_gather("values", "values", value);
      ASSERT_TRUE(round.ok()) << round.status().to_string();
      rounds.push_back(*round);
    }
    // The root, m0, has all values when it cannot send them; m1 cannot send its own.
    for (std::size_t i = bounded == 0 ? 1 : 0; i < 2; ++i) {
      const Status status = rounds[i]->wait(soon());
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
      EXPECT_TRUE(rounds[i]->lost().empty());
    }
    for (const auto& group : groups) group->leave();
  }
}

TEST_F(GroupTest, AMemberThatLeavesOrDiesEndsTheRoundAndIsNamed) {
  auto groups = join_all(3);
  const std::vector<float> ones(10, 1.0f);
  auto round = sum(*groups[0], ones);
  ASSERT_TRUE(round.ok());
  groups[2]->leave();
  const Status ended = (*round)->wait(soon());
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable) << ended.to_string();
  EXPECT_EQ((*round)->lost(), std::vector<std::string>{"m2"});
  EXPECT_NE(ended.message().find("'m2'"), std::string::npos);
  // The others continue.
  for (const std::size_t i : {0u, 1u}) {
    ASSERT_TRUE(test::eventually([&] { return groups[i]->membership().members.size() == 2; }));
  }
  auto first = sum(*groups[0], ones);
  auto second = sum(*groups[1], ones);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE((*first)->wait(soon()).ok());
  EXPECT_TRUE((*second)->wait(soon()).ok());
  EXPECT_EQ(floats_of(**second)[9], 2.0f);
}

TEST_F(GroupTest, DifferingArraysAreRefusedByName) {
  const auto groups = join_all(2);
  const std::vector<float> some(10);
  const std::vector<float> more(11);
  auto first = sum(*groups[0], some);
  auto second = sum(*groups[1], more);
  ASSERT_TRUE(first.ok() && second.ok());
  for (const auto& round : {*first, *second}) {
    const Status ended = round->wait(soon());
    EXPECT_EQ(ended.code(), StatusCode::kInvalidArgument) << ended.to_string();
    EXPECT_NE(ended.message().find("x float32 (1"), std::string::npos) << ended.to_string();
  }
}

// Without a round before it, arrays wait until all members have told where they run, which members
// do only for arrays.
TEST_F(GroupTest, ARoundOfArraysDoesNotWaitForAnotherKindOfRoundOfItsName) {
  const std::vector<float> some(10);
  const auto begin_other = [](Group& group, const std::string& kind) {
    if (kind == "values") return group.all_gather("x", "values", {});
    if (kind == "empty") return sum(group, {}, "x");
    return group.all_reduce("x", ReduceOp::kSum, {});  // its signature begins that of the others
  };
  for (const std::string kind : {"values", "empty", "nothing"}) {
    for (std::size_t other = 0; other < 3; other += 2) {  // the first member, or the last one
      std::vector<std::unique_ptr<Group>> groups;
      for (std::size_t i = 0; i < 3; ++i) {
        groups.push_back(join(format("m{}", i), static_cast<std::int64_t>(i)));
      }
      ASSERT_TRUE(test::eventually([&] {
        return std::ranges::all_of(groups, [&](const auto& group) {
          const Membership now = group->membership();
          return now.members.size() == 3 && now.id == groups[0]->membership().id;
        });
      }));
      std::vector<Group::RoundPtr> rounds;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        auto round = i == other ? begin_other(*groups[i], kind) : sum(*groups[i], some, "x");
        ASSERT_TRUE(round.ok()) << round.status().to_string();
        rounds.push_back(*round);
      }
      for (const auto& round : rounds) {
        const Status ended = round->wait(soon());
        EXPECT_EQ(ended.code(), StatusCode::kInvalidArgument) << kind << ": " << ended.to_string();
      }
    }
  }
}

TEST_F(GroupTest, ACancelledOrLateRoundEndsOnAllMembers) {
  const auto groups = join_all(2);
  const std::vector<float> some(10);
  auto first = sum(*groups[0], some);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->wait(soon(0.01)).code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE((*first)->is_done());
  EXPECT_EQ(sum(*groups[0], some).status().code(), StatusCode::kAlreadyExists);
  (*first)->cancel();
  EXPECT_EQ((*first)->wait(soon()).code(), StatusCode::kCancelled);

  // A member that has all parts before it hears of the end gets the result.
  const auto ends_elsewhere = [&](const std::string& name, StatusCode code, bool is_cancelled) {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
      const std::string its_name = name + std::to_string(i);
      auto early = sum(*groups[0], some, its_name, is_cancelled ? soon() : soon(0.05));
      if (!early.ok()) return early.status();
      if (is_cancelled) (*early)->cancel();
      if ((*early)->wait(soon()).code() != code) return internal_error("it goes on");
      auto other = sum(*groups[1], some, its_name);
      if (!other.ok()) return other.status();
      const Status ended = (*other)->wait(soon());
      if (!ended.ok()) return ended;
    }
    return Status();
  };
  EXPECT_EQ(ends_elsewhere("cancelled", StatusCode::kCancelled, true).code(),
            StatusCode::kCancelled);
  EXPECT_EQ(ends_elsewhere("late", StatusCode::kDeadlineExceeded, false).code(),
            StatusCode::kDeadlineExceeded);
}

// A broker refuses a member without a membership if another peer of its name joins at that time.
TEST_F(GroupTest, AMemberRefusedBeforeItsFirstMembershipWaitsNoLonger) {
  broker_.reset();
  const auto asked = std::make_shared<std::promise<InboundId>>();
  const auto has_asked = std::make_shared<std::atomic<bool>>(false);
  const auto keep = [asked, has_asked](const Request& request) {
    if (!has_asked->exchange(true)) asked->set_value(request.id);
  };
  ASSERT_TRUE(broker_peer_->define(kBrokerFunction, keep).ok());
  const auto group = join("twin");
  std::future<Status> waited =
      std::async(std::launch::async, [&] { return group->wait_members(1, soon()); });
  const InboundId request = asked->get_future().get();
  EXPECT_FALSE(test::eventually([] { return false; }, 0.05));  // by now the member waits
  broker_peer_->fail(request, {StatusCode::kFailedPrecondition, "", "another has joined", ""});
  const Status refused = waited.get();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << refused.to_string();
}

TEST_F(GroupTest, AMemberThatWaitsForOthersJoinsAgainAndDoesNotStall) {
  Group::Options options;
  options.stall_timeout = std::chrono::milliseconds(100);
  const auto group = join("early", 0, options);
  ASSERT_TRUE(group->wait_members(1, soon()).ok());
  ASSERT_TRUE(test::eventually([&] { return group->membership().members.empty(); }));
  std::future<Status> waited =
      std::async(std::launch::async, [&] { return group->wait_members(2, soon()); });
  EXPECT_TRUE(test::eventually([&] { return group->membership().members.size() == 1; }));
  const std::uint64_t id = group->membership_id();
  EXPECT_FALSE(test::eventually([&] { return group->membership_id() != id; }, 0.4));
  const auto other = join("late");
  const Status ended = waited.get();
  EXPECT_TRUE(ended.ok()) << ended.to_string();
}

TEST_F(GroupTest, ARoundOfAMemberThatLeavesOrStallsSaysWhich) {
  const std::vector<float> some(10);
  const auto groups = join_all(2);
  auto round = sum(*groups[0], some);
  ASSERT_TRUE(round.ok()) << round.status().to_string();
  groups[0]->set_stall_timeout(std::chrono::milliseconds(50));
  const Status stalled = (*round)->wait(soon());
  EXPECT_EQ(stalled.code(), StatusCode::kUnavailable) << stalled.to_string();
  EXPECT_NE(stalled.message().find("did not advance"), std::string::npos) << stalled.to_string();
  groups[0]->set_stall_timeout(Duration::max());
  ASSERT_TRUE(groups[0]->wait_members(2, soon()).ok());
  round = sum(*groups[0], some);
  ASSERT_TRUE(round.ok()) << round.status().to_string();
  groups[0]->leave();
  const Status left = (*round)->wait(soon());
  EXPECT_EQ(left.code(), StatusCode::kCancelled) << left.to_string();
  const Status after = sum(*groups[0], some).status();
  EXPECT_EQ(after.code(), StatusCode::kFailedPrecondition) << after.to_string();
}

TEST_F(GroupTest, ARoundOfAMemberThatTheBrokerRefusesSaysSo) {
  broker_.reset();
  const auto asked = std::make_shared<std::promise<InboundId>>();
  const auto count = std::make_shared<std::atomic<int>>(0);
  const auto answer = [asked, count, peer = broker_peer_.get()](const Request& request) {
    const Result<BrokerRequest> read = decode_broker_request(request.message.payload);
    if (!read.ok() || read->ask == BrokerRequestKind::kLeave) return peer->answer(request.id, {});
    const int n = ++*count;
    if (n == 1) peer->answer(request.id, encode(Membership{1, 1, {read->self, {"other", 2, 0}}}));
    if (n == 2) asked->set_value(request.id);
  };
  ASSERT_TRUE(broker_peer_->define(kBrokerFunction, answer).ok());
  const auto group = join("m");
  ASSERT_TRUE(group->wait_members(2, soon()).ok());
  const auto round = group->all_gather("values", "values", {});
  ASSERT_TRUE(round.ok()) << round.status().to_string();
  broker_peer_->fail(asked->get_future().get(),
                     {StatusCode::kFailedPrecondition, "", "another has joined", ""});
  const Status ended = (*round)->wait(soon());
  EXPECT_EQ(ended.code(), StatusCode::kFailedPrecondition) << ended.to_string();
  EXPECT_NE(ended.message().find("another has joined"), std::string::npos) << ended.to_string();
}

// A peer may join again before its old group is destroyed, which leaves the new one alone.
TEST_F(GroupTest, AMemberThatHasJoinedAgainOutlivesItsOldGroup) {
  const auto other = join("other");
  const auto peer = make_peer("returns");
  ASSERT_TRUE(peer->connect(address_).ok());
  Group::Options options;
  options.name = "g";
  auto group = Group::join(peer, options).value();
  ASSERT_TRUE(other->wait_members(2, soon()).ok());
  group->leave();
  ASSERT_TRUE(test::eventually([&] { return other->membership().members.size() == 1; }));
  group = Group::join(peer, options).value();  // the old one is destroyed only now
  group->leave();
  ASSERT_TRUE(test::eventually([&] { return other->membership().members.size() == 1; }));
  const auto next = Group::join(peer, options).value();
  group->leave();
  group.reset();
  ASSERT_TRUE(other->wait_members(2, soon()).ok());
  ASSERT_TRUE(next->wait_members(2, soon()).ok());
  for (const std::string source : {"other", "returns"}) {  // each member calls the other one
    Payload value;
    ValueWriter(value).text("of " + source);
    const auto first = other->broadcast(source, source, value);
    const auto second = next->broadcast(source, source, value);
    ASSERT_TRUE(first.ok() && second.ok());
    for (const auto& round : {*first, *second}) {
      const Status ended = round->wait(soon());
      EXPECT_TRUE(ended.ok()) << ended.to_string();
    }
  }
}

// The thread that reads the broker's answer decides to ask again, then ends all rounds, and only
// then sends. So this thread, which waits for the first one, decides to leave before that.
TEST_F(GroupTest, TheBrokerHearsAMemberInTheOrderInWhichItDecided) {
  struct Heard {
    std::promise<std::pair<InboundId, Member>> second;
    std::atomic<int> watches{0};
    std::atomic<int> leaves{0};
    std::atomic<int> late{0};
  };
  broker_.reset();
  const auto heard = std::make_shared<Heard>();
  const auto answer = [heard, peer = broker_peer_.get()](const Request& request) {
    const Result<BrokerRequest> read = decode_broker_request(request.message.payload);
    if (!read.ok()) return;
    if (read->ask == BrokerRequestKind::kLeave) {
      ++heard->leaves;
      return peer->answer(request.id, {});
    }
    if (heard->leaves > 0) ++heard->late;
    const int n = ++heard->watches;
    if (n == 1) peer->answer(request.id, encode(Membership{1, 1, {read->self, {"other", 2, 0}}}));
    if (n == 2) heard->second.set_value({request.id, read->self});
  };
  ASSERT_TRUE(broker_peer_->define(kBrokerFunction, answer).ok());
  const auto group = join("m");
  ASSERT_TRUE(group->wait_members(2, soon()).ok());
  const std::pair<InboundId, Member> second = heard->second.get_future().get();
  std::vector<Group::RoundPtr> rounds;
  for (int i = 0; i < 1'000; ++i) {
    auto round = group->all_gather(format("{:04}", i), "values", {});
    ASSERT_TRUE(round.ok()) << round.status().to_string();
    rounds.push_back(*round);
  }
  broker_peer_->answer(second.first, encode(Membership{2, 2, {second.second, {"third", 3, 0}}}));
  const Status ended = rounds.front()->wait(soon());
  EXPECT_EQ(ended.code(), StatusCode::kUnavailable) << ended.to_string();
  group->leave();
  group->leave();
  EXPECT_TRUE(test::eventually([&] { return heard->leaves == 1; }));
  EXPECT_EQ(heard->watches, 3);
  EXPECT_EQ(heard->late, 0) << "the member asks to be kept after it has left";
}

TEST_F(GroupTest, ABrokerThatIsMadeAnewOutlivesTheOldOne) {
  broker_->close();
  auto next = Broker::make(broker_peer_);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  broker_->close();
  broker_.reset();
  const auto group = join("m");
  const Status joined = group->wait_members(1, soon());
  EXPECT_TRUE(joined.ok()) << joined.to_string();
  EXPECT_EQ((*next)->groups().size(), 1u);
}

// The handler of such a request was looked up before the broker undefined it, and runs afterwards.
TEST_F(GroupTest, ARequestThatABrokerIsGivenWhileItClosesIsAnswered) {
  const auto member = make_peer("m");
  ASSERT_TRUE(member->connect(address_).ok());
  BrokerRequest watch;
  watch.group = "g";
  watch.self = {"m", 1, 0};
  const auto close = [&] { broker_->close(); };
  for (const auto& call :
       test::late_calls(*broker_peer_, member, close, kBrokerFunction, encode(watch))) {
    EXPECT_EQ(call->result().status.code(), StatusCode::kUnavailable);
  }
}

TEST_F(GroupTest, AForkedChildNeitherAddsNorRemovesListeners) {
  const auto group = join("m");
  const auto kept = std::make_shared<int>(0);
  const std::uint64_t listener = group->add_listener([kept] { EXPECT_EQ(*kept, 0); });
  const pid_t child = fork();
  if (child == 0) {
    if (group->add_listener([] {}) != 0) _exit(1);
    group->remove_listener(listener);
    _exit(kept.use_count() == 2 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  group->remove_listener(listener);
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(GroupTest, InvalidUsesAreRefused) {
  const auto peer = make_peer("alone");
  Group::Options options;
  EXPECT_EQ(Group::join(peer, options).status().code(), StatusCode::kInvalidArgument);
  options.name = "g";
  options.broker = "alone";
  EXPECT_EQ(Group::join(peer, options).status().code(), StatusCode::kInvalidArgument);
  options.broker = "broker";
  auto group = Group::join(peer, options);
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(Group::join(peer, options).status().code(), StatusCode::kAlreadyExists);
  const std::vector<float> some(10);
  EXPECT_EQ(sum(**group, some).status().code(), StatusCode::kFailedPrecondition);
  const Status none = (*group)->wait_members(1, soon(0.05));
  EXPECT_EQ(none.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(none.message().find("broker"), std::string::npos) << none.to_string();
  (*group)->leave();
  EXPECT_FALSE((*group)->update());
  EXPECT_EQ((*group)->wait_members(1, soon()).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Broker::make(broker_peer_).status().code(), StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace reverie
