// The interface of a served store on a simulated network: writers and samplers of one queue, some
// of which die; a server that dies and restarts empty; connections that are cut at any byte,
// abandoned by one side, lose bytes in one direction, or are read slowly; and clocks that differ.
// The code of both sides above HTTP/2 is real: InsertSender and SampleChannel, InsertStream and
// SampleStream, sessions, windows, and a store with a queue.
//
// Invariants of every run of the server: an item is inserted at most once, in its writer's order,
// and delivered no more often than it was inserted. A request ends once; what is confirmed was
// inserted. Once all faults end, an item of each writer is confirmed and sampled.
#include <cstdint>
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
#include "tests/scale.h"
#include "tests/support/sim_grpc.h"
#include "tests/support/sim_store.h"

namespace reverie {
namespace {

using namespace sim_store;

// Deliberate mistakes of the code, which tests must find.
enum class Planted { kNone, kLosesSessions };

// The server's process.
class ServerNode {
 public:
  ServerNode(sim::Network& network, Oracle& oracle, bool undoes_unsent,
             Planted planted = Planted::kNone) {
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
  // Kills the server: its calls are not told. Requests that wait in the store end without effect.
  ~ServerNode() {
    calls_.reset();
    local_->close();
  }

 private:
  ManualClock clock_;  // of deadlines and idle sessions, neither of which is used
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
  // Kills the writer: its requests end.
  ~WriterNode() {
    is_dead_ = true;
    for (const ItemKey key : mine_) oracle_.open.erase(key);
    sender_->close(cancelled("killed"));
  }

  // Some inserts with a deadline are cancelled in transit.
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
  SamplerNode(sim::Network& network, sim::NodeId node, Oracle& oracle, Random& draws)
      : network_(network),
        node_(node),
        oracle_(oracle),
        reads_packed_(draws.uniform() < 0.5),
        world_(network, node, "server") {
    network.replace(node, &world_);
    ask();
  }
  ~SamplerNode() override { is_dead_ = true; }

  SimCallClient& world() { return world_; }

 private:
  // Requests a few samples over and over, on the open stream if there is one.
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
  void on_over(const std::shared_ptr<SampleChannel>& channel, const Status&) override {
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

struct GrpcDoor {
  using Server = ServerNode;
  using Writer = WriterNode;
  using Sampler = SamplerNode;
};
// Its server forgets with each stream which items were inserted.
struct ForgetfulDoor : GrpcDoor {
  struct Server : ServerNode {
    Server(sim::Network& network, Oracle& oracle, bool undoes_unsent)
        : ServerNode(network, oracle, undoes_unsent, Planted::kLosesSessions) {}
  };
};

Outcome run(std::uint64_t seed, const std::vector<Fault>& faults,
            Planted planted = Planted::kNone) {
  if (planted == Planted::kNone) return World<GrpcDoor>(seed, 0.01).run(faults);
  return World<ForgetfulDoor>(seed, 0.0).run(faults);
}

std::vector<Fault> shrunk(std::uint64_t seed, Planted planted = Planted::kNone) {
  return sim_store::shrunk(seed, [planted](std::uint64_t number, const std::vector<Fault>& faults) {
    return run(number, faults, planted);
  });
}

TEST(StoreOnASimulatedNetwork, InsertsEachItemOnceAndDeliversItOnce) {
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
  // Faults have an effect, and most items arrive.
  EXPECT_GT(runs, seeds + seeds / 4);
  EXPECT_GT(went_in, static_cast<std::size_t>(50 * seeds));
  EXPECT_GT(delivered, static_cast<std::size_t>(40 * seeds));
}

TEST(StoreOnASimulatedNetwork, TheSameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(run(seed, faults_of(seed)).trace, run(seed, faults_of(seed)).trace);
  }
  EXPECT_NE(run(1, faults_of(1)).trace, run(2, faults_of(2)).trace);
}

// The test finds a server that forgets with each stream which items were inserted, and shrinks the
// faults of the seed to those needed: a stream is abandoned while its items are in transit.
TEST(StoreOnASimulatedNetwork, AFailingRunRepeatsAndIsShrunkToTheFaultsItNeeds) {
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
