// The store's interface for clients on its machine, on a simulated network: writers and samplers of
// one queue, some of which die; a server that dies and restarts empty; connections that are cut at
// any byte, abandoned by one side, lose bytes in one direction, or are read slowly; and clocks that
// differ. The server's code above its links is real: StoreConnection, ServedWriter, sessions,
// samples that wait for room, and a store with a queue; and on the client's side the pump that
// resends items.
//
// Invariants of every run of the server: an item is inserted at most once, in its writer's order,
// and delivered no more often than it was inserted. A request ends once; what is confirmed was
// inserted. Once all faults end, an item of each writer is confirmed and sampled.
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/insert_pump.h"
#include "reverie/adapters/peer/peer_store.h"
#include "reverie/adapters/peer/store_connection.h"
#include "reverie/native_wire/packed_reader.h"
#include "reverie/rpc/handshake.h"
#include "reverie/store_messages/store_wire.h"
#include "tests/scale.h"
#include "tests/support/sim_store.h"
#include "tests/support/sim_store_link.h"

namespace reverie {
namespace {

using namespace sim_store;
using store_wire::StoreCall;

// The clock of deadlines and idle sessions, neither of which is used. It outlives each server,
// since work that a killed server has posted may still use it.
ManualClock& still_clock() {
  static auto* const clock = new ManualClock;
  return *clock;
}

class ServerNode final : public sim::Node {
 public:
  ServerNode(sim::Network& network, Oracle& oracle, bool undoes_unsent) : network_(network) {
    ++oracle.run;
    TableOptions queue =
        testing::table_options("q", "Fifo", "Fifo", kQueueSize, RateLimiter::queue(kQueueSize));
    queue.max_times_sampled = 1;
    queue.undoes_unsent = undoes_unsent;
    StoreOptions options;
    options.clock = &still_clock();
    local_ = LocalService::open({queue}, options).value();
    store_ =
        std::make_shared<PeerStore>(std::make_shared<SeenService>(local_, oracle), still_clock());
    store_->tables["q"] = {wire::ColumnNames::of(queue.signature), undoes_unsent, false};
    store_->kept_bytes_max = std::size_t{1} << 20;
    store_->message_bytes_max = std::size_t{1} << 20;
    store_->sessions = insert_sessions_of(*store_->service, still_clock());
    store_->random = [&network] { return network.random().next(); };
    network.replace(0, this);
    network.listen(0, "server");
  }
  // Kills the server: its clients are not told.
  ~ServerNode() override {
    for (const auto& [end, guest] : guests_) guest.link->drop();
    for (const auto& [end, guest] : std::exchange(guests_, {})) {
      guest.connection->on_lost(unavailable("killed"));
    }
    local_->close();
  }

  void on_connected(sim::EndId) override {}
  void on_accepted(sim::EndId end, const std::string&) override {
    std::shared_ptr<SimStoreLink> link;
    const auto connection = StoreConnection::make(
        store_,
        [&](std::weak_ptr<StoreLinkEvents> events, const FrameLimits&) {
          link = std::make_shared<SimStoreLink>(network_, 0, end, std::move(events));
          return link;
        },
        nullptr, nullptr);
    guests_[end] = {link, connection};
  }
  void on_bytes(sim::EndId end, std::span<const std::byte> bytes) override {
    const auto guest = guests_.find(end);
    if (guest == guests_.end()) return;
    const std::shared_ptr<StoreConnection> alive = guest->second.connection;
    guest->second.link->on_bytes(bytes);
  }
  void on_closed(sim::EndId end) override {
    const auto guest = guests_.extract(end);
    if (guest) guest.mapped().link->on_closed();
  }

 private:
  struct Guest {
    std::shared_ptr<SimStoreLink> link;
    std::shared_ptr<StoreConnection> connection;
  };
  sim::Network& network_;
  std::shared_ptr<LocalService> local_;
  std::shared_ptr<PeerStore> store_;
  std::map<sim::EndId, Guest> guests_;
};

// A client's connection: it makes the handshake, and reconnects when it is lost.
class ClientNode : public sim::Node {
 public:
  ClientNode(sim::Network& network, sim::NodeId node) : network_(network), node_(node) {
    network.replace(node, this);
    dial();
  }
  ~ClientNode() override {
    if (session_) session_->owner = nullptr;
    if (session_ && session_->link) session_->link->drop();
  }

  // --- What sim_store::World uses of a client
  ClientNode& world() { return *this; }
  TimePoint now() const { return network_.now(node_); }
  void abandon() {
    if (!session_) return;
    if (session_->link) {
      session_->link->hang_up();
    } else {
      network_.close(end_);
    }
    lose();
  }

  // --- sim::Node
  void on_connected(sim::EndId end) override {
    if (!session_ || end != end_) return;
    session_->link = std::make_shared<SimStoreLink>(network_, node_, end, session_);
    session_->mine.name = std::string(store_wire::kClientName);
    session_->link->send({FrameKind::kHello, 0, 0, 0},
                         std::make_shared<const Message>(encode(session_->mine)));
  }
  void on_accepted(sim::EndId, const std::string&) override {}
  void on_bytes(sim::EndId end, std::span<const std::byte> bytes) override {
    const std::shared_ptr<Session> session = session_;
    if (session && end == end_ && session->link) session->link->on_bytes(bytes);
  }
  void on_closed(sim::EndId end) override {
    if (end != end_ || !session_) return;
    if (session_->link) session_->link->drop();
    lose();
  }

 protected:
  virtual void on_open(const std::shared_ptr<StoreLink>& link) = 0;
  virtual void on_lost() = 0;
  virtual void on_answer(const Frame& frame) = 0;
  virtual void on_room() {}
  sim::Network& network() { return network_; }
  sim::NodeId node() const { return node_; }
  bool is_open() const { return session_ && session_->is_open; }
  StoreLink& link() { return *session_->link; }

 private:
  struct Session final : StoreLinkEvents {
    void on_frames(std::vector<Frame> frames) override {
      for (const Frame& frame : frames) {
        if (owner != nullptr) owner->take(*this, frame);
      }
    }
    void on_lost(const Status&) override {}
    void on_room() override {
      if (owner != nullptr) owner->on_room();
    }
    ClientNode* owner = nullptr;
    std::shared_ptr<SimStoreLink> link;  // null until it is connected
    Greeting mine;
    bool is_open = false;
  };

  void dial() {
    session_ = std::make_shared<Session>();
    session_->owner = this;
    end_ = network_.connect(node_, "server");
  }
  void lose() {
    if (!session_) return;
    const bool was_open = session_->is_open;
    session_->owner = nullptr;
    session_ = nullptr;
    if (was_open) on_lost();
    const Duration pause(static_cast<std::int64_t>(network_.random().below(20'000'000)));
    network_.at(node_, now() + pause, [this] {
      if (!session_) dial();
    });
  }
  void take(Session& session, const Frame& frame) {
    const FrameKind kind = frame.header.kind;
    if (kind == FrameKind::kWelcome) {
      Resumption resumption;
      resumption.session = 1;
      session.link->send({FrameKind::kResume, 0, 0, 0},
                         std::make_shared<const Message>(encode(resumption)));
    } else if (kind == FrameKind::kResumed) {
      session.is_open = true;
      on_open(session.link);
    } else if (kind == FrameKind::kAnswer) {
      on_answer(frame);
    } else {
      abandon();  // the server refused it, for example because the writer has a newer connection
    }
  }

  sim::Network& network_;
  const sim::NodeId node_;
  sim::EndId end_ = 0;
  std::shared_ptr<Session> session_;
};

class WriterNode final : public ClientNode {
 public:
  WriterNode(sim::Network& network, sim::NodeId node, Oracle& oracle, ItemKey life)
      : ClientNode(network, node),
        oracle_(oracle),
        life_(life),
        pump_(1, network.random().next()) {}
  // Kills the writer: its requests end.
  ~WriterNode() override {
    is_dead_ = true;
    for (const ItemKey key : mine_) oracle_.open.erase(key);
  }

  // Some inserts with a deadline are cancelled in transit.
  ItemKey insert(TimePoint deadline) {
    const ItemKey key = life_ * kKeysOfALife + ++count_;
    Item item = testing::make_item(key, 1.0, static_cast<float>(count_));
    oracle_.open.insert(key);
    mine_.insert(key);
    InsertRequest request;
    request.table = "q";
    request.items = {&item, 1};
    InsertPump::Done done = [this, key](const InsertResult& result) {
      if (is_dead_) return;
      if (oracle_.open.erase(key) == 0) oracle_.wrong = "a request ended twice";
      mine_.erase(key);
      if (!result.status.ok()) return;
      oracle_.confirmed.insert(key);
      if (!oracle_.went_in.contains(key)) oracle_.wrong = "a confirmed item never went in";
    };
    InsertPump::Ended none;
    const std::uint64_t number = pump_.insert(request, TimePoint::max(), done, none);
    if (deadline == TimePoint::max()) return key;
    network().at(node(), deadline, [this, number] {
      InsertPump::Ended ended;
      const TimePoint until = now() + std::chrono::milliseconds(50);
      pump_.cancel(number, cancelled("late"), until, ended);
      finish(ended);
      network().at(node(), until, [this] {
        InsertPump::Ended late;
        pump_.sweep(now(), {}, late);
        finish(late);
      });
    });
    return key;
  }

 private:
  static void finish(InsertPump::Ended& ended) {
    for (auto& [done, result] : ended) done(std::move(result));
  }
  void on_open(const std::shared_ptr<StoreLink>& link) override {
    InsertPump::Ended none;
    pump_.connect(link, {}, none);
  }
  void on_lost() override {
    InsertPump::Ended ended;
    pump_.disconnect(TimePoint::max(), ended);
    finish(ended);
  }
  void on_room() override {
    InsertPump::Ended none;
    pump_.pump(none);
  }
  void on_answer(const Frame& frame) override {
    const auto inserted = store_wire::read_inserted(frame.message.payload);
    if (!inserted.ok()) {
      oracle_.wrong = "an answer is malformed: " + inserted.status().message();
      return;
    }
    InsertPump::Ended ended;
    pump_.on_inserted(link(), *inserted, ended);
    finish(ended);
  }

  Oracle& oracle_;
  const ItemKey life_;
  InsertPump pump_;
  ItemKey count_ = 0;
  std::set<ItemKey> mine_;
  bool is_dead_ = false;
};

// Requests a few samples over and over, and cancels some requests.
class SamplerNode final : public ClientNode {
 public:
  SamplerNode(sim::Network& network, sim::NodeId node, Oracle& oracle, Random& draws)
      : ClientNode(network, node), oracle_(oracle), withdraws_(draws.uniform() < 0.5) {}

 private:
  void on_open(const std::shared_ptr<StoreLink>&) override {
    received_.clear();
    ask();
  }
  void on_lost() override { asked_ = 0; }

  void ask() {
    if (!is_open() || asked_ != 0) return;
    asked_ = ++last_id_;
    store_wire::SampleMessage ask;
    ask.table = "q";
    ask.count = 1 + network().random().below(4);
    ask.min_count = 1 + network().random().below(ask.count);
    ask.received = std::exchange(received_, {});
    link().send({FrameKind::kCall, static_cast<std::uint64_t>(StoreCall::kSample), 0, asked_},
                store_wire::message_of(store_wire::write_sample(ask)));
    if (!withdraws_ || network().random().below(4) != 0) return;
    const Duration pause(static_cast<std::int64_t>(network().random().below(20'000'000)));
    network().at(node(), now() + pause, [this, id = asked_] {
      if (id == asked_) link().send({FrameKind::kCancel, 0, 0, id}, store_wire::message_of({}));
    });
  }
  void on_answer(const Frame& frame) override {
    const Payload& payload = frame.message.payload;
    const auto part = store_wire::read_part(payload);
    if (!part.ok() || frame.header.call != asked_) {
      oracle_.wrong = "an answer is malformed, or was not asked for";
      return;
    }
    if (!part->tickets.empty()) {
      SampleBatch batch;
      PackedSamples packed;
      const auto view = [](std::span<const std::byte> bytes) {
        return Buffer(const_cast<std::byte*>(bytes.data()), bytes.size(), nullptr);
      };
      const Status read = read_packed(
          payload.bulk.empty() ? std::span<const std::byte>() : payload.bulk.front().bytes, view,
          wire::ColumnNames(), part->tickets.size(), batch, packed);
      if (!read.ok() || batch.size() != part->tickets.size()) {
        oracle_.wrong = "samples are malformed: " + read.message();
        return;
      }
      for (const ItemKey key : batch.keys()) {
        if (++oracle_.delivered[key] > oracle_.went_in[key]) {
          oracle_.wrong = "item " + std::to_string(key) + " was handed out twice";
        }
      }
      batch.clear();
    }
    if (frame.header.received == store_wire::kMoreFollows) return;
    received_.push_back(std::exchange(asked_, 0));
    const Duration pause(static_cast<std::int64_t>(network().random().below(20'000'000)));
    network().at(node(), now() + pause, [this] { ask(); });
  }

  Oracle& oracle_;
  const bool withdraws_;
  std::uint64_t last_id_ = 0;
  std::uint64_t asked_ = 0;  // the open request, or 0
  std::vector<std::uint64_t> received_;
};

struct PeerDoor {
  using Server = ServerNode;
  using Writer = WriterNode;
  using Sampler = SamplerNode;
};

Outcome run(std::uint64_t seed, const std::vector<Fault>& faults) {
  return World<PeerDoor>(seed, 0.01).run(faults);
}

TEST(PeerStoreOnASimulatedNetwork, InsertsEachItemOnceAndDeliversItOnce) {
  const int seeds = static_cast<int>(scaled_in_release(1000, 10'000));
  std::size_t went_in = 0;
  std::size_t delivered = 0;
  int runs = 0;
  for (int i = 1; i <= seeds; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    const Outcome outcome = run(seed, faults_of(seed));
    ASSERT_EQ(outcome.wrong, "") << "seed " << seed
                                 << ", with these faults alone:" << text_of(shrunk(seed, run));
    went_in += outcome.went_in;
    delivered += outcome.delivered;
    runs += outcome.runs;
  }
  // Faults have an effect, and most items arrive.
  EXPECT_GT(runs, seeds + seeds / 4);
  EXPECT_GT(went_in, static_cast<std::size_t>(50 * seeds));
  EXPECT_GT(delivered, static_cast<std::size_t>(40 * seeds));
}

TEST(PeerStoreOnASimulatedNetwork, TheSameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(run(seed, faults_of(seed)).trace, run(seed, faults_of(seed)).trace);
  }
  EXPECT_NE(run(1, faults_of(1)).trace, run(2, faults_of(2)).trace);
}

}  // namespace
}  // namespace reverie
