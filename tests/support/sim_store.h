// Writers and samplers of one queue on sim::Network, for tests of the interfaces of a served store:
// their observations, the faults, and the invariants of every run.
//
// A Door is a type with three nodes: Server(network, oracle, undoes_unsent), Writer(network, node,
// oracle, life) with insert() and world(), and Sampler(network, node, oracle, draws) with world().
// world().now() is the node's clock, world().abandon() abandons its connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/sim/network.h"
#include "reverie/sim/shrink.h"
#include "tests/support/forwarding_service.h"
#include "tests/support/items.h"

namespace reverie::sim_store {

inline constexpr std::size_t kWriters = 3;
inline constexpr std::size_t kSamplers = 2;
inline constexpr std::size_t kNodes = 1 + kWriters + kSamplers;  // node 0 is the server
inline constexpr std::int64_t kQueueSize = 8;
inline constexpr ItemKey kKeysOfALife = 100'000;  // keys are life * this + number

// What all nodes together have done.
struct Oracle {
  int run = 0;                                      // the server's
  std::map<std::pair<int, ItemKey>, int> in;        // by run: how often an item was inserted
  std::map<std::pair<int, ItemKey>, ItemKey> last;  // by run and life: the item inserted last
  std::map<ItemKey, int> went_in;                   // inserts over all runs
  std::map<ItemKey, int> delivered;
  std::set<ItemKey> open;  // requests that have not ended
  std::set<ItemKey> confirmed;
  std::string wrong;

  void note_in(ItemKey key) {
    if (++in[{run, key}] > 1) wrong = "item " + std::to_string(key) + " went in twice";
    ++went_in[key];
    ItemKey& before = last[{run, key / kKeysOfALife}];
    if (key < before) wrong = "item " + std::to_string(key) + " went in after a later one";
    before = key;
  }
};

// A store whose inserts the oracle observes.
class SeenService final : public testing::ForwardingService {
 public:
  SeenService(std::shared_ptr<ReplayService> inner, Oracle& oracle)
      : ForwardingService(std::move(inner)), oracle_(oracle) {}

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

 private:
  static std::vector<ItemKey> keys_of(std::span<const Item> items) {
    std::vector<ItemKey> keys;
    for (const Item& item : items) keys.push_back(item.key);
    return keys;
  }
  void note(const std::vector<ItemKey>& keys, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) oracle_.note_in(keys[i]);
  }

  Oracle& oracle_;
};

// A fault, and its time.
struct Fault {
  enum class Kind { kKill, kStart, kAbandon, kPartition, kHeal, kSlow };
  TimePoint when;
  Kind kind = Kind::kHeal;
  sim::NodeId who = 0;
  sim::NodeId other = 0;
};

inline constexpr TimePoint kFaultsEnd{2'000'000'000};

inline std::vector<Fault> faults_of(std::uint64_t seed) {
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

// A node whose events make time pass when nothing else happens.
class Bystander final : public sim::Node {
 public:
  void on_connected(sim::EndId) override {}
  void on_accepted(sim::EndId, const std::string&) override {}
  void on_bytes(sim::EndId, std::span<const std::byte>) override {}
  void on_closed(sim::EndId) override {}
};

template <typename Door>
class World {
 public:
  // With a cut_share of 0, the list of faults is the only cause of harm.
  World(std::uint64_t seed, double cut_share)
      : network_(seed, {.cut_share = cut_share}), seed_(seed), draws_(seed ^ 0x5eed) {
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
      server_ = std::make_unique<typename Door::Server>(network_, oracle_, seed_ % 2 == 0);
    } else if (node <= kWriters) {
      writers_[node - 1] =
          std::make_unique<typename Door::Writer>(network_, node, oracle_, ++lives_);
    } else {
      samplers_[node - 1 - kWriters] =
          std::make_unique<typename Door::Sampler>(network_, node, oracle_, draws_);
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
  // Ends all faults; then open requests must end, and new items be inserted and sampled.
  void settle() {
    network_.heal();
    network_.set_options({});
    for (sim::NodeId node = 0; node < kNodes; ++node) {
      network_.slow_down(node, {});
      start(node);
      // Bytes lost in a partition are lost for good, so connections are abandoned.
      if (node > 0 && node <= kWriters) writers_[node - 1]->world().abandon();
      if (node > kWriters) samplers_[node - 1 - kWriters]->world().abandon();
    }
    // Otherwise servers would draw for readers whose connections are gone.
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
    // A request for several samples waits until there are enough, so more items are inserted.
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
  Random draws_;
  ItemKey lives_ = 0;
  std::unique_ptr<typename Door::Server> server_;
  std::vector<std::unique_ptr<typename Door::Writer>> writers_{kWriters};
  std::vector<std::unique_ptr<typename Door::Sampler>> samplers_{kSamplers};
};

inline std::string text_of(const std::vector<Fault>& faults) {
  static constexpr const char* kNames[] = {"kill", "start", "abandon", "partition", "heal", "slow"};
  std::string text;
  for (const Fault& fault : faults) {
    text += format("\n{:9.6f} s: {} {} {}", to_seconds(fault.when - TimePoint{}),
                   kNames[static_cast<int>(fault.kind)], fault.who, fault.other);
  }
  return text;
}

// The shortest list of the seed's faults with which it still fails, for people to read.
inline std::vector<Fault> shrunk(
    std::uint64_t seed,
    const std::function<Outcome(std::uint64_t, const std::vector<Fault>&)>& run) {
  return sim::shrink<Fault>(faults_of(seed), [&](const std::vector<Fault>& faults) {
    return !run(seed, faults).wrong.empty();
  });
}

}  // namespace reverie::sim_store
