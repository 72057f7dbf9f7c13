// The logic of weights on a simulated network: one peer publishes, others on several hosts take the
// weights, wait for more, die, restart and are partitioned; so does the publisher.
//
// Invariants of every run: a peer has one version, exactly as it was published; its versions
// increase, though a restarted publisher may begin with a lower number; and no peer sends to more
// than kFanOut others. Once the network is healthy again, all
// peers get the newest version.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/tensor/value_writer.h"
#include "reverie/weights/version_memory.h"
#include "reverie/weights/weights_core.h"
#include "tests/scale.h"
#include "tests/support/sim_faults.h"
#include "tests/support/sim_peer.h"

namespace reverie {
namespace {

constexpr std::size_t kBlocks = 12;
constexpr std::size_t kSize = kBlocks * kChangedBlock - 50;
constexpr std::size_t kHosts = 4;

// A run of the publisher, and the version in it.
using Number = std::pair<std::uint64_t, std::uint64_t>;

// What all peers together have observed.
struct Seen {
  std::map<Number, std::vector<std::byte>> published;
  std::vector<std::byte> newest;
  Number newest_version{1, 0};
  // The shared memory of hosts, by nonce.
  std::map<std::uint64_t, std::weak_ptr<const WeightsVersion>> memory;
  int mapped = 0;
  int sent_changes = 0;
  int sent_elsewhere = 0;
  std::string wrong;
};

class SimWeights final : public SimPeer {
 public:
  SimWeights(sim::Network& network, sim::NodeId node, const std::string& name, Seen& seen)
      : SimPeer(network, node, name), seen_(seen), core_(options(name)) {
    EXPECT_TRUE(peer().define("weights").ok());
    waits_ = node % 2 == 0;
  }

  // A publisher starts again from an earlier version, as from a checkpoint.
  static void begin_run(Seen& seen, std::uint64_t forgotten) {
    Number& newest = seen.newest_version;
    newest = {newest.first + 1, newest.second - std::min(newest.second, forgotten)};
  }

  WeightsCore& core() { return core_; }
  Number version() const {
    return core_.held().about ? Number{core_.held().run, core_.held().about->version} : Number();
  }
  bool is_publisher() const { return node() == 0; }

  // Changes some blocks of the newest version, sometimes all.
  void publish() {
    Random& draw = network().random();
    std::vector<std::byte>& bytes = seen_.newest;
    bytes.resize(kSize);
    const std::uint64_t changes = draw.below(4) == 0 ? 200 : draw.below(6);
    for (std::uint64_t i = 0; i < changes; ++i) {
      bytes[draw.below(kSize)] = static_cast<std::byte>(draw.below(256));
    }
    const std::uint64_t version = ++seen_.newest_version.second;
    seen_.published[seen_.newest_version] = bytes;
    Payload payload;
    ValueWriter writer(payload);
    const std::int64_t shape[] = {static_cast<std::int64_t>(kSize)};
    writer.tensor(DType::kUInt8, shape, bytes, TensorMaker::kNumpy);
    HeldVersion made = shared(*copy_version(version, payload));
    if (core_.held().about) {
      if (auto changed = find_changes(*core_.held().about, *made.about)) {
        made.changes = std::make_shared<const WeightsChanges>(std::move(*changed));
      }
    }
    core_.publish(std::move(made), now());
    settle();
  }

 private:
  WeightsCore::Options options(const std::string& name) {
    WeightsCore::Options made;
    made.name = "w";
    made.self = name;
    made.host = "host " + std::to_string(node() % kHosts);
    made.run = seen_.newest_version.first;
    if (node() > 0) made.sources = {"w0"};
    if (node() > 2) made.sources.push_back("w1");
    made.reach = [this] {  // a fifth of the peers do not listen
      return node() % 5 == 4 ? WeightsRequest::Reach::kNone : WeightsRequest::Reach::kAll;
    };
    made.others = [this] {
      std::vector<std::string> names;
      for (const PeerInfo& info : peer().peers()) {
        if (info.is_connected) names.push_back(info.name);
      }
      return names;
    };
    made.is_connected = [this](const std::string& other) {
      for (const PeerInfo& info : peer().peers()) {
        if (info.is_connected && info.name == other) return true;
      }
      return false;
    };
    made.map = [this](const WeightsPlace& place, std::uint64_t version) -> Result<HeldVersion> {
      const auto found = seen_.memory.find(place.nonce[0]);
      const auto about = found == seen_.memory.end() ? nullptr : found->second.lock();
      const bool is_gone = !about || about->version != version || network().random().below(10) == 0;
      if (is_gone) return unavailable("it is gone");
      ++seen_.mapped;
      HeldVersion held;
      held.about = about;
      held.place = place;
      return held;
    };
    made.share = [this](HeldVersion version) { return shared(std::move(version)); };
    return made;
  }

  HeldVersion shared(HeldVersion version) {
    version.place = {1, 1, {network().random().next(), 0}};
    seen_.memory[version.place.nonce[0]] = version.about;
    return version;
  }

  void check() {
    const HeldVersion& held = core_.held();
    if (!held.about) return;
    if (version() < last_) seen_.wrong = "a version went back";
    if (version() == last_) return;
    last_ = version();
    const auto& right = seen_.published[last_];
    const auto bytes = held.about->value.bulk.front().bytes;
    if (bytes.size() != right.size() ||
        std::memcmp(bytes.data(), right.data(), right.size()) != 0) {
      seen_.wrong = "a version is not what was published";
    }
  }

  void on_request(Request request) override { core_.on_request(request, now()); }
  void on_withdrawn(InboundId request) override { core_.on_withdrawn(request); }
  void on_result(CallId call, CallResult result) override {
    const auto ticket = tickets_.find(call);
    if (ticket == tickets_.end()) return;
    const std::uint64_t number = ticket->second;
    tickets_.erase(ticket);
    if (result.kind == CallResult::Kind::kAnswer) {
      const auto answer = decode_weights_answer(result.payload);
      ASSERT_TRUE(answer.ok());
      seen_.sent_changes += answer->kind == WeightsAnswer::Kind::kChanged ? 1 : 0;
      seen_.sent_elsewhere += answer->kind == WeightsAnswer::Kind::kElsewhere ? 1 : 0;
    }
    core_.on_answered(number, result, now());
    take_outgoing();
  }
  // Copies are made at once; the rest leaves with the next step.
  void take_outgoing() {
    for (WeightsCore::Outgoing& out : core_.take_outgoing()) {
      if (out.kind == WeightsCore::Outgoing::Kind::kCopy) {
        core_.on_copied(out.ticket, out.copy(), now());
      } else {
        outgoing_.push_back(std::move(out));
      }
    }
  }
  void step() override {
    if (core_.next_tick() <= now()) core_.tick(now());
    take_ended();
    if (!is_publisher() && asked_ == 0 && now() >= next_ask_) {
      const std::uint64_t newer = core_.held().about ? version().second + 1 : 0;
      const Duration limit = std::chrono::seconds(waits_ ? 5 : 2);
      asked_ = core_.ask(newer, waits_, now() + limit, now());
      take_ended();
    }
    check();
    if (core_.child_count() > WeightsCore::kFanOut + kNeighbours) seen_.wrong = "too many children";
    take_outgoing();
    for (WeightsCore::Outgoing& out : std::exchange(outgoing_, {})) carry_out(std::move(out));
  }
  TimePoint next_step() const override {
    return std::min(core_.next_tick(), asked_ == 0 && node() > 0 ? next_ask_ : TimePoint::max());
  }
  void take_ended() {
    for (const WeightsCore::Ended& ended : core_.take_ended()) {
      if (ended.ask != asked_) continue;
      asked_ = 0;
      next_ask_ = now() + Duration(static_cast<std::int64_t>(
                              network().random().below(waits_ ? 1'000'000 : 100'000'000)));
    }
  }
  void carry_out(WeightsCore::Outgoing out) {
    switch (out.kind) {
      case WeightsCore::Outgoing::Kind::kAnswer:
        return peer().answer(out.request, std::move(out.payload), now());
      case WeightsCore::Outgoing::Kind::kFail:
        return peer().fail(out.request, out.error, now());
      case WeightsCore::Outgoing::Kind::kCancel:
        for (const auto& [call, ticket] : tickets_) {
          if (ticket != out.ticket) continue;
          const CallId gone = call;
          tickets_.erase(call);
          return peer().cancel(gone, now());
        }
        return;
      case WeightsCore::Outgoing::Kind::kCopy:  // was made
      case WeightsCore::Outgoing::Kind::kCall:
        break;
    }
    const auto call =
        peer().call(out.peer, "weights", std::move(out.payload), {out.deadline, false}, now());
    ASSERT_TRUE(call.ok()) << call.status().to_string();
    tickets_[*call] = out.ticket;
  }

  static constexpr std::size_t kNeighbours = 6;  // the most that map the memory

  Seen& seen_;
  WeightsCore core_;
  std::map<CallId, std::uint64_t> tickets_;
  std::vector<WeightsCore::Outgoing> outgoing_;
  WeightsCore::InquiryId asked_ = 0;
  TimePoint next_ask_{};
  bool waits_ = false;
  Number last_;
};

class WeightsWorld {
 public:
  WeightsWorld(std::uint64_t seed, std::size_t peers, sim::NetworkOptions options)
      : network(seed, options), peers_(peers) {
    for (std::size_t i = 0; i < peers; ++i) network.add(nullptr);
    for (std::size_t i = 0; i < peers; ++i) start(i);
  }
  void start(std::size_t i) {
    if (i == 0) SimWeights::begin_run(seen, network.random().below(4));
    peers_[i] = std::make_unique<SimWeights>(network, i, "w" + std::to_string(i), seen);
    network.replace(i, peers_[i].get());
    if (i % 5 != 4) peers_[i]->listen("10.0.0." + std::to_string(i + 1) + ":1");
    if (i > 0) peers_[i]->connect("10.0.0.1:1");
    if (i > 2) peers_[i]->connect("10.0.0.2:1");
  }
  void kill(std::size_t i) {
    network.kill(i);
    peers_[i].reset();
  }
  SimWeights* peer(std::size_t i) { return peers_[i].get(); }
  std::size_t size() const { return peers_.size(); }
  void run(Duration duration) {
    const TimePoint until = network.now() + duration;
    while (network.now() < until && seen.wrong.empty() && network.step()) {
    }
  }
  bool have_all(const Number& version) {
    for (const auto& peer : peers_) {
      if (peer && peer->version() < version) return false;
    }
    return true;
  }
  Duration time_until_all_have(const Number& version, Duration limit) {
    const TimePoint begin = network.now();
    while (!have_all(version) && network.now() - begin < limit && network.step()) {
    }
    return network.now() - begin;
  }

  sim::Network network;
  Seen seen;

 private:
  std::vector<std::unique_ptr<SimWeights>> peers_;
};

struct Outcome {
  std::uint64_t trace = 0;
  Seen seen;
  Duration healed{};
};

constexpr std::size_t kPeers = 12;
constexpr TimePoint kFaultsEnd{4'000'000'000};

std::vector<SimFault> faults_of(std::uint64_t seed) {
  return draw_faults(seed ^ 0x77e1, kFaultsEnd, std::chrono::milliseconds(80), kPeers);
}

// 4 simulated seconds with faults, then none.
Outcome run(std::uint64_t seed, const std::vector<SimFault>& faults) {
  constexpr Duration kLimit = std::chrono::seconds(15);
  sim::NetworkOptions faulty;
  faulty.cut_share = 0.003;
  WeightsWorld world(seed, kPeers, faulty);
  for (const auto& [when, act, who, other, value] : faults) {
    world.run(when - world.network.now());
    if (act < 0.15) {
      if (world.peer(who) != nullptr) {
        world.kill(who);
      } else {
        world.start(who);
      }
    } else if (act < 0.25) {
      world.network.partition(who, other);
    } else if (act < 0.45) {
      world.network.heal();
    } else if (world.peer(0) != nullptr) {
      world.peer(0)->publish();
    }
  }
  world.run(kFaultsEnd - world.network.now());
  world.network.heal();
  world.network.set_options({});
  for (std::size_t i = 0; i < kPeers; ++i) {
    if (world.peer(i) == nullptr) world.start(i);
  }
  world.peer(0)->publish();
  const Duration healed = world.time_until_all_have(world.seen.newest_version, kLimit);
  if (world.seen.wrong.empty() && healed >= kLimit) {
    world.seen.wrong = "not all have the newest version after 15 s:";
    for (std::size_t i = 0; i < kPeers; ++i) {
      if (world.peer(i)->version() < world.seen.newest_version) {
        world.seen.wrong += " w" + std::to_string(i) + " has " +
                            std::to_string(world.peer(i)->version().second) + ", sent to '" +
                            world.peer(i)->core().parent() + "'";
      }
    }
  }
  return {world.network.trace(), world.seen, healed};
}

TEST(WeightsOnASimulatedNetwork, AreCompleteAndReachAllPeers) {
  Seen all;
  Duration slowest{};
  const std::uint64_t seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Outcome outcome = run(seed, faults_of(seed));
    ASSERT_EQ(outcome.seen.wrong, "")
        << "seed " << seed << ", with these faults alone:"
        << fewest_faults(faults_of(seed), [seed](const std::vector<SimFault>& faults) {
             return run(seed, faults).seen.wrong;
           });
    all.mapped += outcome.seen.mapped;
    all.sent_changes += outcome.seen.sent_changes;
    all.sent_elsewhere += outcome.seen.sent_elsewhere;
    slowest = std::max(slowest, outcome.healed);
  }
  // Every way of transfer was used.
  EXPECT_GT(all.mapped, 100);
  EXPECT_GT(all.sent_changes, 100);
  EXPECT_GT(all.sent_elsewhere, 100);
  RecordProperty("slowest_ms", static_cast<int>(slowest / std::chrono::milliseconds(1)));
}

TEST(WeightsOnASimulatedNetwork, TheSameSeedGivesTheSameRun) {
  EXPECT_EQ(run(3, faults_of(3)).trace, run(3, faults_of(3)).trace);
}

// Some peers are on the publisher's host, the others on three more hosts.
TEST(WeightsOnASimulatedNetwork, FormATreeThatServesAJoinerWithoutThePublisher) {
  WeightsWorld world(7, kPeers, {});
  world.peer(0)->publish();
  ASSERT_LT(world.time_until_all_have(world.seen.newest_version, std::chrono::seconds(20)),
            std::chrono::seconds(20));
  for (int i = 0; i < 5; ++i) {
    world.peer(0)->publish();
    world.run(std::chrono::milliseconds(200));
  }
  EXPECT_LE(world.peer(0)->core().child_count(), WeightsCore::kFanOut);
  std::size_t below = 0;
  for (std::size_t i = 1; i < kPeers; ++i) {
    below += world.peer(i)->core().parent().empty() ? 0u : 1u;
  }
  EXPECT_GT(below, 2u);
  world.kill(0);
  world.kill(7);
  world.run(std::chrono::milliseconds(50));
  world.start(7);
  EXPECT_LT(world.time_until_all_have(world.seen.newest_version, std::chrono::seconds(15)),
            std::chrono::seconds(15));
  EXPECT_EQ(world.seen.wrong, "");
}

}  // namespace
}  // namespace reverie
