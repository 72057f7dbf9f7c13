// The logic of accumulators on a simulated network: members train a number together, while members
// and the broker die and restart, are partitioned, and hang.
//
// Peers, brokers, groups, rounds and accumulators are the real logic; the model is a number that
// each step changes by the sum of its round. Invariants of every run: a generation has one leader;
// a sum covers exactly what the members contributed to the round, and is equal on all of them;
// models of one lineage are equal; a version never decreases, and no step is taken twice. Once the
// network is healthy again, all members continue with one model.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "reverie/accumulator/accumulator_core.h"
#include "reverie/group/reduce_round.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"
#include "tests/scale.h"
#include "tests/support/sim_faults.h"
#include "tests/support/sim_group.h"

namespace reverie {
namespace {

constexpr char kFunction[] = "reverie.accumulator.g::model";
constexpr std::size_t kNumbers = 4;  // contributions, skipped, samples, gradient

constexpr Duration ms(std::int64_t count) {
  return std::chrono::milliseconds(count);
}

// What all members together have observed.
struct Oracle {
  using Slot = std::pair<AccumulatorKey, std::uint64_t>;
  std::map<AccumulatorKey, std::string> leaders;
  std::map<std::uint64_t, std::int64_t> models;  // by lineage
  std::map<Slot, std::map<std::string, std::array<std::int64_t, kNumbers>>> brought;
  std::map<Slot, std::array<std::int64_t, kNumbers>> sums;
  std::map<std::uint64_t, std::size_t> members;  // by membership
  bool begins_fail = false;                      // make some begins fail, as if out of memory
  int steps = 0;
  int states = 0;
  int uncopied = 0;  // states that were passed on from the memory that they arrived in
  // By generation: how many states each member sent, and whose programs provided the model.
  std::map<AccumulatorKey, std::map<std::string, int>> sent;
  std::map<AccumulatorKey, std::set<std::string>> givers;
  int bad_rounds = 0;
  int restarts = 0;
  std::string wrong;
};

class SimTrainer final : public SimPeer {
 public:
  SimTrainer(sim::Network& network, sim::NodeId node, const std::string& name, Oracle& oracle)
      : SimPeer(network, node, name),
        oracle_(oracle),
        group_(options(network, name)),
        core_(core_options(network, name)),
        name_(name) {
    EXPECT_TRUE(peer().define(group_function("g")).ok());
    EXPECT_TRUE(peer().define(kFunction).ok());
    model_ = static_cast<std::int64_t>(network.random().below(1u << 30u));
    oracle_.models[core_.lineage()] = model_;
    core_.set_virtual_batch_size(24, now());
    core_.set_parallel(1 + network.random().below(2), now());
    group_.join(now());
  }

  AccumulatorCore& core() { return core_; }
  GroupCore& group() { return group_; }
  std::int64_t model() const { return model_; }
  std::uint64_t steps() const { return steps_; }
  bool advances = true;
  bool contributes = true;

  // What a program does that loads a checkpoint during a training.
  void set_new_model(std::uint64_t lineage) {
    model_ = static_cast<std::int64_t>(lineage % 1'000'003);
    core_.set_version(core_.version(), lineage, now());
    see_model();
    see();
    settle();
  }

  // One iteration of a program's loop, at the program's pace.
  void advance() {
    core_.advance(now());
    group_.advance(now());
    if (!is_busy_) {
      if (const std::optional<AccumulatorCore::State> state = core_.take_state(now())) {
        take_state(*state);
      } else if (const auto taken = core_.take_result(now())) {
        take_result(*taken);
      }
    } else if (network().random().below(3) != 0) {
      is_busy_ = false;  // the step is done
    }
    if (!is_busy_ && core_.wants_state() && network().random().below(4) != 0) {
      Payload value;
      ValueWriter writer(value);
      writer.begin(ValueKind::kTuple, 2);
      writer.integer(model_);
      const std::int64_t shape[] = {1};
      writer.tensor(DType::kInt64, shape, std::as_bytes(std::span(&model_, 1)),
                    TensorMaker::kNumpy);
      oracle_.givers[core_.key()].insert(name_);
      EXPECT_TRUE(core_.give_state(value, network().random().below(16) == 0, now()).ok());
    }
    const bool is_wanted = contributes && !is_busy_ && core_.wants_gradients();
    if (is_wanted && network().random().below(3) != 0) {
      const auto samples = static_cast<std::int64_t>(1 + network().random().below(16));
      const auto gradient = static_cast<std::int64_t>(network().random().below(1u << 20u));
      mine_[0] += 1;
      mine_[2] += samples;
      mine_[3] += samples * gradient;
      core_.contribute(static_cast<std::uint64_t>(samples), now());
    }
    see();
  }

 private:
  struct Running {
    Oracle::Slot slot;
    std::shared_ptr<const ReduceLayout> layout;
    std::shared_ptr<Buffer> buffer;
  };

  static MemberCore::Options options(sim::Network& network, const std::string& name) {
    MemberCore::Options made;
    made.group = "g";
    made.self = {name, network.random().next(), 0};
    return made;
  }
  static AccumulatorCore::Options core_options(sim::Network& network, const std::string& name) {
    AccumulatorCore::Options made;
    made.name = name;
    made.title = "model";
    made.function = kFunction;
    made.average = "sum";
    made.signature = {"int64[1]"};
    made.lineage = network.random().next();
    made.kept_max = 4;
    return made;
  }

  void on_request(Request request) override {
    if (request.function != kFunction) return group_.on_request(std::move(request), now());
    follow_membership();
    Result<Payload> answer =
        core_.on_request(request.caller, std::move(request.message.payload), now());
    see();
    if (answer.ok()) return peer().answer(request.id, std::move(*answer), now());
    peer().fail(request.id, {answer.status().code(), "", answer.status().message(), ""}, now());
  }

  void on_result(CallId call, CallResult result) override {
    const auto place = tickets_.find(call);
    ASSERT_NE(place, tickets_.end());
    const auto [is_group, ticket] = place->second;
    tickets_.erase(place);
    if (is_group) return group_.on_answered(ticket, std::move(result), now());
    follow_membership();
    core_.on_answered(ticket, result.kind == CallResult::Kind::kAnswer ? &result.payload : nullptr,
                      now());
    see();
  }

  void step() override {
    if (group_.next_tick() <= now()) group_.tick(now());
    follow_membership();
    if (advances && next_advance_ <= now()) {
      const bool is_long = network().random().below(200) == 0;
      const auto most = static_cast<std::int64_t>(is_long ? 1'000'000'000 : 8'000'000);
      next_advance_ = now() + Duration(static_cast<std::int64_t>(
                                  network().random().below(static_cast<std::uint64_t>(most))));
      advance();
    }
    take_ends();
    if (core_.next_tick() <= now()) core_.tick(now());
    while (const auto begin = core_.round_to_begin(now())) {
      begin_round(*begin);
      take_ends();
    }
    if (core_.next_tick() <= now()) core_.tick(now());
    see();
    for (GroupCore::Outgoing& out : group_.take_outgoing()) carry_out(std::move(out));
    for (AccumulatorCore::Outgoing& out : core_.take_outgoing()) {
      const auto message = decode_accumulator_message(out.payload);
      ASSERT_TRUE(message.ok());
      if (message->kind == AccumulatorMessageKind::kState) {
        ++oracle_.sent[message->key][name_];
        for (const BulkPiece& piece : out.payload.bulk) sent_memory_.insert(piece.keep);
      }
      const auto call =
          peer().call(out.peer, kFunction, std::move(out.payload), {out.deadline, false}, now());
      ASSERT_TRUE(call.ok()) << call.status().to_string();
      tickets_[*call] = {false, out.ticket};
    }
  }

  TimePoint next_step() const override {
    const TimePoint next = std::min(group_.next_tick(), core_.next_tick());
    return advances ? std::min(next, next_advance_) : next;
  }

  void follow_membership() {
    const Membership& membership = group_.membership();
    if (membership.epoch > 0) oracle_.members[membership.id] = membership.members.size();
    core_.on_membership(membership, now());
    see();
  }

  // Checks the invariants of every step, and drops state of other generations.
  void see() {
    if (core_.key() != key_) {
      key_ = core_.key();
      if (key_.generation > 0) ++oracle_.restarts;
      mine_ = {};
      for (const auto& [id, running] : running_) {
        group_.give_up(id, cancelled("the generation is over"), now());
      }
      running_.clear();
      results_.clear();
    }
    if (!core_.leader().empty()) {
      const auto [place, is_new] = oracle_.leaders.emplace(key_, core_.leader());
      if (place->second != core_.leader()) oracle_.wrong = "two leaders of one generation";
    }
    if (core_.version() < version_) oracle_.wrong = "a version went back";
    version_ = core_.version();
  }

  void begin_round(const AccumulatorCore::Begin& begin) {
    const Membership& membership = group_.membership();
    if (!begin.is_again) {
      brought_ = {begin.mine.contributions, begin.mine.skipped, begin.mine.samples, mine_[3]};
      if (begin.mine.contributions != mine_[0] || begin.mine.samples != mine_[2]) {
        oracle_.wrong = "a round begins without a contribution that was made, or with another";
      }
      mine_ = {};
    }
    const ReduceLeaf leaf{"numbers",
                          DType::kInt64,
                          {static_cast<std::int64_t>(kNumbers)},
                          std::as_bytes(std::span(brought_))};
    const std::size_t count = membership.members.size();
    auto layout = ReduceLayout::make(ReduceOp::kSum, {&leaf, 1}, count);
    ASSERT_TRUE(layout.ok());
    Running running;
    running.slot = {begin.key, begin.slot};
    running.layout = std::make_shared<const ReduceLayout>(std::move(*layout));
    auto buffer = Allocator::heap().allocate(running.layout->size_bytes());
    ASSERT_TRUE(buffer.ok());
    running.layout->load({&leaf, 1}, {buffer->data(), buffer->size_bytes()});
    running.buffer = std::make_shared<Buffer>(std::move(*buffer));
    const auto index = membership.index_of(name_);
    ASSERT_TRUE(index.has_value());
    Status status;
    if (oracle_.begins_fail && network().random().below(2000) == 0) {
      status = Status(StatusCode::kResourceExhausted, "no memory");
    } else {
      const auto id =
          group_.begin(begin.round, begin.key.membership,
                       std::make_shared<ReduceRound>(running.layout, running.buffer, *index, count),
                       TimePoint::max(), now());
      status = id.status();
      if (id.ok()) {
        const auto [place, is_new] = oracle_.brought[running.slot].emplace(name_, brought_);
        if (!is_new) oracle_.wrong = "a member brings twice to one round";
        running_.emplace(*id, std::move(running));
      }
    }
    core_.on_begun(begin, status, now());
    see();
  }

  void take_ends() {
    for (const GroupCore::Ended& ended : group_.take_ended()) {
      const auto node = running_.extract(ended.id);
      if (!node) continue;
      const Running& running = node.mapped();
      AccumulatorCore::Counts totals;
      if (ended.status.ok()) {
        std::array<std::int64_t, kNumbers> sum{};
        running.layout->unload(0, running.buffer->bytes(),
                               reinterpret_cast<std::byte*>(sum.data()));
        check_sum(running.slot, sum);
        totals = {sum[0], sum[1], sum[2]};
        results_[running.slot.second] = sum;
      } else {
        ++oracle_.bad_rounds;
      }
      core_.on_round_ended(running.slot.first, running.slot.second, ended.status, totals, now());
      see();
    }
  }

  void check_sum(const Oracle::Slot& slot, const std::array<std::int64_t, kNumbers>& sum) {
    const auto [place, is_new] = oracle_.sums.emplace(slot, sum);
    if (place->second != sum) oracle_.wrong = "two sums of one round";
    std::array<std::int64_t, kNumbers> expected{};
    const auto& brought = oracle_.brought[slot];
    if (brought.size() != oracle_.members[slot.first.membership]) {
      oracle_.wrong = "a round ended without a member";
    }
    for (const auto& [member, numbers] : brought) {
      for (std::size_t i = 0; i < kNumbers; ++i) expected[i] += numbers[i];
    }
    if (sum != expected) oracle_.wrong = "a sum is wrong";
    if (sum[2] < 24) oracle_.wrong = "a round ended before the virtual batch was full";
  }

  void take_result(const AccumulatorCore::Taken& taken) {
    const auto node = results_.extract(taken.slot);
    if (node.empty()) {
      oracle_.wrong = "a result is taken that is not there";
      return;
    }
    model_ = 31 * model_ % 1'000'003 + node.mapped()[3] % 1'000'003;
    is_busy_ = true;
    ++steps_;
    ++oracle_.steps;
    see_model();
  }

  void take_state(const AccumulatorCore::State& state) {
    ValueReader reader(state.value);
    ASSERT_TRUE(reader.next().ok());  // the tuple
    const auto token = reader.next();
    ASSERT_TRUE(token.ok());
    model_ = token->integer;
    ASSERT_EQ(state.value.bulk.size(), 1u);
    if (sent_memory_.contains(state.value.bulk.front().keep)) {
      ++oracle_.uncopied;
      if (!state.is_passed_on) {
        oracle_.wrong = "a program may write to memory that is sent to others";
      }
    }
    ++oracle_.states;
    see_model();
  }

  void see_model() {
    const auto [place, is_new] = oracle_.models.emplace(core_.lineage(), model_);
    if (place->second != model_) oracle_.wrong = "two models of one lineage";
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
    tickets_[*call] = {true, out.ticket};
  }

  Oracle& oracle_;
  GroupCore group_;
  AccumulatorCore core_;
  const std::string name_;
  std::map<CallId, std::pair<bool, std::uint64_t>> tickets_;  // first: whether it is the group's
  std::int64_t model_ = 0;
  std::uint64_t version_ = 0;
  std::uint64_t steps_ = 0;
  std::set<std::shared_ptr<const void>> sent_memory_;
  bool is_busy_ = false;
  TimePoint next_advance_{};
  AccumulatorKey key_;
  std::array<std::int64_t, kNumbers> mine_{};     // contributed to the open round
  std::array<std::int64_t, kNumbers> brought_{};  // contributed to the round that begins
  std::map<RoundId, Running> running_;
  std::map<std::uint64_t, std::array<std::int64_t, kNumbers>> results_;
};

using World = SimWorld<SimTrainer, Oracle>;

// Whether all members have a leader and its model.
bool agree(World& world) {
  std::set<std::int64_t> models;
  std::set<std::uint64_t> lineages;
  for (std::size_t i = 0; i < world.size(); ++i) {
    SimTrainer* const member = world.member(i);
    if (member == nullptr || member->core().leader().empty() || !member->core().has_model()) {
      return false;
    }
    models.insert(member->model());
    lineages.insert(member->core().lineage());
  }
  return models.size() == 1 && lineages.size() == 1;
}

struct Outcome {
  std::uint64_t trace = 0;
  Oracle oracle;
  Duration healed{};
};

constexpr Duration kHealMax = std::chrono::seconds(12);

constexpr std::size_t kFaultyMembers = 4;
constexpr TimePoint kFaultsEnd{4'000'000'000};

std::vector<SimFault> faults_of(std::uint64_t seed) {
  return draw_faults(seed ^ 0xacc, kFaultsEnd, ms(300), kFaultyMembers + 1);
}

// 4 simulated seconds with faults, then none until all members continue with one model.
Outcome run(std::uint64_t seed, const std::vector<SimFault>& faults) {
  sim::NetworkOptions faulty;
  faulty.cut_share = 0.004;
  World world(seed, kFaultyMembers, faulty);
  world.oracle.begins_fail = true;
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
    } else if (act < 0.85 && world.member(who) != nullptr) {
      world.member(who)->set_new_model(value);
    } else if (act < 0.9 && world.member(who) != nullptr) {
      world.member(who)->advances = !world.member(who)->advances;
    }
    // Otherwise time passes without a fault.
  }
  world.run(kFaultsEnd - world.network.now());
  world.network.heal();
  world.network.set_options({});
  if (!world.has_broker()) world.start_broker();
  for (std::size_t i = 0; i < kFaultyMembers; ++i) {
    if (world.member(i) == nullptr) world.start(i);
    world.member(i)->advances = true;
    world.member(i)->settle();
  }
  std::array<std::uint64_t, kFaultyMembers> before{};
  for (std::size_t i = 0; i < kFaultyMembers; ++i) before[i] = world.member(i)->steps();
  const auto all_go_on = [&] {
    if (!world.oracle.wrong.empty()) return true;
    for (std::size_t i = 0; i < kFaultyMembers; ++i) {
      if (world.member(i)->steps() < before[i] + 3) return false;
    }
    return true;
  };
  Outcome outcome;
  outcome.healed = world.time_until(all_go_on, kHealMax);
  // Without contributions, open rounds end, and all members get one model.
  for (std::size_t i = 0; i < kFaultyMembers; ++i) world.member(i)->contributes = false;
  world.run(ms(3000));
  // Members whose programs pause may take the length of two more long calls.
  world.time_until([&] { return agree(world); }, kHealMax);
  Oracle& oracle = world.oracle;
  if (oracle.wrong.empty() && outcome.healed >= kHealMax) {
    oracle.wrong = "they do not go on in a well group";
    for (std::size_t i = 0; i < kFaultyMembers; ++i) {
      AccumulatorCore& core = world.member(i)->core();
      oracle.wrong += format(
          "\nm{}: {} more, leader '{}', membership {:x} of {}, generation {}, open {}, {}, {}", i,
          world.member(i)->steps() - before[i], core.leader(), core.key().membership,
          core.member_count(), core.key().generation, core.open_slot(), core.why_waiting(),
          world.member(i)->group().why_waiting(world.network.now()));
    }
  }
  if (oracle.wrong.empty() && !agree(world)) oracle.wrong = "they end with different models";
  outcome.trace = world.network.trace();
  outcome.oracle = oracle;
  return outcome;
}

TEST(AccumulatorsOnASimulatedNetwork, SumExactlyTheContributionsAndDoNotDrift) {
  const int seeds = static_cast<int>(scaled_in_release(1'000, 10'000));
  int steps = 0;
  int states = 0;
  int bad = 0;
  int restarts = 0;
  Duration slowest{};
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    const Outcome outcome = run(number, faults_of(number));
    ASSERT_EQ(outcome.oracle.wrong, "")
        << "seed " << seed << ", with these faults alone:"
        << fewest_faults(faults_of(number), [number](const std::vector<SimFault>& faults) {
             return run(number, faults).oracle.wrong;
           });
    steps += outcome.oracle.steps;
    states += outcome.oracle.states;
    bad += outcome.oracle.bad_rounds;
    restarts += outcome.oracle.restarts;
    slowest = std::max(slowest, outcome.healed);
  }
  // Faults have an effect, and training continues nevertheless.
  EXPECT_GT(bad, seeds / 2);
  EXPECT_GT(states, 2 * seeds);
  EXPECT_GT(restarts, seeds / 2);
  EXPECT_GT(steps, 50 * seeds);
  RecordProperty("slowest_ms", static_cast<int>(slowest.count() / 1'000'000));
  if (std::getenv("REVERIE_SHOWS") != nullptr) {
    std::printf("steps %d, states %d, bad rounds %d, restarts %d, slowest %d ms\n", steps, states,
                bad, restarts, static_cast<int>(slowest.count() / 1'000'000));
  }
}

TEST(AccumulatorsOnASimulatedNetwork, TheSameSeedGivesTheSameRun) {
  const auto trace = [](std::uint64_t seed) { return run(seed, faults_of(seed)).trace; };
  EXPECT_EQ(trace(1), trace(1));
  EXPECT_NE(trace(1), trace(2));
}

SimTrainer* follower_of(World& world) {
  for (std::size_t i = 0; i < world.size(); ++i) {
    if (!world.member(i)->core().is_leader()) return world.member(i);
  }
  return nullptr;
}

// Such a program may be stopped in a debugger: its process still answers.
TEST(AccumulatorsOnASimulatedNetwork, ContinueWithoutAProgramThatHangsForAMinute) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    World world(seed, 4, {});
    world.run(ms(1000));
    SimTrainer* const still = follower_of(world);
    still->advances = false;
    const AccumulatorKey key = still->core().key();
    for (int second = 0; second < 60; second += 3) {  // a leader's program may compute for 1 s
      std::array<std::uint64_t, 4> before{};
      for (std::size_t i = 0; i < 4; ++i) before[i] = world.member(i)->steps();
      world.run(ms(3000));
      for (std::size_t i = 0; i < 4; ++i) {
        if (world.member(i) == still) continue;
        EXPECT_GT(world.member(i)->steps(), before[i]) << seed << ": m" << i << ", " << second;
      }
    }
    EXPECT_EQ(still->group().membership().members.size(), 4u);
    EXPECT_EQ(still->core().key(), key);  // there was no new vote
    const int states = world.oracle.states;
    const std::uint64_t version = still->core().version();
    still->advances = true;
    still->settle();
    world.run(ms(3000));
    EXPECT_GT(world.oracle.states, states) << seed;
    EXPECT_GT(still->core().version(), version + 100) << seed;
    for (std::size_t i = 0; i < 4; ++i) world.member(i)->contributes = false;
    world.run(ms(4000));
    EXPECT_TRUE(agree(world)) << seed;
    EXPECT_EQ(world.oracle.wrong, "");
  }
}

SimTrainer* leader_of(World& world) {
  for (std::size_t i = 0; i < world.size(); ++i) {
    if (world.member(i)->core().is_leader()) return world.member(i);
  }
  return nullptr;
}

// Rounds go on without the leader's program until it can keep no more results; then another leads.
TEST(AccumulatorsOnASimulatedNetwork, ContinueWhenTheProgramOfTheLeaderHangs) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(seed, 4, {});
    world.run(ms(1000));
    SimTrainer* const still = leader_of(world);
    ASSERT_NE(still, nullptr);
    still->advances = false;
    for (int second = 0; second < 12; second += 4) {  // 2 s until it resigns, 1 s for a long step
      std::array<std::uint64_t, 4> before{};
      for (std::size_t i = 0; i < 4; ++i) before[i] = world.member(i)->steps();
      world.run(ms(4000));
      for (std::size_t i = 0; i < 4; ++i) {
        if (world.member(i) == still) continue;
        EXPECT_GT(world.member(i)->steps(), before[i]) << seed << ": m" << i << ", " << second;
      }
    }
    EXPECT_EQ(still->group().membership().members.size(), 4u);
    EXPECT_FALSE(still->core().is_leader());
    const std::uint64_t version = still->core().version();
    still->advances = true;
    still->settle();
    world.run(ms(3000));
    EXPECT_GT(still->core().version(), version + 50) << seed;
    for (std::size_t i = 0; i < 4; ++i) world.member(i)->contributes = false;
    world.run(ms(4000));
    EXPECT_TRUE(agree(world)) << seed;
    EXPECT_EQ(world.oracle.wrong, "");
  }
}

// A new member needs the model from a program that is not hanging.
TEST(AccumulatorsOnASimulatedNetwork, GiveTheModelToAJoinerWhenTheLeadersProgramHangs) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(seed, 4, {});
    world.run(ms(1000));
    SimTrainer* const still = leader_of(world);
    ASSERT_NE(still, nullptr);
    const std::size_t joiner = world.member(0) == still ? 1 : 0;
    world.kill(joiner);
    for (std::size_t i = 0; i < 4; ++i) {  // without rounds the leader does not resign
      if (i != joiner) world.member(i)->contributes = false;
    }
    world.run(ms(4000));
    SimTrainer* leads = nullptr;
    for (std::size_t i = 0; i < 4; ++i) {
      if (i != joiner && world.member(i)->core().is_leader()) leads = world.member(i);
    }
    ASSERT_NE(leads, nullptr) << seed;
    leads->advances = false;
    world.start(joiner);
    const auto has_model = [&] {
      const AccumulatorCore& core = world.member(joiner)->core();
      return !core.leader().empty() && core.has_model();
    };
    EXPECT_LE(world.time_until(has_model, ms(20'000)), ms(1500)) << seed;
    EXPECT_TRUE(leads->core().is_leader()) << seed;  // so another member's program gave the model
    EXPECT_EQ(leads->group().membership().members.size(), 4u);
    leads->advances = true;
    leads->settle();
    for (std::size_t i = 0; i < 4; ++i) world.member(i)->contributes = true;
    world.run(ms(2000));
    for (std::size_t i = 0; i < 4; ++i) world.member(i)->contributes = false;
    world.run(ms(4000));
    EXPECT_TRUE(agree(world)) << seed;
    EXPECT_EQ(world.oracle.wrong, "");
  }
}

// Sixteen members start with different models: no member sends the chosen one to most others.
TEST(AccumulatorsOnASimulatedNetwork, GiveTheModelToManyMembersByATree) {
  constexpr std::size_t kMany = 16;
  std::size_t givers = 0;
  int uncopied = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world(seed, kMany, {});
    for (std::size_t i = 0; i < kMany; ++i) world.member(i)->contributes = false;
    const auto all_have_it = [&] {
      for (std::size_t i = 0; i < kMany; ++i) {
        const AccumulatorCore& core = world.member(i)->core();
        if (core.member_count() != kMany || core.leader().empty() || !core.has_model()) {
          return false;
        }
      }
      return true;
    };
    EXPECT_LE(world.time_until(all_have_it, ms(20'000)), ms(3000)) << seed;
    const AccumulatorKey key = world.member(0)->core().key();
    int sent = 0;
    int most = 0;
    for (const auto& [member, count] : world.oracle.sent[key]) {
      sent += count;
      most = std::max(most, count);
    }
    EXPECT_LE(most, 8) << seed;
    EXPECT_LE(sent, static_cast<int>(kMany) + 4) << seed;
    givers = std::max(givers, world.oracle.givers[key].size());
    uncopied += world.oracle.uncopied;
    EXPECT_EQ(world.oracle.wrong, "");
  }
  EXPECT_GT(givers, 2u);
  EXPECT_GT(uncopied, 0);  // a model may have gigabytes, so no message's handler copies it
}

// The half with the broker continues; the other half takes no step, and reports why.
TEST(AccumulatorsOnASimulatedNetwork, TrainInOneHalfOfAPartitionedGroup) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    World world(seed, 4, {});
    world.run(ms(1000));
    for (const std::size_t here : {0u, 1u, 2u}) {  // the broker, m0 and m1
      for (const std::size_t there : {3u, 4u}) {
        world.network.partition(here, there);
        world.network.partition(there, here);
      }
    }
    world.run(ms(4000));
    // A member whose program paused may get the model instead of taking the steps it missed.
    const std::uint64_t here = world.member(0)->core().version();
    const std::uint64_t there = world.member(3)->steps();
    world.run(ms(3000));
    EXPECT_GT(world.member(0)->core().version(), here + 10) << seed;
    EXPECT_EQ(world.member(3)->steps(), there) << seed;
    const std::string why = world.member(3)->group().why_waiting(world.network.now());
    EXPECT_NE(why.find("broker"), std::string::npos) << why;
    world.network.heal();
    const auto all_train = [&] {
      return world.member(3)->steps() > there + 5 && world.member(2)->core().has_model();
    };
    EXPECT_LE(world.time_until(all_train, ms(12'000)), ms(6000)) << seed;
    for (std::size_t i = 0; i < 4; ++i) world.member(i)->contributes = false;
    world.run(ms(4000));
    EXPECT_TRUE(agree(world)) << seed;
    EXPECT_EQ(world.oracle.wrong, "");
  }
}

// A contribution to a healthy group is soon in a model, and idle members send no messages.
TEST(AccumulatorsOnASimulatedNetwork, SendNoMessagesWhenIdle) {
  World world(3, 3, {});
  world.run(ms(1000));
  for (std::size_t i = 0; i < 3; ++i) world.member(i)->contributes = false;
  world.run(ms(3000));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(world.member(i)->core().next_tick(), TimePoint::max()) << i;
    EXPECT_EQ(world.member(i)->core().why_waiting(), "") << i;
  }
}

}  // namespace
}  // namespace reverie
