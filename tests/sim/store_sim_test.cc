// The served store's door on a simulated network: writers and samplers of one queue, some of which
// die, a server that dies and comes back empty, connections that are cut at any byte, given up and
// read all the same, swallowed in one direction, or read slowly, and clocks that differ. What runs
// is the code of both sides above HTTP/2: InsertSender and SampleChannel, InsertStream and
// SampleStream, sessions, windows, and a store with a queue.
//
// Held in every run of the server: an item goes in at most once, in its writer's order, and is
// handed out no more often than it went in. A request ends once; what is confirmed went in. And
// once all is well again an item of each writer is confirmed, and sampled.
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/reverb/insert_sender.h"
#include "reverie/adapters/reverb/reverb_service.h"
#include "reverie/adapters/reverb/reverb_store.h"
#include "reverie/adapters/reverb/sample_channel.h"
#include "reverie/native_wire/packed_format.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/sim/shrink.h"
#include "tests/scale.h"
#include "tests/support/items.h"
#include "tests/support/sim_grpc.h"

namespace reverie {
namespace {

constexpr std::size_t kWriters = 3;
constexpr std::size_t kSamplers = 2;
constexpr std::size_t kNodes = 1 + kWriters + kSamplers;  // the server is the first
constexpr std::int64_t kQueueSize = 8;
constexpr ItemKey kKeysOfALife = 100'000;  // keys are life * this + number

// What all together have done.
struct Oracle {
  int run = 0;                                      // of the server
  std::map<std::pair<int, ItemKey>, int> in;        // by run: how often the item went in
  std::map<std::pair<int, ItemKey>, ItemKey> last;  // by run and life: what went in last
  std::map<ItemKey, int> went_in;                   // over all runs
  std::map<ItemKey, int> delivered;
  std::set<ItemKey> open;  // requests that have not ended
  std::set<ItemKey> confirmed;
  std::string wrong;

  void note_in(ItemKey key) {
    if (++in[{run, key}] > 1) wrong = "item " + std::to_string(key) + " went in twice";
    ++went_in[key];
    ItemKey& before = last[{run, key / kKeysOfALife}];
    if (key < before) wrong = "item " + std::to_string(key) + " went in behind a later one";
    before = key;
  }
};

// A store whose inserts the oracle sees.
class SeenService final : public ReplayService {
 public:
  SeenService(std::shared_ptr<ReplayService> inner, Oracle& oracle)
      : inner_(std::move(inner)), oracle_(oracle) {}

  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    std::vector<ItemKey> keys = keys_of(request.items);
    return inner_->insert(request,
                          [this, keys = std::move(keys), done = std::move(done)](auto result) {
                            note(keys, result.applied);
                            done(std::move(result));
                          });
  }
  std::size_t insert_at_once(std::string_view table, std::span<Item> items) override {
    const std::vector<ItemKey> keys = keys_of(items);
    const std::size_t count = inner_->insert_at_once(table, items);
    note(keys, count);
    return count;
  }
  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    return inner_->sample(std::move(request), std::move(done));
  }
  std::optional<std::size_t> hand_back(std::string_view table, SampleBatch& batch) override {
    return inner_->hand_back(table, batch);
  }
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override {
    return inner_->mutate(request, std::move(done));
  }
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override {
    return inner_->lookup(request, std::move(done));
  }
  RequestId reset(std::string_view table, Done<Status> done) override {
    return inner_->reset(table, std::move(done));
  }
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    return inner_->info(std::move(done));
  }
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override {
    return inner_->why_blocked(table, std::move(done));
  }
  void cancel(RequestId id) override { inner_->cancel(id); }
  void close() override { inner_->close(); }

 private:
  static std::vector<ItemKey> keys_of(std::span<const Item> items) {
    std::vector<ItemKey> keys;
    for (const Item& item : items) keys.push_back(item.key);
    return keys;
  }
  void note(const std::vector<ItemKey>& keys, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) oracle_.note_in(keys[i]);
  }

  const std::shared_ptr<ReplayService> inner_;
  Oracle& oracle_;
};

// Faults of the code, for tests to find.
enum class Planted { kNone, kLosesSessions };

// The server's process.
class ServerNode {
 public:
  ServerNode(sim::Network& network, Oracle& oracle, bool undoes_unsent, Planted planted) {
    ++oracle.run;
    TableOptions queue =
        testing::table_options("q", "Fifo", "Fifo", kQueueSize, RateLimiter::queue(kQueueSize));
    queue.max_times_sampled = 1;
    queue.undoes_unsent = undoes_unsent;
    StoreOptions options;
    options.clock = &clock_;
    local_ = LocalService::open({queue}, options).value();
    const auto seen = std::make_shared<SeenService>(local_, oracle);
    const auto make_store = [this, seen, queue, undoes_unsent] {
      auto store = std::make_shared<ReverbStore>(seen, std::size_t{1} << 20, clock_);
      store->kept_bytes_max = std::size_t{1} << 20;
      store->calendar = [] { return std::int64_t{1'600'000'000'000'000'000}; };
      store->tables["q"] = {wire::ColumnNames::of(queue.signature), 2, undoes_unsent};
      return store;
    };
    const auto store = make_store();
    GrpcMethod insert_stream = reverb_insert_stream(store);
    if (planted == Planted::kLosesSessions) {
      insert_stream = [make_store](std::shared_ptr<GrpcServerCall> call) {
        return reverb_insert_stream(make_store())(std::move(call));
      };
    }
    calls_ = std::make_unique<SimCallServer>(
        network, 0,
        std::map<std::string, GrpcMethod>{
            {std::string(wire::kServicePath) + "InsertStream", insert_stream},
            {std::string(wire::kServicePath) + "SampleStream", reverb_sample_stream(store)}});
    network.replace(0, calls_.get());
    network.listen(0, "server");
  }
  // Killed: no call is told. What waits in the store ends without being looked at.
  ~ServerNode() {
    calls_.reset();
    local_->close();
  }

 private:
  ManualClock clock_;  // for deadlines and idle sessions, of which there are none
  std::shared_ptr<LocalService> local_;
  std::unique_ptr<SimCallServer> calls_;
};

class WriterNode {
 public:
  WriterNode(sim::Network& network, sim::NodeId node, Oracle& oracle, ItemKey life)
      : oracle_(oracle), life_(life), world_(network, node, "server") {
    network.replace(node, &world_);
    InsertSender::Options options;
    options.seed = network.random().next();
    sender_ = std::make_shared<InsertSender>("table 'q'", world_, options);
  }
  // Killed: its requests end with it.
  ~WriterNode() {
    is_dead_ = true;
    for (const ItemKey key : mine_) oracle_.open.erase(key);
    sender_->close(cancelled("killed"));
  }

  // With a deadline some are given up on their way.
  ItemKey insert(TimePoint deadline) {
    const ItemKey key = life_ * kKeysOfALife + ++count_;
    Item item = testing::make_item(key, 1.0, static_cast<float>(count_));
    oracle_.open.insert(key);
    mine_.insert(key);
    sender_->insert({"q", {&item, 1}, deadline}, [this, key](const InsertResult& result) {
      if (is_dead_) return;
      if (oracle_.open.erase(key) == 0) oracle_.wrong = "a request ended twice";
      mine_.erase(key);
      if (!result.status.ok()) return;
      oracle_.confirmed.insert(key);
      if (!oracle_.went_in.contains(key)) oracle_.wrong = "a confirmed item never went in";
    });
    return key;
  }
  SimCallClient& world() { return world_; }

 private:
  Oracle& oracle_;
  const ItemKey life_;
  SimCallClient world_;
  std::shared_ptr<InsertSender> sender_;
  ItemKey count_ = 0;
  std::set<ItemKey> mine_;
  bool is_dead_ = false;
};

class SamplerNode final : public SampleChannel::Owner {
 public:
  SamplerNode(sim::Network& network, sim::NodeId node, Oracle& oracle, bool reads_packed)
      : network_(network),
        node_(node),
        oracle_(oracle),
        reads_packed_(reads_packed),
        world_(network, node, "server") {
    network.replace(node, &world_);
    ask();
  }
  ~SamplerNode() override { is_dead_ = true; }

  SimCallClient& world() { return world_; }

 private:
  // Some samples, over and over; on the stream that is open, if there is one.
  void ask() {
    const auto count = static_cast<std::int64_t>(1 + network_.random().below(4));
    SampleChannel::Request request;
    request.id = ++last_id_;
    request.message =
        wire::write_sample_request({"q", count, 0, reads_packed_ ? packed::kVersion : 0});
    request.call =
        std::make_unique<SampleCall>(static_cast<std::size_t>(count),
                                     std::make_shared<const wire::ColumnNames>(), SampleBatch());
    request.done = [this](const SampleResult& result) { on_samples(result); };
    if (idle_ && idle_->ask(request)) {
      idle_ = nullptr;
      return;
    }
    idle_ = nullptr;
    const auto channel = std::make_shared<SampleChannel>(*this, world_);
    channel->open(std::move(request), {}, /*is_only=*/false);
  }
  void on_samples(const SampleResult& result) {
    if (is_dead_) return;
    for (const ItemKey key : result.batch.keys()) {
      if (++oracle_.delivered[key] > oracle_.went_in[key]) {
        oracle_.wrong = "item " + std::to_string(key) + " was handed out twice";
      }
    }
    const Duration pause(static_cast<std::int64_t>(network_.random().below(20'000'000)));
    network_.at(node_, world_.now() + pause, [this] { ask(); });
  }
  void on_idle(const std::shared_ptr<SampleChannel>& channel) override { idle_ = channel; }
  void on_over(const std::shared_ptr<SampleChannel>& channel) override {
    if (idle_ == channel) idle_ = nullptr;
  }

  sim::Network& network_;
  const sim::NodeId node_;
  Oracle& oracle_;
  const bool reads_packed_;
  SimCallClient world_;
  RequestId last_id_ = 0;
  std::shared_ptr<SampleChannel> idle_;
  bool is_dead_ = false;
};

// What goes wrong, and when.
struct Fault {
  enum class Kind { kKill, kStart, kAbandon, kPartition, kHeal, kSlow };
  TimePoint when;
  Kind kind = Kind::kHeal;
  sim::NodeId who = 0;
  sim::NodeId other = 0;
};

constexpr TimePoint kFaultsEnd{2'000'000'000};

std::vector<Fault> faults_of(std::uint64_t seed) {
  Random draws(seed ^ 0xfa17);
  std::vector<Fault> faults;
  const auto node = [&] { return static_cast<sim::NodeId>(draws.below(kNodes)); };
  for (TimePoint when{}; when < kFaultsEnd;) {
    when = when + Duration(static_cast<std::int64_t>(draws.below(160'000'000)));
    const double act = draws.uniform();
    using Kind = Fault::Kind;
    const Kind kind = act < 0.12   ? Kind::kKill
                      : act < 0.4  ? Kind::kStart
                      : act < 0.65 ? Kind::kAbandon
                      : act < 0.8  ? Kind::kPartition
                      : act < 0.95 ? Kind::kHeal
                                   : Kind::kSlow;
    faults.push_back({when, kind, node(), node()});
  }
  return faults;
}

struct Outcome {
  std::uint64_t trace = 0;
  std::size_t went_in = 0;
  std::size_t delivered = 0;
  int runs = 0;
  std::string wrong;
};

// Whose clock goes on where nothing happens.
class Bystander final : public sim::Node {
 public:
  void on_connected(sim::EndId) override {}
  void on_accepted(sim::EndId, const std::string&) override {}
  void on_bytes(sim::EndId, std::span<const std::byte>) override {}
  void on_closed(sim::EndId) override {}
};

class World {
 public:
  // With a planted fault no stream is cut by chance: only the list of faults does harm.
  World(std::uint64_t seed, Planted planted)
      : network_(seed, {.cut_share = planted == Planted::kNone ? 0.01 : 0.0}),
        seed_(seed),
        planted_(planted),
        draws_(seed ^ 0x5eed) {
    for (sim::NodeId node = 0; node < kNodes; ++node) {
      network_.add(nullptr);
      if (node == 0) continue;
      network_.set_clock(node, {.ahead = std::chrono::seconds(draws_.below(100)),
                                .rate = 0.9 + 0.2 * draws_.uniform()});
    }
    network_.add(&bystander_);
    for (sim::NodeId node = 0; node < kNodes; ++node) start(node);
  }

  Outcome run(const std::vector<Fault>& faults) {
    std::size_t next = 0;
    for (TimePoint write_at{}; network_.now() < kFaultsEnd && oracle_.wrong.empty();) {
      if (next < faults.size() && faults[next].when <= network_.now()) {
        apply(faults[next++]);
      } else if (write_at <= network_.now()) {
        write_at = network_.now() + Duration(static_cast<std::int64_t>(draws_.below(6'000'000)));
        write();
        network_.at(kNodes, write_at, [] {});
      } else {
        network_.step();
      }
    }
    settle();
    if (oracle_.wrong.empty() && !oracle_.open.empty()) {
      oracle_.wrong = std::to_string(oracle_.open.size()) +
                      " requests never ended, the first for " +
                      std::to_string(*oracle_.open.begin());
    }
    return {network_.trace(), oracle_.went_in.size(), oracle_.delivered.size(), oracle_.run,
            oracle_.wrong};
  }

 private:
  bool is_up(sim::NodeId node) const {
    if (node == 0) return server_ != nullptr;
    return node <= kWriters ? writers_[node - 1] != nullptr
                            : samplers_[node - 1 - kWriters] != nullptr;
  }
  void start(sim::NodeId node) {
    if (is_up(node)) return;
    if (node == 0) {
      server_ = std::make_unique<ServerNode>(network_, oracle_, seed_ % 2 == 0, planted_);
    } else if (node <= kWriters) {
      writers_[node - 1] = std::make_unique<WriterNode>(network_, node, oracle_, ++lives_);
    } else {
      samplers_[node - 1 - kWriters] =
          std::make_unique<SamplerNode>(network_, node, oracle_, draws_.uniform() < 0.5);
    }
  }
  void kill(sim::NodeId node) {
    if (!is_up(node)) return;
    network_.kill(node);
    if (node == 0) {
      server_ = nullptr;
    } else if (node <= kWriters) {
      writers_[node - 1] = nullptr;
    } else {
      samplers_[node - 1 - kWriters] = nullptr;
    }
  }
  void apply(const Fault& fault) {
    switch (fault.kind) {
      case Fault::Kind::kKill:
        return kill(fault.who);
      case Fault::Kind::kStart:
        return start(fault.who);
      case Fault::Kind::kAbandon:
        if (fault.who == 0 || !is_up(fault.who)) return;
        if (fault.who <= kWriters) return writers_[fault.who - 1]->world().abandon();
        return samplers_[fault.who - 1 - kWriters]->world().abandon();
      case Fault::Kind::kPartition:
        return network_.partition(fault.who, fault.other);
      case Fault::Kind::kHeal:
        return network_.heal();
      case Fault::Kind::kSlow:
        return network_.slow_down(fault.who, std::chrono::milliseconds(5));
    }
  }
  void write() {
    const auto& writer = writers_[draws_.below(kWriters)];
    if (!writer) return;
    const bool is_impatient = draws_.uniform() < 0.1;
    const TimePoint deadline =
        is_impatient
            ? writer->world().now() + Duration(static_cast<std::int64_t>(draws_.below(50'000'000)))
            : TimePoint::max();
    writer->insert(deadline);
  }
  // All is well again: what is open comes to its end, and new items are in and sampled.
  void settle() {
    network_.heal();
    network_.set_options({});
    for (sim::NodeId node = 0; node < kNodes; ++node) {
      network_.slow_down(node, {});
      start(node);
      // A partition swallows what is sent for good: who has such a connection gives it up.
      if (node > 0 && node <= kWriters) writers_[node - 1]->world().abandon();
      if (node > kWriters) samplers_[node - 1 - kWriters]->world().abandon();
    }
    // Until then servers draw for readers whose connections are gone.
    network_.end_half_open();
    const TimePoint known = network_.now() + std::chrono::seconds(1);
    network_.at(kNodes, known, [] {});
    while (network_.now() < known) network_.step();
    std::set<ItemKey> fresh;
    for (const auto& writer : writers_) fresh.insert(writer->insert(TimePoint::max()));
    const TimePoint end = network_.now() + std::chrono::seconds(20);
    const auto are_there = [&] {
      for (const ItemKey key : fresh) {
        if (!oracle_.confirmed.contains(key) || !oracle_.delivered.contains(key)) return false;
      }
      return true;
    };
    network_.at(kNodes, end, [] {});
    // A request for several samples is not answered before as many are there: more items follow.
    for (TimePoint write_at{}; oracle_.wrong.empty() && network_.now() < end;) {
      if (are_there() && oracle_.open.empty()) break;
      if (!are_there() && write_at <= network_.now()) {
        write_at = network_.now() + std::chrono::milliseconds(20);
        writers_[draws_.below(kWriters)]->insert(TimePoint::max());
        network_.at(kNodes, write_at, [] {});
      }
      network_.step();
    }
    if (oracle_.wrong.empty() && !are_there()) {
      oracle_.wrong = "a well network carries no items:";
      for (const ItemKey key : fresh) {
        oracle_.wrong += format(" {} is {}", key,
                                oracle_.delivered.contains(key)   ? "sampled"
                                : oracle_.confirmed.contains(key) ? "confirmed"
                                                                  : "not confirmed");
      }
    }
  }

  Oracle oracle_;
  Bystander bystander_;
  sim::Network network_;
  const std::uint64_t seed_;
  const Planted planted_;
  Random draws_;
  ItemKey lives_ = 0;
  std::unique_ptr<ServerNode> server_;
  std::vector<std::unique_ptr<WriterNode>> writers_{kWriters};
  std::vector<std::unique_ptr<SamplerNode>> samplers_{kSamplers};
};

Outcome run(std::uint64_t seed, const std::vector<Fault>& faults,
            Planted planted = Planted::kNone) {
  return World(seed, planted).run(faults);
}

std::string text_of(const std::vector<Fault>& faults) {
  static constexpr const char* kNames[] = {"kill", "start", "abandon", "partition", "heal", "slow"};
  std::string text;
  for (const Fault& fault : faults) {
    text += format("\n{:9.6f} s: {} {} {}", to_seconds(fault.when - TimePoint{}),
                   kNames[static_cast<int>(fault.kind)], fault.who, fault.other);
  }
  return text;
}

// The shortest list of the seed's faults under which it still fails, for people to read.
std::vector<Fault> shrunk(std::uint64_t seed, Planted planted = Planted::kNone) {
  return sim::shrink<Fault>(faults_of(seed), [&](const std::vector<Fault>& faults) {
    return !run(seed, faults, planted).wrong.empty();
  });
}

TEST(StoreOnASimulatedNetwork, TakesEachItemOnceAndHandsItOutOnce) {
  const int seeds = static_cast<int>(scaled_in_release(1000, 10'000));
  std::size_t went_in = 0;
  std::size_t delivered = 0;
  int runs = 0;
  for (int i = 1; i <= seeds; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    const Outcome outcome = run(seed, faults_of(seed));
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed
                                 << ", with these faults alone:" << text_of(shrunk(seed));
    went_in += outcome.went_in;
    delivered += outcome.delivered;
    runs += outcome.runs;
  }
  // The faults bite, and most items come through.
  EXPECT_GT(runs, seeds + seeds / 4);
  EXPECT_GT(went_in, static_cast<std::size_t>(50 * seeds));
  EXPECT_GT(delivered, static_cast<std::size_t>(40 * seeds));
}

TEST(StoreOnASimulatedNetwork, OneSeedGivesOneRun) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(run(seed, faults_of(seed)).trace, run(seed, faults_of(seed)).trace);
  }
  EXPECT_NE(run(1, faults_of(1)).trace, run(2, faults_of(2)).trace);
}

// A server that forgets what is in with each stream is found out, and what is left of the seed's
// faults is what that takes: a stream that is given up while its items are on their way.
TEST(StoreOnASimulatedNetwork, AFailingRunRepeatsAndIsShrunkToTheFaultsThatItNeeds) {
  std::uint64_t seed = 1;
  while (run(seed, faults_of(seed), Planted::kLosesSessions).wrong.empty()) {
    ASSERT_LT(++seed, 200u) << "the planted fault was not found";
  }
  const std::vector<Fault> all = faults_of(seed);
  const Outcome first = run(seed, all, Planted::kLosesSessions);
  const Outcome second = run(seed, all, Planted::kLosesSessions);
  EXPECT_EQ(first.trace, second.trace);
  EXPECT_EQ(first.wrong, second.wrong);
  EXPECT_NE(first.wrong.find("went in"), std::string::npos) << first.wrong;

  const std::vector<Fault> few = shrunk(seed, Planted::kLosesSessions);
  EXPECT_LT(few.size(), all.size() / 2) << text_of(few);
  EXPECT_LE(few.size(), 3u) << text_of(few);
  const Outcome once = run(seed, few, Planted::kLosesSessions);
  EXPECT_FALSE(once.wrong.empty());
  EXPECT_EQ(once.trace, run(seed, few, Planted::kLosesSessions).trace);
  for (std::size_t i = 0; i < few.size(); ++i) {
    std::vector<Fault> fewer = few;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(run(seed, fewer, Planted::kLosesSessions).wrong, "")
        << "fault " << i << " of " << text_of(few);
  }
  EXPECT_EQ(run(seed, all).wrong, "") << "without the planted fault";
}

}  // namespace
}  // namespace reverie
