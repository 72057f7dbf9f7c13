// The logic of peers on a simulated network: calls between five peers, some of which die and
// restart, read slowly or have clocks that differ, over streams that are cut at any byte, with
// partitions of one or both directions that lose what is sent.
//
// Invariants of every run: a call that may run once runs at most once, over all runs of all peers;
// a call ends once, and by its deadline; an answer belongs to its call. Memory that is lent with
// the arguments of an answered call stays until its receiver has read it, and none stays for ever.
// Once the network is healthy again, calls succeed.
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/format.h"
#include "reverie/rpc/handshake.h"
#include "reverie/sim/shrink.h"
#include "tests/scale.h"
#include "tests/support/number_values.h"
#include "tests/support/sim_peer.h"

namespace reverie {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(5);

// What all peers together have done.
struct Oracle {
  std::map<std::int64_t, int> runs;  // by the number of a call
  std::set<std::int64_t> open;
  std::set<std::int64_t> idempotent;
  // Memory that was lent with a call, by its number, or with its answer, by minus its number.
  struct Lending {
    bool is_read = false;
    bool is_released = false;
    bool was_early = false;  // it was released before it was read
  };
  std::map<std::int64_t, Lending> lent;
  std::int64_t next_number = 1;
  int answers = 0;
  int failures = 0;
  std::string wrong;
};

// Notes when it is released.
struct LentMemory {
  LentMemory(Oracle& watcher, std::int64_t of) : oracle(watcher), number(of) {}
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;
  ~LentMemory() {
    Oracle::Lending& lending = oracle.lent[number];
    lending.is_released = true;
    lending.was_early = !lending.is_read;
  }
  Oracle& oracle;
  const std::int64_t number;
};

// Calls "double" of other peers, and answers such calls after a while.
class CallingPeer final : public SimPeer {
 public:
  CallingPeer(sim::Network& network, Oracle& oracle, sim::NodeId node, std::string name,
              const std::string& token, const PeerOptions& options = {})
      : SimPeer(network, node, std::move(name), token, options), oracle_(oracle) {
    EXPECT_TRUE(peer().define("double").ok());
  }
  ~CallingPeer() override {
    // Its calls end with the peer.
    for (const auto& [id, number] : calls_) oracle_.open.erase(number);
  }

  void call(const std::string& other, bool is_idempotent) {
    const std::int64_t number = oracle_.next_number++;
    if (is_idempotent) oracle_.idempotent.insert(number);
    peer().host_proved(peer().link_to(other));
    const Neighbour found = peer().neighbour(other, /*may_prove=*/true, now());
    const bool lends = number % 3 == 0 && found.is_proved && !is_idempotent;
    const auto id = peer().call(
        other, "double", lends ? lending_payload(number, found.session) : number_payload(number),
        {now() + kTimeout, is_idempotent}, now());
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    oracle_.open.insert(number);
    calls_[*id] = number;
    settle();
  }
  // UCX carries what arrives here, and loses what is sent.
  bool loses_ucx = false;
  void use_ucx(LinkId link, bool) override { ucx_links_.insert(link); }
  void send(LinkId link, const FrameHeader& header,
            std::shared_ptr<const Message> message) override {
    if (loses_ucx && ucx_links_.contains(link)) return;
    SimPeer::send(link, header, std::move(message));
  }

 private:
  Payload lending_payload(std::int64_t number, std::uint64_t session) {
    Payload payload = number_payload(number);
    oracle_.lent[number];
    payload.lent = std::make_shared<Lent>();
    payload.lent->session = session;
    payload.lent->memory = std::make_shared<LentMemory>(oracle_, number);
    return payload;
  }
  // Reads the memory that a message has lent, if it has.
  void read(const Payload& payload, std::int64_t number) {
    if (!payload.receipt) return;
    oracle_.lent[number].is_read = true;
    payload.receipt->give();
  }

  void on_request(Request request) override {
    const std::int64_t number = number_of(request.message.payload);
    const int runs = ++oracle_.runs[number];
    if (runs > 1 && !oracle_.idempotent.contains(number)) {
      oracle_.wrong = "call " + std::to_string(number) + " ran twice";
    }
    const auto payload = std::make_shared<const Payload>(std::move(request.message.payload));
    const auto reply = [this, id = request.id, number, payload] {
      read(*payload, number);
      Payload answer = number_payload(2 * number);
      if (number % 4 == 0) {
        answer.lent = std::make_shared<Lent>();
        answer.lent->session = id.session;
        answer.lent->memory = std::make_shared<LentMemory>(oracle_, -number);
      }
      peer().answer(id, std::move(answer), now());
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
      read(result.payload, -number);
      const auto lending = oracle_.lent.find(number);
      if (lending != oracle_.lent.end() && lending->second.was_early) {
        oracle_.wrong = "what call " + std::to_string(number) + " lent was released unread";
      }
    } else {
      ++oracle_.failures;
    }
  }

  Oracle& oracle_;
  std::map<CallId, std::int64_t> calls_;
  std::set<LinkId> ucx_links_;
};

// Gives all its calls the same number.
class RepeatingPeer final : public SimPeer {
 public:
  using SimPeer::SimPeer;
  void call(const std::string& other) {
    ASSERT_TRUE(peer().call(other, "double", number_payload(1), {now() + kTimeout}, now()).ok());
    settle();
  }
  void send(LinkId link, const FrameHeader& header,
            std::shared_ptr<const Message> message) override {
    FrameHeader sent = header;
    if (sent.kind == FrameKind::kCall) sent.call = 1;
    SimPeer::send(link, sent, std::move(message));
  }

 private:
  void on_request(Request) override {}
  void on_result(CallId, CallResult) override {}
};

// Tells the others new addresses of its own, at which no peer listens.
class TellingPeer final : public SimPeer {
 public:
  using SimPeer::SimPeer;
  void tell() {
    peer().add_address("10.0.0.9:7000", now());
    settle();
  }
  void send(LinkId link, const FrameHeader& header,
            std::shared_ptr<const Message> message) override {
    if (header.kind == FrameKind::kFound && message->name == peer().options().name) {
      std::vector<std::string> addresses;
      for (std::size_t i = 0; i < kAddressesMax; ++i, ++told_) {
        addresses.push_back(format("10.1.{}.{}:7000", told_ / 256, told_ % 256));
      }
      Message found = encode_addresses(addresses, "");
      found.name = message->name;
      message = std::make_shared<const Message>(std::move(found));
    }
    SimPeer::send(link, header, std::move(message));
  }

 private:
  void on_request(Request) override {}
  void on_result(CallId, CallResult) override {}

  std::size_t told_ = 0;
};

// A fault, and its time.
struct Fault {
  enum class Kind { kKill, kStart, kPartition, kHeal, kSlow };
  TimePoint when;
  Kind kind = Kind::kHeal;
  std::size_t who = 0;
  std::size_t other = 0;
};

void go_on_for(sim::Network& network, Duration time) {
  const TimePoint end = network.now() + time;
  while (network.now() < end && network.step()) {
  }
}

constexpr std::size_t kPeers = 5;
constexpr TimePoint kFaultsEnd{3'000'000'000};

std::vector<Fault> faults_of(std::uint64_t seed, std::size_t peer_count = kPeers) {
  Random draws(seed ^ 0xfa17);
  std::vector<Fault> faults;
  for (TimePoint when{}; when < kFaultsEnd;) {
    when = when + Duration(static_cast<std::int64_t>(draws.below(90'000'000)));
    const double act = draws.uniform();
    using Kind = Fault::Kind;
    const Kind kind = act < 0.12   ? Kind::kKill
                      : act < 0.45 ? Kind::kStart
                      : act < 0.6  ? Kind::kPartition
                      : act < 0.95 ? Kind::kHeal
                                   : Kind::kSlow;
    faults.push_back({when, kind, static_cast<std::size_t>(draws.below(peer_count)),
                      static_cast<std::size_t>(draws.below(peer_count))});
  }
  return faults;
}

std::string text_of(const std::vector<Fault>& faults) {
  static constexpr const char* kNames[] = {"kill", "start", "partition", "heal", "slow"};
  std::string text;
  for (const Fault& fault : faults) {
    text += format("\n{:9.6f} s: {} {} {}", to_seconds(fault.when - TimePoint{}),
                   kNames[static_cast<int>(fault.kind)], fault.who, fault.other);
  }
  return text;
}

struct Outcome {
  std::uint64_t trace = 0;
  int answers = 0;
  int failures = 0;
  std::string wrong;
};

std::string name_of(std::size_t i) {
  return "p" + std::to_string(i);
}

std::string address_of(std::size_t i) {
  return "10.0.0." + std::to_string(i + 1) + ":7000";
}

// One run: 3 simulated seconds with faults, then enough without faults for all calls to end.
class PeersWorld {
 public:
  explicit PeersWorld(std::uint64_t seed, std::size_t peer_count = kPeers)
      : network_(seed, {.cut_share = 0.02}),
        draws_(seed ^ 0x5eed),
        token_(seed % 2 == 0 ? "secret" : ""),
        peers_(peer_count) {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      network_.add(nullptr);
      // A fast clock only makes a peer impatient.
      network_.set_clock(i, {.ahead = std::chrono::seconds(draws_.below(1000)),
                             .rate = 0.95 + 0.1 * draws_.uniform()});
    }
    for (std::size_t i = 0; i < peers_.size(); ++i) start(i);
  }

  Outcome run(const std::vector<Fault>& faults) {
    std::size_t next = 0;
    for (TimePoint call_at{}; network_.now() < kFaultsEnd;) {
      if (next < faults.size() && faults[next].when <= network_.now()) {
        apply(faults[next++]);
      } else if (call_at <= network_.now()) {
        call_at = network_.now() + Duration(static_cast<std::int64_t>(draws_.below(40'000'000)));
        call();
      } else if (!network_.step()) {
        break;
      }
    }
    settle();
    return {network_.trace(), oracle_.answers, oracle_.failures, oracle_.wrong};
  }
  double simulated_s() const { return to_seconds(network_.now() - TimePoint{}); }

 private:
  void start(std::size_t i) {
    if (peers_[i]) return;
    peers_[i] = std::make_unique<CallingPeer>(network_, oracle_, i, name_of(i), token_);
    network_.replace(i, peers_[i].get());
    peers_[i]->listen(address_of(i));
    if (i > 0) peers_[i]->connect(address_of(0));
  }
  void apply(const Fault& fault) {
    switch (fault.kind) {
      case Fault::Kind::kKill:
        network_.kill(fault.who);
        peers_[fault.who].reset();
        return;
      case Fault::Kind::kStart:
        return start(fault.who);
      case Fault::Kind::kPartition:
        return network_.partition(fault.who, fault.other);
      case Fault::Kind::kHeal:
        return network_.heal();
      case Fault::Kind::kSlow:
        return network_.slow_down(fault.who, std::chrono::milliseconds(3));
    }
  }
  void call() {
    const auto who = static_cast<std::size_t>(draws_.below(peers_.size()));
    auto other = static_cast<std::size_t>(draws_.below(peers_.size()));
    const bool is_idempotent = draws_.uniform() < 0.2;
    if (other == who) other = (other + 1) % peers_.size();
    if (peers_[who]) peers_[who]->call(name_of(other), is_idempotent);
  }
  void go_on_until(TimePoint end) {
    while (network_.now() < end && network_.step()) {
    }
  }
  void settle() {
    network_.heal();
    network_.set_options({});
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      network_.slow_down(i, {});
      start(i);
    }
    go_on_until(network_.now() + std::chrono::seconds(8));
    if (oracle_.wrong.empty() && !oracle_.open.empty()) {
      oracle_.wrong = std::to_string(oracle_.open.size()) + " calls never ended";
    }
    // The network is healthy and all peers know the first one, so each can reach each.
    const int answers = oracle_.answers;
    peers_[1]->call(name_of(4), false);
    peers_[3]->call(name_of(2), false);
    go_on_until(network_.now() + std::chrono::seconds(4));
    if (oracle_.wrong.empty() && oracle_.answers != answers + 2) {
      oracle_.wrong = "a well network carries no calls";
    }
    for (const auto& [number, lending] : oracle_.lent) {
      if (oracle_.wrong.empty() && !lending.is_released) {
        oracle_.wrong = "what call " + std::to_string(number) + " lent was never released";
      }
    }
    for (const auto& one : peers_) {
      std::size_t requests = 0;
      for (const PeerInfo& info : one->peer().peers()) requests += info.requests;
      if (oracle_.wrong.empty() && one->peer().pending_requests() != requests) {
        oracle_.wrong = "a peer miscounts the calls that it has not answered";
      }
    }
  }

  Oracle oracle_;
  sim::Network network_;
  Random draws_;
  const std::string token_;
  std::vector<std::unique_ptr<CallingPeer>> peers_;
};

Outcome run(std::uint64_t seed, const std::vector<Fault>& faults) {
  return PeersWorld(seed).run(faults);
}

TEST(PeersOnASimulatedNetwork, RunEachCallAtMostOnceAndEndEveryCall) {
  const int seeds = static_cast<int>(scaled_in_release(1000, 10'000));
  int answers = 0;
  int failures = 0;
  for (int i = 1; i <= seeds; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    const Outcome outcome = run(seed, faults_of(seed));
    const auto few = [seed] {
      return text_of(sim::shrink<Fault>(faults_of(seed), [&](const std::vector<Fault>& faults) {
        return !run(seed, faults).wrong.empty();
      }));
    };
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed << ", with these faults alone:" << few();
    answers += outcome.answers;
    failures += outcome.failures;
  }
  // Faults have an effect, and most calls succeed.
  EXPECT_GT(failures, seeds / 2);
  EXPECT_GT(answers, 20 * seeds);
}

TEST(PeersOnASimulatedNetwork, TheSameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(run(seed, faults_of(seed)).trace, run(seed, faults_of(seed)).trace);
  }
  EXPECT_NE(run(1, faults_of(1)).trace, run(2, faults_of(2)).trace);
}

// However long a silent peer is given, others are asked for an unknown one every 250 ms.
TEST(PeersOnASimulatedNetwork, FindAPeerThatListensOnlyAfterTheCall) {
  sim::Network network(1, {});
  Oracle oracle;
  PeerOptions patient;
  patient.dead_after = std::chrono::minutes(1);
  std::vector<std::unique_ptr<CallingPeer>> peers;
  for (std::size_t i = 0; i < 3; ++i) {
    network.add(nullptr);
    peers.push_back(
        std::make_unique<CallingPeer>(network, oracle, i, name_of(i), "secret", patient));
    network.replace(i, peers[i].get());
    if (i == 0) peers[i]->listen(address_of(i));
    if (i > 0) peers[i]->connect(address_of(0));
  }
  go_on_for(network, std::chrono::seconds(1));
  peers[1]->call(name_of(2), false);
  go_on_for(network, std::chrono::milliseconds(100));
  peers[2]->listen(address_of(2));
  go_on_for(network, std::chrono::milliseconds(400));
  EXPECT_EQ(oracle.answers, 1);
}

// The server holds at most one answer at a time: what it counts as unread refuses the next one.
TEST(PeersOnASimulatedNetwork, AnswersThatArriveBeforeACutAreNoLongerHeld) {
  sim::Network network(1, {});
  Oracle oracle;
  PeerOptions bounded;
  bounded.held_bytes_max = 1;
  std::vector<std::unique_ptr<CallingPeer>> peers;
  for (std::size_t i = 0; i < 2; ++i) {
    network.add(nullptr);
    peers.push_back(
        std::make_unique<CallingPeer>(network, oracle, i, name_of(i), "secret", bounded));
    network.replace(i, peers[i].get());
  }
  peers[0]->listen(address_of(0));
  peers[1]->connect(address_of(0));
  for (int round = 1; round <= 5; ++round) {
    go_on_for(network, std::chrono::seconds(1));
    peers[1]->call(name_of(0), false);
    while (oracle.answers < round && oracle.failures == 0 && network.step()) {
    }
    ASSERT_EQ(oracle.answers, round);
    // The caller has the answer, and its acknowledgement is cut.
    network.set_options({.cut_share = 1.0});
    go_on_for(network, std::chrono::milliseconds(300));
    network.set_options({});
  }
}

// Anyone who knows the number of a run can begin a new session in its name, on another host too.
TEST(PeersOnASimulatedNetwork, ARunThatBeginsASessionAnewHasToProveItsHostAgain) {
  sim::Network network(1, {});
  Oracle oracle;
  PeerOptions patient;
  patient.dead_after = std::chrono::minutes(1);
  for (int i = 0; i < 2; ++i) network.add(nullptr);
  CallingPeer keeps(network, oracle, 0, name_of(0), "secret", patient);
  CallingPeer forgets(network, oracle, 1, name_of(1), "secret");
  network.replace(0, &keeps);
  network.replace(1, &forgets);
  keeps.listen(address_of(0));
  forgets.connect(address_of(0));
  const auto go_on_until = [&network](const auto& is_done) {
    const TimePoint end = network.now() + std::chrono::minutes(1);
    while (!is_done() && network.now() < end && network.step()) {
    }
    return is_done();
  };
  const auto forgotten = [&] {
    return keeps.peer().neighbour(name_of(1), /*may_prove=*/true, keeps.now());
  };
  ASSERT_TRUE(go_on_until([&] { return keeps.peer().link_to(name_of(1)) != 0; }));
  const std::uint64_t session = forgotten().session;
  keeps.peer().host_proved(keeps.peer().link_to(name_of(1)));
  ASSERT_TRUE(forgotten().is_proved);

  network.set_options({.cut_share = 1.0});
  forgets.call(name_of(0), true);
  ASSERT_TRUE(go_on_until([&] { return keeps.peer().link_to(name_of(1)) == 0; }));
  network.partition(0, 1);
  network.partition(1, 0);
  network.set_options({});
  EXPECT_TRUE(forgotten().is_proved);  // it may come back
  oracle.next_number = 3;              // this call lends memory
  keeps.call(name_of(1), false);
  ASSERT_FALSE(oracle.lent[3].is_released);
  ASSERT_TRUE(go_on_until([&] {
    return forgets.peer().neighbour(name_of(0), /*may_prove=*/true, forgets.now()).session == 0;
  }));
  network.heal();
  ASSERT_TRUE(go_on_until([&] { return keeps.peer().link_to(name_of(1)) != 0; }));
  EXPECT_EQ(forgotten().session, session);
  EXPECT_FALSE(forgotten().is_proved);
  // It would be refused, since the proof comes after it.
  EXPECT_TRUE(oracle.lent[3].is_released);
  EXPECT_EQ(oracle.runs[3], 0);
}

// A client and a server of one host, connected over TCP: the Unix socket that the server tells
// cannot be reached.
class PeersOfOneHost : public ::testing::Test {
 protected:
  PeersOfOneHost() {
    network_.replace(0, &server_);
    network_.replace(1, &client_);
    server_.peer().add_address("unix:@nowhere", server_.now());
    server_.listen(address_of(0));
    client_.connect(address_of(0));
    go_on_until([this] { return link() != 0; });
  }

  LinkId link() { return client_.peer().link_to(name_of(0)); }
  // What the client knows of the server.
  Neighbour found(bool may_prove = true) {
    return client_.peer().neighbour(name_of(0), may_prove, client_.now());
  }
  template <typename IsDone>
  void go_on_until(IsDone is_done) {
    while (!is_done() && network_.step()) {
    }
    ASSERT_TRUE(is_done());
  }
  void go_on_for(Duration time) {
    go_on_until([this, end = network_.now() + time] { return network_.now() >= end; });
  }
  static PeerOptions options() {
    PeerOptions made;
    made.host = "host";
    return made;
  }

  sim::Network network_{1, {}};
  Oracle oracle_;
  const sim::NodeId server_node_ = network_.add(nullptr);
  const sim::NodeId client_node_ = network_.add(nullptr);
  CallingPeer server_{network_, oracle_, server_node_, name_of(0), "secret", options()};
  CallingPeer client_{network_, oracle_, client_node_, name_of(1), "secret", options()};
};

TEST_F(PeersOfOneHost, MayProveItForAMomentAfterTheyHaveConnected) {
  EXPECT_TRUE(found().may_be_proved);
  EXPECT_FALSE(found(/*may_prove=*/false).may_be_proved);
  go_on_for(std::chrono::seconds(1));
  ASSERT_NE(link(), 0u);
  EXPECT_FALSE(found().may_be_proved);
}

TEST_F(PeersOfOneHost, KnowTheSameSecret) {
  const Neighbour seen = server_.peer().neighbour(name_of(1), /*may_prove=*/true, server_.now());
  EXPECT_NE(seen.secret, 0u);
  EXPECT_EQ(seen.secret, found().secret);
}

TEST_F(PeersOfOneHost, MayProveItOverAUnixSocketThoughNoneIsTold) {
  const sim::NodeId node = network_.add(nullptr);
  CallingPeer silent(network_, oracle_, node, name_of(2), "secret", options());
  network_.replace(node, &silent);
  network_.listen(node, "unix:/silent");
  client_.connect("unix:/silent");
  go_on_until([this] { return client_.peer().link_to(name_of(2)) != 0; });
  const Neighbour known = client_.peer().neighbour(name_of(2), /*may_prove=*/true, client_.now());
  EXPECT_TRUE(known.may_be_proved);
  EXPECT_NE(known.secret, found().secret);
}

// The link over which they have proved it is lost, and the next one cannot prove it.
TEST_F(PeersOfOneHost, LendNothingOnceTheirLinkSharesNoMemory) {
  client_.peer().host_proved(link());
  EXPECT_TRUE(found(/*may_prove=*/false).is_proved);
  network_.set_options({.cut_share = 1.0});
  client_.call(name_of(0), /*is_idempotent=*/true);
  go_on_until([this] { return link() == 0; });
  network_.set_options({});
  EXPECT_TRUE(found().is_proved);  // the next link may share memory
  const std::uint64_t session = found().session;
  go_on_until([this] { return link() != 0; });
  EXPECT_TRUE(found().is_proved);
  EXPECT_FALSE(found(/*may_prove=*/false).is_proved);
  go_on_for(std::chrono::seconds(1));
  ASSERT_NE(link(), 0u);
  EXPECT_EQ(found().session, session);
  EXPECT_FALSE(found().is_proved);
  EXPECT_FALSE(found().may_be_proved);
}

// If the server counted each of the hostile peer's calls, only one would be subtracted again.
TEST(PeersOnASimulatedNetwork, CallsThatShareANumberTakeNoRoomFromOtherPeers) {
  sim::Network network(1, {});
  Oracle oracle;
  PeerOptions bounded;
  bounded.held_bytes_max = 80;  // ten of the small calls
  for (int i = 0; i < 3; ++i) network.add(nullptr);
  CallingPeer server(network, oracle, 0, name_of(0), "secret", bounded);
  RepeatingPeer hostile(network, 1, name_of(1), "secret");
  CallingPeer honest(network, oracle, 2, name_of(2), "secret");
  network.replace(0, &server);
  network.replace(1, &hostile);
  network.replace(2, &honest);
  server.listen(address_of(0));
  hostile.connect(address_of(0));
  honest.connect(address_of(0));
  go_on_for(network, std::chrono::seconds(1));
  for (int i = 0; i < 100; ++i) hostile.call(name_of(0));
  go_on_for(network, std::chrono::seconds(1));
  oracle.next_number = std::int64_t{1} << 60;  // a call that takes more room than a small one
  honest.call(name_of(0), false);
  go_on_for(network, std::chrono::seconds(1));
  EXPECT_EQ(oracle.answers, 1);
}

// More addresses than a peer keeps, as it learns them over a long time from peers that come and go.
TEST(PeersOnASimulatedNetwork, FindAPeerAfterManyAddressesThatLedNowhere) {
  sim::Network network(1, {});
  Oracle oracle;
  for (int i = 0; i < 4; ++i) network.add(nullptr);
  CallingPeer broker(network, oracle, 0, name_of(0), "secret");
  CallingPeer caller(network, oracle, 1, name_of(1), "secret");
  CallingPeer sought(network, oracle, 2, name_of(2), "secret");
  TellingPeer telling(network, 3, name_of(3), "secret");
  network.replace(0, &broker);
  network.replace(1, &caller);
  network.replace(2, &sought);
  network.replace(3, &telling);
  broker.listen(address_of(0));
  caller.listen(address_of(1));
  sought.listen(address_of(2));
  caller.connect(address_of(0));
  sought.connect(address_of(0));
  telling.connect(address_of(1));
  go_on_for(network, std::chrono::seconds(1));
  for (int i = 0; i < 1025; ++i) telling.tell();  // 16,400 addresses
  go_on_for(network, std::chrono::seconds(1));
  caller.call(name_of(2), false);
  go_on_for(network, std::chrono::seconds(3));
  EXPECT_EQ(oracle.answers, 1);
}

// As a member of a group does, which connects to the broker and listens when it joins.
TEST(PeersOnASimulatedNetwork, FindAPeerThatBeginsToListenDuringAHandshake) {
  for (int steps = 0; steps < 30; ++steps) {
    sim::Network network(1, {});
    Oracle oracle;
    for (int i = 0; i < 3; ++i) network.add(nullptr);
    CallingPeer broker(network, oracle, 0, name_of(0), "secret");
    CallingPeer caller(network, oracle, 1, name_of(1), "secret");
    CallingPeer sought(network, oracle, 2, name_of(2), "secret");
    network.replace(0, &broker);
    network.replace(1, &caller);
    network.replace(2, &sought);
    broker.listen(address_of(0));
    caller.connect(address_of(0));
    sought.connect(address_of(0));
    for (int i = 0; i < steps; ++i) network.step();
    sought.listen(address_of(2));
    go_on_for(network, std::chrono::seconds(1));
    caller.call(name_of(2), false);
    go_on_for(network, std::chrono::seconds(3));
    EXPECT_EQ(oracle.answers, 1) << steps << " steps";
  }
}

// As a member of a group does, whose broker is beside it. What the broker sees of its connection
// tells nothing about where others reach it.
TEST(PeersOnASimulatedNetwork, FindAPeerOfTheBrokersHostThatListensAtAWildcard) {
  const std::string socket = "unix:@broker";
  const std::string port = address_of(0);
  for (const std::string& way : {socket, port}) {
    for (const bool is_caller_far : {true, false}) {
      SCOPED_TRACE(way + (is_caller_far ? ", another host" : ", the same host"));
      sim::Network network(1, {});
      Oracle oracle;
      PeerOptions here;
      here.host = "here";
      PeerOptions there;
      there.host = is_caller_far ? "there" : "here";
      for (int i = 0; i < 3; ++i) network.add(nullptr);
      CallingPeer broker(network, oracle, 0, name_of(0), "secret", here);
      CallingPeer caller(network, oracle, 1, name_of(1), "secret", there);
      CallingPeer sought(network, oracle, 2, name_of(2), "secret", here);
      network.replace(0, &broker);
      network.replace(1, &caller);
      network.replace(2, &sought);
      network.listen(0, socket);
      network.listen(0, port);
      // Hosts reach each other at 10.0.0.1, as SimPeer says.
      network.listen(2, is_caller_far ? "10.0.0.1:7002" : "localhost:7002");
      sought.peer().add_address("0.0.0.0:7002", sought.now());
      sought.connect(way);
      caller.connect(is_caller_far ? port : socket);
      go_on_for(network, std::chrono::seconds(1));
      caller.call(name_of(2), false);
      go_on_for(network, std::chrono::seconds(3));
      EXPECT_EQ(oracle.answers, 1);
    }
  }
}

// The side that hears nothing declares the other one dead, and says no to UCX from then on, whether
// it dials or accepts.
TEST(PeersOnASimulatedNetwork, DoWithoutUcxWhereItCarriesOneWayOnly) {
  for (const bool loses_caller : {true, false}) {
    sim::Network network(1, {});
    Oracle oracle;
    PeerOptions options;
    options.uses_ucx = true;
    for (int i = 0; i < 2; ++i) network.add(nullptr);
    CallingPeer server(network, oracle, 0, name_of(0), "secret", options);
    CallingPeer caller(network, oracle, 1, name_of(1), "secret", options);
    (loses_caller ? caller : server).loses_ucx = true;
    network.replace(0, &server);
    network.replace(1, &caller);
    server.listen(address_of(0));
    caller.connect(address_of(0));
    for (int i = 0; i < 10; ++i) {
      caller.call(name_of(0), false);
      go_on_for(network, std::chrono::seconds(1));
    }
    EXPECT_GE(oracle.answers, 5) << loses_caller;
    EXPECT_EQ(oracle.wrong, "");
  }
}

// The test requires no speed; it prints the figure for information.
TEST(PeersOnASimulatedNetwork, EightPeersRunWithoutErrors) {
  constexpr std::size_t kCount = 8;
  double simulated_s = 0;
  const TimePoint begin = Clock::system().now();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    PeersWorld world(seed, kCount);
    EXPECT_EQ(world.run(faults_of(seed, kCount)).wrong, "") << "seed " << seed;
    simulated_s += world.simulated_s();
  }
  const double took_s = to_seconds(Clock::system().now() - begin);
  EXPECT_GT(simulated_s, 20 * 14.9);
  std::printf("%.0f simulated seconds a second, %zu peers\n", simulated_s / took_s, kCount);
}

}  // namespace
}  // namespace reverie
