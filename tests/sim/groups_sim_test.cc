// The logic of groups on a simulated network: a broker and members that die and restart, and are
// partitioned, while they sum numbers in rounds.
//
// Invariants of every run: a membership is equal on all members that have it; a member's epochs
// increase; a successful round has the sum of what exactly the members of its membership
// contributed, equal on all of them. Once the network is healthy again, all members are in one
// membership, and a round succeeds.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/group/group_core.h"
#include "reverie/group/reduce_round.h"
#include "tests/scale.h"
#include "tests/support/sim_faults.h"
#include "tests/support/sim_group.h"

namespace reverie {
namespace {

constexpr std::size_t kNumbers = 5'000;  // 40 kB, which are sent in several parts

// What all members together have observed.
struct Oracle {
  std::map<std::uint64_t, Membership> memberships;
  // By membership and round: what each member contributed, and the result.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  std::map<Key, std::map<std::string, std::int64_t>> brought;
  std::map<Key, std::int64_t> sums;
  // Members on the same one of `hosts` hosts share memory. What they have put there, by membership,
  // host and key.
  int hosts = 0;
  using WindowKey = std::tuple<std::uint64_t, std::size_t, std::uint64_t>;
  struct Window {
    std::map<std::string, std::vector<std::byte>> arrays;
    std::size_t taken = 0;
  };
  std::map<WindowKey, Window> windows;
  std::map<SharedStep, int> shared_steps;
  int good_rounds = 0;
  int bad_rounds = 0;
  int lost_named = 0;
  std::string last_failure;
  std::string wrong;

  void see(const Membership& membership) {
    if (membership.epoch == 0) return;
    const auto [place, is_new] = memberships.emplace(membership.id, membership);
    if (!is_new &&
        (place->second.epoch != membership.epoch || place->second.members != membership.members)) {
      wrong = "two memberships of one id";
    }
  }
};

class SimMember final : public SimPeer {
 public:
  SimMember(sim::Network& network, sim::NodeId node, std::string name, Oracle& oracle,
            Duration stall_timeout = Duration::max())
      : SimPeer(network, node, name),
        oracle_(oracle),
        core_(options(network, name, stall_timeout), source(name, oracle)) {
    EXPECT_TRUE(peer().define(group_function("g")).ok());
    core_.join(now());
  }

  GroupCore& core() { return core_; }
  bool runs_rounds = true;
  int good_rounds = 0;

 private:
  static MemberCore::Options options(sim::Network& network, const std::string& name,
                                     Duration stall_timeout) {
    MemberCore::Options made;
    made.group = "g";
    made.self = {name, network.random().next(), 0};
    made.stall_timeout = stall_timeout;
    return made;
  }
  static std::size_t host_of(const std::string& name, const Oracle& oracle) {
    return static_cast<std::size_t>(std::stoi(name.substr(1))) % std::max(oracle.hosts, 1);
  }
  static GroupCore::ShareSource source(const std::string& name, Oracle& oracle) {
    const auto window = [&oracle] {
      return oracle.hosts > 0 ? std::optional<std::size_t>(std::size_t{1} << 20u) : std::nullopt;
    };
    return {
        "host " + std::to_string(host_of(name, oracle)),
        [window](std::uint64_t, std::size_t, ShareOffer&) { return window(); },
        [window](std::uint64_t, std::size_t, std::size_t, const ShareOffer&) { return window(); }};
  }
  // A fake of shared memory: a step has its result once all members on the host have written.
  void work_in_shared_memory(const Membership& membership) {
    const std::string& own = core_.member().options().self.name;
    const std::size_t host = host_of(own, oracle_);
    for (const GroupCore::Shared& shared : core_.take_shared()) {
      if (shared.id != running_) continue;  // the round has ended meanwhile
      shared_ = SharedWork{{membership.id, host, shared.key}, shared.step};
      auto& mine = oracle_.windows[shared_->key].arrays[own];
      mine.resize(layout_->size_bytes());
      std::memcpy(mine.data(), buffer_->data(), mine.size());
      ++oracle_.shared_steps[shared.step];
    }
    if (!shared_ || running_ == 0) return;
    Oracle::Window& window = oracle_.windows[shared_->key];
    const auto& windows = window.arrays;
    std::vector<std::string> local;
    for (const Member& member : membership.members) {
      if (host_of(member.name, oracle_) == host) local.push_back(member.name);
    }
    if (windows.size() < local.size()) return;
    const bool is_first = own == local.front();
    if (shared_->step == SharedStep::kFromFirst) {
      std::memcpy(buffer_->data(), windows.at(local.front()).data(), layout_->size_bytes());
    } else if (shared_->step == SharedStep::kAll || is_first) {
      std::memcpy(buffer_->data(), windows.at(local[0]).data(), layout_->size_bytes());
      for (std::size_t i = 1; i < local.size(); ++i) {
        layout_->combine_range(0, layout_->size_bytes(), buffer_->data(),
                               windows.at(local[i]).data());
      }
    } else {
      std::memset(buffer_->data(), 0x5a, layout_->size_bytes());  // content is undefined here
    }
    if (++window.taken == local.size()) oracle_.windows.erase(shared_->key);
    shared_.reset();
    core_.on_shared(running_, {}, std::nullopt, now());
  }
  void on_request(Request request) override { core_.on_request(std::move(request), now()); }
  void on_result(CallId call, CallResult result) override {
    const auto ticket = tickets_.find(call);
    ASSERT_NE(ticket, tickets_.end());
    const std::uint64_t number = ticket->second;
    tickets_.erase(ticket);
    core_.on_answered(number, std::move(result), now());
  }
  void step() override {
    if (core_.next_tick() <= now()) core_.tick(now());
    const Membership& membership = core_.membership();
    oracle_.see(membership);
    if (membership.id != seen_id_) {
      if (membership.epoch > 0 && membership.epoch <= seen_epoch_) {
        oracle_.wrong = "an epoch went back";
      }
      if (membership.epoch > 0) seen_epoch_ = membership.epoch;
      seen_id_ = membership.id;
      next_count_ = 0;
    }
    take_ends();
    if (runs_rounds && membership.epoch > 0 && running_ == 0 && now() >= next_round_) {
      begin_round(membership);
      take_ends();
    }
    work_in_shared_memory(membership);
    take_ends();
    for (GroupCore::Outgoing& out : core_.take_outgoing()) carry_out(std::move(out));
  }
  TimePoint next_step() const override {
    const bool may_begin = runs_rounds && core_.membership().epoch > 0 && running_ == 0;
    if (shared_) return std::min(core_.next_tick(), now() + std::chrono::milliseconds(1));
    return may_begin ? std::min(core_.next_tick(), next_round_) : core_.next_tick();
  }

  void begin_round(const Membership& membership) {
    const auto index = membership.index_of(core_.member().options().self.name);
    ASSERT_TRUE(index.has_value());
    const auto mine = static_cast<std::int64_t>(network().random().below(1u << 30u));
    std::vector<std::int64_t> numbers(kNumbers);
    for (std::size_t i = 0; i < kNumbers; ++i) numbers[i] = mine + static_cast<std::int64_t>(i);
    const ReduceLeaf leaf{"numbers",
                          DType::kInt64,
                          {static_cast<std::int64_t>(kNumbers)},
                          std::as_bytes(std::span(numbers))};
    const std::size_t count = membership.members.size();
    auto layout = ReduceLayout::make(ReduceOp::kSum, {&leaf, 1}, count);
    ASSERT_TRUE(layout.ok());
    layout_ = std::make_shared<const ReduceLayout>(std::move(*layout));
    auto buffer = Allocator::heap().allocate(layout_->size_bytes());
    ASSERT_TRUE(buffer.ok());
    layout_->load({&leaf, 1}, {buffer->data(), buffer->size_bytes()});
    buffer_ = std::make_shared<Buffer>(std::move(*buffer));
    key_ = {membership.id, next_count_++};
    oracle_.brought[key_][core_.member().options().self.name] = mine;
    const auto id = core_.begin("sum", membership.id,
                                std::make_shared<ReduceRound>(layout_, buffer_, *index, count),
                                TimePoint::max(), now());
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    running_ = *id;
  }

  void take_ends() {
    for (const GroupCore::Ended& ended : core_.take_ended()) {
      if (ended.id != running_) {
        oracle_.wrong = "a round ended that was not begun";
        continue;
      }
      running_ = 0;
      shared_.reset();
      next_round_ =
          now() + Duration(static_cast<std::int64_t>(network().random().below(20'000'000)));
      if (!ended.status.ok()) {
        ++oracle_.bad_rounds;
        oracle_.last_failure = ended.status.to_string();
        oracle_.lost_named += ended.lost.empty() ? 0 : 1;
        continue;
      }
      ++good_rounds;
      ++oracle_.good_rounds;
      check_sum();
    }
  }

  void check_sum() {
    std::int64_t expected = 0;
    const auto& brought = oracle_.brought[key_];
    const Membership& membership = oracle_.memberships[key_.first];
    for (const Member& member : membership.members) {
      const auto part = brought.find(member.name);
      if (part == brought.end()) {
        oracle_.wrong = "a round ended well without what " + member.name + " brings";
        return;
      }
      expected += part->second;
    }
    std::vector<std::int64_t> got(kNumbers);
    layout_->unload(0, buffer_->bytes(), reinterpret_cast<std::byte*>(got.data()));
    const auto members = static_cast<std::int64_t>(membership.members.size());
    for (std::size_t i = 0; i < kNumbers; ++i) {
      if (got[i] == expected + members * static_cast<std::int64_t>(i)) continue;
      oracle_.wrong = "a sum is wrong";
      return;
    }
  }

  void carry_out(GroupCore::Outgoing out) {
    switch (out.kind) {
      case GroupCore::Outgoing::Kind::kAnswer:
        return peer().answer(out.request, std::move(out.payload), now());
      case GroupCore::Outgoing::Kind::kFail:
        return peer().fail(out.request, out.error, now());
      case GroupCore::Outgoing::Kind::kCall:
        break;
    }
    const auto call =
        peer().call(out.peer, out.function, std::move(out.payload), {out.deadline, false}, now());
    ASSERT_TRUE(call.ok()) << call.status().to_string();
    tickets_[*call] = out.ticket;
  }

  Oracle& oracle_;
  GroupCore core_;
  std::map<CallId, std::uint64_t> tickets_;
  std::uint64_t seen_id_ = 0;
  std::uint64_t seen_epoch_ = 0;
  std::uint64_t next_count_ = 0;
  RoundId running_ = 0;
  TimePoint next_round_{};
  Oracle::Key key_;
  struct SharedWork {
    Oracle::WindowKey key;
    SharedStep step;
  };
  std::optional<SharedWork> shared_;
  std::shared_ptr<const ReduceLayout> layout_;
  std::shared_ptr<Buffer> buffer_;
};

constexpr Duration ms(std::int64_t count) {
  return std::chrono::milliseconds(count);
}

class World : public SimWorld<SimMember, Oracle> {
 public:
  using SimWorld::SimWorld;
  // Whether all living members have one membership, of `count` members.
  bool is_whole(std::size_t count) {
    std::set<std::uint64_t> ids;
    std::size_t live = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      if (member(i) == nullptr) continue;
      ++live;
      const Membership& membership = member(i)->core().membership();
      if (membership.members.size() != count) return false;
      ids.insert(membership.id);
    }
    return live == count && ids.size() == 1;
  }
  // Members know their host from the beginning, so they are started again. 0: they share no memory.
  void start_again_on(int hosts) {
    oracle.hosts = hosts;
    for (std::size_t i = 0; i < size(); ++i) {
      kill(i);
      start(i);
    }
  }
  // Until all that live are in one membership, of `count`, and then have ended a round in it.
  Duration time_of_next_round(std::size_t count) {
    Duration time = time_until([&] { return is_whole(count); }, ms(9000));
    std::map<SimMember*, int> before;
    for (std::size_t i = 0; i < size(); ++i) {
      if (member(i) != nullptr) before[member(i)] = member(i)->good_rounds;
    }
    const auto all_go_on = [&] {
      return std::ranges::all_of(
          before, [](const auto& entry) { return entry.first->good_rounds > entry.second; });
    };
    return time + time_until(all_go_on, ms(9000));
  }
};

struct Outcome {
  std::uint64_t trace = 0;
  Oracle oracle;
};

constexpr std::size_t kFaultyMembers = 5;
constexpr TimePoint kFaultsEnd{4'000'000'000};

std::vector<SimFault> faults_of(std::uint64_t seed) {
  return draw_faults(seed ^ 0x5eed, kFaultsEnd, ms(200), kFaultyMembers + 1);
}

// 4 simulated seconds with faults, then enough without faults for the group to be complete.
Outcome run(std::uint64_t seed, const std::vector<SimFault>& faults) {
  sim::NetworkOptions faulty;
  faulty.cut_share = 0.004;
  World world(seed, kFaultyMembers, faulty);
  world.start_again_on(static_cast<int>(seed % 4));
  for (const auto& [when, act, node, other, value] : faults) {
    world.run(when - world.network.now());
    const std::size_t who = node % kFaultyMembers;
    if (act < 0.25) {
      if (world.member(who) != nullptr) {
        world.kill(who);
      } else {
        world.start(who);
      }
    } else if (act < 0.35) {
      if (world.has_broker()) {
        world.kill_broker();
      } else {
        world.start_broker();
      }
    } else if (act < 0.5) {
      world.network.partition(node, other);
    } else if (act < 0.75) {
      world.network.heal();
    }
    // Otherwise time passes without a fault.
  }
  world.run(kFaultsEnd - world.network.now());
  world.network.heal();
  world.network.set_options({});
  if (!world.has_broker()) world.start_broker();
  for (std::size_t i = 0; i < kFaultyMembers; ++i) {
    if (world.member(i) == nullptr) world.start(i);
  }
  const Duration healed =
      world.time_until([&] { return world.is_whole(kFaultyMembers); }, std::chrono::seconds(10));
  Oracle& oracle = world.oracle;
  if (oracle.wrong.empty() && healed >= std::chrono::seconds(10)) {
    oracle.wrong = "the group is not whole again after 10 s";
  }
  std::vector<int> before;
  for (std::size_t i = 0; i < kFaultyMembers; ++i) before.push_back(world.member(i)->good_rounds);
  // A stream that lost bytes in a partition is only noticed after 1.5 s without a sign of life.
  const auto all_go_on = [&] {
    for (std::size_t i = 0; i < kFaultyMembers; ++i) {
      if (world.member(i)->good_rounds == before[i]) return false;
    }
    return true;
  };
  // Two such streams in a row take 5.07 s in the slowest of 10,000 runs.
  (void)world.time_until(all_go_on, std::chrono::seconds(6));
  for (std::size_t i = 0; i < kFaultyMembers && oracle.wrong.empty(); ++i) {
    if (world.member(i)->good_rounds > before[i]) continue;
    oracle.wrong = "no round ends in a well group: " +
                   world.member(i)->core().why_waiting(world.network.now()) +
                   "; before: " + oracle.last_failure;
  }
  return {world.network.trace(), oracle};
}

TEST(GroupsOnASimulatedNetwork, SumExactlyTheContributionsOfTheMembers) {
  const int seeds = static_cast<int>(scaled_in_release(1'000, 10'000));
  int good = 0;
  int bad = 0;
  int lost = 0;
  std::map<SharedStep, int> steps;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    const Outcome outcome = run(number, faults_of(number));
    ASSERT_EQ(outcome.oracle.wrong, "")
        << "seed " << seed << ", with these faults alone:"
        << fewest_faults(faults_of(number), [number](const std::vector<SimFault>& faults) {
             return run(number, faults).oracle.wrong;
           });
    good += outcome.oracle.good_rounds;
    bad += outcome.oracle.bad_rounds;
    lost += outcome.oracle.lost_named;
    for (const auto& [step, count] : outcome.oracle.shared_steps) steps[step] += count;
  }
  for (const auto step : {SharedStep::kAll, SharedStep::kToFirst, SharedStep::kFromFirst}) {
    EXPECT_GT(steps[step], 10 * seeds);
  }
  // Faults have an effect, most rounds succeed, and many failed ones name the lost member.
  EXPECT_GT(bad, seeds);
  EXPECT_GT(lost, seeds / 2);
  EXPECT_GT(good, 50 * seeds);
}

TEST(GroupsOnASimulatedNetwork, TheSameSeedGivesTheSameRun) {
  const auto trace = [](std::uint64_t seed) { return run(seed, faults_of(seed)).trace; };
  for (std::uint64_t seed = 1; seed <= 2; ++seed) EXPECT_EQ(trace(seed), trace(seed));
  EXPECT_NE(trace(1), trace(2));
}

TEST(GroupsOnASimulatedNetwork, FormAndGrowWithoutDelay) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(seed, 3, {});
    world.kill(2);
    EXPECT_LE(world.time_until([&] { return world.is_whole(2); }, ms(2000)), ms(200)) << seed;
    world.start(2);
    EXPECT_LE(world.time_until([&] { return world.is_whole(3); }, ms(2000)), ms(300)) << seed;
  }
}

TEST(GroupsOnASimulatedNetwork, DropAMemberThatDiesOrFreezesWithinTwoSeconds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(seed, 4, {});
    world.run(ms(1000));
    ASSERT_TRUE(world.is_whole(4)) << seed;
    if (seed % 2 == 0) {
      world.kill(3);
    } else {  // everything that it sends and receives is lost
      for (std::size_t i = 0; i < 4; ++i) {
        world.network.partition(i, 4);
        world.network.partition(4, i);
      }
    }
    const auto is_dropped = [&] {
      for (std::size_t i = 0; i < 3; ++i) {
        if (world.member(i)->core().membership().members.size() != 3) return false;
      }
      return true;
    };
    EXPECT_LE(world.time_until(is_dropped, ms(5000)), ms(2000)) << seed;
    const int before = world.member(0)->good_rounds;
    world.run(ms(300));
    EXPECT_GT(world.member(0)->good_rounds, before) << seed;
    EXPECT_EQ(world.oracle.wrong, "");
    if (seed % 2 == 0) continue;
    world.network.heal();
    EXPECT_LE(world.time_until([&] { return world.is_whole(4); }, ms(9000)), ms(4000)) << seed;
  }
}

// In simulated time, so the machine's load does not matter.
TEST(GroupsOnASimulatedNetwork, FinishTheNextRoundWithinThreeSecondsOfEachKillAndJoin) {
  constexpr std::size_t kMembers = 8;
  const int turns = static_cast<int>(scaled_in_release(20, 200));
  for (const int hosts : {0, 1, 2}) {  // over calls, in one memory, in two levels
    World world(static_cast<std::uint64_t>(40 + hosts), kMembers, {});
    world.start_again_on(hosts);
    ASSERT_LT(world.time_until([&] { return world.is_whole(kMembers); }, ms(9000)), ms(9000));
    Random draws(static_cast<std::uint64_t>(hosts));
    for (int turn = 0; turn < turns; ++turn) {
      world.run(Duration(static_cast<std::int64_t>(draws.below(50'000'000))));
      const std::size_t who = draws.below(kMembers);
      world.kill(who);
      EXPECT_LE(world.time_of_next_round(kMembers - 1), ms(3000))
          << hosts << " hosts, kill " << turn;
      world.start(who);
      EXPECT_LE(world.time_of_next_round(kMembers), ms(3000)) << hosts << " hosts, join " << turn;
      ASSERT_EQ(world.oracle.wrong, "");
    }
  }
}

// Members die and join while the broker is away, so it knows less of the group than its members.
TEST(GroupsOnASimulatedNetwork, FinishTheNextRoundWithinFiveSecondsOfTheBrokersReturn) {
  constexpr std::size_t kMembers = 4;
  const int turns = static_cast<int>(scaled_in_release(20, 200));
  for (const int hosts : {0, 1, 2}) {
    World world(static_cast<std::uint64_t>(50 + hosts), kMembers, {});
    world.start_again_on(hosts);
    ASSERT_LT(world.time_until([&] { return world.is_whole(kMembers); }, ms(9000)), ms(9000));
    Random draws(static_cast<std::uint64_t>(hosts));
    for (int turn = 0; turn < turns; ++turn) {
      world.run(Duration(static_cast<std::int64_t>(draws.below(50'000'000))));
      world.kill_broker();
      world.run(ms(static_cast<std::int64_t>(draws.below(4000))));
      const std::size_t who = draws.below(kMembers);
      const bool dies = turn % 3 < 2;
      if (dies) world.kill(who);
      world.run(ms(static_cast<std::int64_t>(draws.below(4000))));
      const bool is_back = turn % 3 == 0;
      if (is_back) world.start(who);
      world.start_broker();
      const std::size_t count = dies && !is_back ? kMembers - 1 : kMembers;
      EXPECT_LE(world.time_of_next_round(count), ms(5000)) << hosts << " hosts, turn " << turn;
      if (count < kMembers) world.start(who);
      ASSERT_LT(world.time_of_next_round(kMembers), ms(5000)) << hosts << " hosts, turn " << turn;
      ASSERT_EQ(world.oracle.wrong, "");
    }
  }
}

// The members tell a new broker the epoch, so rounds go on while it is away, and none fails.
TEST(GroupsOnASimulatedNetwork, KeepTheirEpochWhileTheBrokerIsAway) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(seed, 4, {});
    world.run(ms(1000));
    ASSERT_TRUE(world.is_whole(4)) << seed;
    const std::uint64_t id = world.member(0)->core().membership().id;
    const int bad = world.oracle.bad_rounds;  // while the members joined
    for (int i = 0; i < 3; ++i) {
      const int before = world.member(1)->good_rounds;
      world.kill_broker();
      world.run(ms(700 + 900 * i));
      EXPECT_GT(world.member(1)->good_rounds, before + 5) << seed;
      world.start_broker();
      world.run(ms(4000));
      EXPECT_EQ(world.member(2)->core().membership().id, id) << seed;
    }
    EXPECT_EQ(world.oracle.bad_rounds, bad) << seed << ": " << world.oracle.last_failure;
    // The new broker manages the members: it drops one and adds one.
    world.kill(3);
    const auto is_dropped = [&] {
      return world.member(0)->core().membership().members.size() == 3;
    };
    EXPECT_LE(world.time_until(is_dropped, ms(5000)), ms(2000)) << seed;
    world.start(3);
    EXPECT_LE(world.time_until([&] { return world.is_whole(4); }, ms(5000)), ms(300)) << seed;
  }
}

// The half with the broker continues; the other half cannot end a round, and reports why.
TEST(GroupsOnASimulatedNetwork, HalfOfAPartitionedGroupContinues) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    World world(seed, 4, {});
    world.run(ms(1000));
    ASSERT_TRUE(world.is_whole(4)) << seed;
    for (const std::size_t here : {0u, 1u, 2u}) {  // the broker, m0 and m1
      for (const std::size_t there : {3u, 4u}) {
        world.network.partition(here, there);
        world.network.partition(there, here);
      }
    }
    world.run(ms(3000));
    const int here = world.member(0)->good_rounds;
    const int there = world.member(3)->good_rounds;
    world.run(ms(2000));
    EXPECT_GT(world.member(0)->good_rounds, here + 10) << seed;
    EXPECT_EQ(world.member(3)->good_rounds, there) << seed;
    EXPECT_EQ(world.member(0)->core().membership().members.size(), 2u);
    const std::string why = world.member(3)->core().why_waiting(world.network.now());
    EXPECT_NE(why.find("broker"), std::string::npos) << why;
    world.network.heal();
    EXPECT_LE(world.time_until([&] { return world.is_whole(4); }, ms(9000)), ms(4000)) << seed;
    EXPECT_EQ(world.oracle.wrong, "");
  }
}

// A member that lives but does not advance stays in the group, is named, and the round waits for
// it.
TEST(GroupsOnASimulatedNetwork, WaitForAMemberWhoseProgramHangs) {
  World world(7, 3, {});
  world.run(ms(1000));
  ASSERT_TRUE(world.is_whole(3));
  world.member(2)->runs_rounds = false;
  world.run(ms(60'000));
  EXPECT_TRUE(world.is_whole(3));
  const std::string why = world.member(0)->core().why_waiting(world.network.now());
  EXPECT_NE(why.find("'m2', which has not begun it and whose program has stood still for 5"),
            std::string::npos)
      << why;
  EXPECT_EQ(why.find("'m1'"), std::string::npos) << why;
  const int before = world.member(0)->good_rounds;
  world.member(2)->runs_rounds = true;
  world.member(2)->settle();
  world.run(ms(1000));
  EXPECT_GT(world.member(0)->good_rounds, before + 5);
  EXPECT_EQ(world.oracle.bad_rounds, 0);

  // With a timeout it leaves, the others continue, and it joins again with its next call.
  world.member(2)->core().set_stall_timeout(ms(500), world.network.now());
  world.member(2)->runs_rounds = false;
  world.member(2)->settle();
  world.run(ms(1500));
  EXPECT_EQ(world.member(0)->core().membership().members.size(), 2u);
  EXPECT_NE(world.member(2)->core().why_waiting(world.network.now()).find("did not advance"),
            std::string::npos);
  world.member(2)->core().advance(world.network.now());
  world.member(2)->settle();
  EXPECT_LE(world.time_until([&] { return world.is_whole(3); }, ms(2000)), ms(300));
}

}  // namespace
}  // namespace reverie
