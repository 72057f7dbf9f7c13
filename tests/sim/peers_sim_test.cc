// The logic of peers on a simulated network: calls between five of them, some of which die and come
// back, over streams that are cut at any byte and partitions that swallow what is sent.
//
// Held in every run: a call that may run once runs at most once, over all runs of all peers; a call
// ends once, and by its deadline; an answer is the answer to that call. And once the network is
// well again a call succeeds.
#include <map>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/scale.h"
#include "tests/support/number_values.h"
#include "tests/support/sim_peer.h"

namespace reverie {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(5);

// What all peers together have done.
struct Oracle {
  std::map<std::int64_t, int> runs;  // by a call's own number
  std::map<std::int64_t, TimePoint> open;
  std::set<std::int64_t> idempotent;
  std::int64_t next_number = 1;
  int answers = 0;
  int failures = 0;
  std::string wrong;
};

// Calls "double" of others, and answers it after a while.
class CallingPeer final : public SimPeer {
 public:
  CallingPeer(sim::Network& network, Oracle& oracle, sim::NodeId node, std::string name,
              const std::string& token)
      : SimPeer(network, node, std::move(name), token), oracle_(oracle) {
    EXPECT_TRUE(peer().define("double").ok());
  }
  ~CallingPeer() override {
    // Its calls end with it.
    for (const auto& [id, number] : calls_) oracle_.open.erase(number);
  }

  void call(const std::string& other, bool is_idempotent) {
    const std::int64_t number = oracle_.next_number++;
    if (is_idempotent) oracle_.idempotent.insert(number);
    const auto id = peer().call(other, "double", number_payload(number),
                                {now() + kTimeout, is_idempotent}, now());
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    oracle_.open[number] = now() + kTimeout;
    calls_[*id] = number;
    settle();
  }

 private:
  void on_request(Request request) override {
    const std::int64_t number = number_of(request.message.payload);
    const int runs = ++oracle_.runs[number];
    if (runs > 1 && !oracle_.idempotent.contains(number)) {
      oracle_.wrong = "call " + std::to_string(number) + " ran twice";
    }
    const auto reply = [this, id = request.id, number] {
      peer().answer(id, number_payload(2 * number), now());
      settle();
    };
    const Duration work(static_cast<std::int64_t>(network().random().below(20'000'000)));
    network().at(node(), now() + work, reply);
  }
  void on_result(CallId call, CallResult result) override {
    const auto place = calls_.find(call);
    if (place == calls_.end()) {
      oracle_.wrong = "a call ended twice";
      return;
    }
    const std::int64_t number = place->second;
    calls_.erase(place);
    oracle_.open.erase(number);
    if (result.kind == CallResult::Kind::kAnswer) {
      ++oracle_.answers;
      if (number_of(result.payload) != 2 * number || oracle_.runs[number] == 0) {
        oracle_.wrong = "call " + std::to_string(number) + " has another's answer";
      }
    } else {
      ++oracle_.failures;
    }
  }

  Oracle& oracle_;
  std::map<CallId, std::int64_t> calls_;
};

struct Outcome {
  std::uint64_t trace = 0;
  int answers = 0;
  int failures = 0;
  std::string wrong;
};

// One run: 3 simulated seconds with faults, then enough without for all calls to end.
Outcome run(std::uint64_t seed) {
  constexpr std::size_t kPeers = 5;
  sim::NetworkOptions faulty;
  faulty.cut_share = 0.02;
  sim::Network network(seed, faulty);
  Oracle oracle;
  std::vector<std::unique_ptr<CallingPeer>> peers(kPeers);
  const std::string token = seed % 2 == 0 ? "secret" : "";
  const auto name = [](std::size_t i) { return "p" + std::to_string(i); };
  const auto address = [](std::size_t i) { return "10.0.0." + std::to_string(i + 1) + ":7000"; };
  const auto start = [&](std::size_t i) {
    peers[i] = std::make_unique<CallingPeer>(network, oracle, i, name(i), token);
    network.replace(i, peers[i].get());
    peers[i]->listen(address(i));
    if (i > 0) peers[i]->connect(address(0));
  };
  for (std::size_t i = 0; i < kPeers; ++i) network.add(nullptr);
  for (std::size_t i = 0; i < kPeers; ++i) start(i);

  Random draws(seed ^ 0x5eed);
  const TimePoint faults_end{3'000'000'000};
  TimePoint next_act{};
  const auto random_peer = [&] { return static_cast<std::size_t>(draws.below(kPeers)); };
  while (network.now() < faults_end) {
    if (network.now() < next_act) {
      if (!network.step()) break;
      continue;
    }
    next_act = network.now() + Duration(static_cast<std::int64_t>(draws.below(30'000'000)));
    const std::size_t who = random_peer();
    const double act = draws.uniform();
    if (!peers[who]) {
      if (act < 0.2) start(who);
    } else if (act < 0.75) {
      std::size_t other = random_peer();
      if (other == who) other = (other + 1) % kPeers;
      peers[who]->call(name(other), draws.uniform() < 0.2);
    } else if (act < 0.78) {
      network.kill(who);
      peers[who].reset();
    } else if (act < 0.82) {
      network.partition(who, random_peer());
    } else if (act < 0.9) {
      network.heal();
    }
    // Else time passes.
  }
  network.heal();
  network.set_options({});
  for (std::size_t i = 0; i < kPeers; ++i) {
    if (!peers[i]) start(i);
  }
  const TimePoint well{network.now().ns + 8'000'000'000};
  while (network.now() < well && network.step()) {
  }
  if (oracle.wrong.empty() && !oracle.open.empty()) {
    oracle.wrong = std::to_string(oracle.open.size()) + " calls never ended";
  }
  // The network is well, and all know the first one: each reaches each.
  const int answers = oracle.answers;
  peers[1]->call(name(4), false);
  peers[3]->call(name(2), false);
  const TimePoint end{network.now().ns + 4'000'000'000};
  while (network.now() < end && network.step()) {
  }
  if (oracle.wrong.empty() && oracle.answers != answers + 2) {
    oracle.wrong = "a well network carries no calls";
  }
  return {network.trace(), oracle.answers, oracle.failures, oracle.wrong};
}

TEST(PeersOnASimulatedNetwork, RunEachCallAtMostOnceAndEndEach) {
  const int seeds = static_cast<int>(scaled_in_release(1000, 10'000));
  int answers = 0;
  int failures = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    const Outcome outcome = run(static_cast<std::uint64_t>(seed));
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed;
    answers += outcome.answers;
    failures += outcome.failures;
  }
  // The faults bite, and most calls come through.
  EXPECT_GT(failures, seeds / 2);
  EXPECT_GT(answers, 20 * seeds);
}

TEST(PeersOnASimulatedNetwork, OneSeedGivesOneRun) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) EXPECT_EQ(run(seed).trace, run(seed).trace);
  EXPECT_NE(run(1).trace, run(2).trace);
}

}  // namespace
}  // namespace reverie
