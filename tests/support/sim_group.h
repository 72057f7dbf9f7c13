// A broker and members that start and stop on sim::Network, for tests of what is built on groups.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/group/broker_core.h"
#include "reverie/group/group_core.h"
#include "tests/support/sim_peer.h"

namespace reverie {

class SimBroker final : public SimPeer {
 public:
  SimBroker(sim::Network& network, sim::NodeId node)
      : SimPeer(network, node, "broker"), core_(options(network)) {
    EXPECT_TRUE(peer().define(kBrokerFunction).ok());
  }

 private:
  static BrokerOptions options(sim::Network& network) {
    BrokerOptions made;
    made.random = [&network] { return network.random().next(); };
    return made;
  }
  void on_request(Request request) override { core_.on_request(request, now()); }
  void on_withdrawn(InboundId request) override { core_.on_withdrawn(request, now()); }
  void step() override {
    if (core_.next_tick() <= now()) core_.tick(now());
    for (BrokerCore::Answer& answer : core_.take_answers()) {
      if (answer.status.ok()) {
        peer().answer(answer.to, std::move(answer.payload), now());
      } else {
        peer().fail(answer.to, {answer.status.code(), "", answer.status.message(), ""}, now());
      }
    }
  }
  TimePoint next_step() const override { return core_.next_tick(); }

  BrokerCore core_;
};

// A broker, which is node 0, and members, nodes 1 and up. `Seen` is what all of them have observed,
// and has a text `wrong`, which stays empty as long as no invariant is violated.
template <typename Member, typename Seen>
class SimWorld {
 public:
  SimWorld(std::uint64_t seed, std::size_t members, sim::NetworkOptions options)
      : network(seed, options), members_(members) {
    for (std::size_t i = 0; i <= members; ++i) network.add(nullptr);
    start_broker();
    for (std::size_t i = 0; i < members; ++i) start(i);
  }

  void start_broker() {
    broker_ = std::make_unique<SimBroker>(network, 0);
    network.replace(0, broker_.get());
    broker_->listen("10.0.0.0:1");
    broker_->settle();
  }
  void kill_broker() {
    network.kill(0);
    broker_.reset();
  }
  bool has_broker() const { return broker_ != nullptr; }
  void start(std::size_t i) {
    members_[i] = std::make_unique<Member>(network, i + 1, "m" + std::to_string(i), oracle);
    network.replace(i + 1, members_[i].get());
    members_[i]->listen("10.0.0." + std::to_string(i + 1) + ":1");
    members_[i]->connect("10.0.0.0:1");
  }
  void kill(std::size_t i) {
    network.kill(i + 1);
    members_[i].reset();
  }
  // Null while the member is dead.
  Member* member(std::size_t i) { return members_[i].get(); }
  std::size_t size() const { return members_.size(); }

  void run(Duration duration) {
    const TimePoint until = network.now() + duration;
    while (network.now() < until && oracle.wrong.empty() && network.step()) {
    }
  }
  // Runs until `is_so`, for at most `limit`; returns the simulated time that took.
  Duration time_until(const std::function<bool()>& is_so, Duration limit) {
    const TimePoint begin = network.now();
    while (!is_so() && network.now() - begin < limit && network.step()) {
    }
    return network.now() - begin;
  }

  sim::Network network;
  Seen oracle;

 private:
  std::unique_ptr<SimBroker> broker_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace reverie
