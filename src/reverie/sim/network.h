// sim::Network: nodes, streams between them and a clock, on one thread and from one seed.
//
//     a node's events  -->  its code  -->  connect, send, close, at
//           ^                                     |
//           |                                     v
//           +---- [ 0.3 ms: bytes ][ 0.9 ms: end ][ 4 ms: wake ] ----   the queue, by time
//
// What can go wrong, by draws from the seed: bytes are delayed; a stream is cut after any byte, and
// its two ends learn of it at different times, or while their bytes are still in flight on a newer
// stream; a partition, in one direction or both, silently drops what is sent; a node dies, and may
// return as another run of itself; a node reads slowly, or its clock is ahead and runs fast. Within
// a stream order is kept, as TCP keeps it: loss, repetition and reordering come from consecutive
// streams, of which an older one may arrive last.
//
// The same seed gives the same run: trace() is a hash of every event, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/random.h"

namespace reverie::sim {

using NodeId = std::size_t;
// One end of a stream. Its other end has the same number with the lowest bit changed.
using EndId = std::uint64_t;

// The code of one node. It may call the network in its events.
class Node {
 public:
  virtual ~Node() = default;
  virtual void on_connected(EndId end) = 0;
  virtual void on_accepted(EndId end, const std::string& from) = 0;
  virtual void on_bytes(EndId end, std::span<const std::byte> bytes) = 0;
  // An open stream was closed, or an attempt to connect failed.
  virtual void on_closed(EndId end) = 0;
};

struct NetworkOptions {
  Duration delay_min = std::chrono::microseconds(20);
  Duration delay_max = std::chrono::milliseconds(2);
  double slow_share = 0.01;  // of sent bytes take up to a hundred times as long
  double cut_share = 0.0;    // of sent bytes cut their stream
};

// A node's clock: `ahead` of the network's, and `rate` times as fast.
struct NodeClock {
  Duration ahead{};
  double rate = 1.0;
};

// Not thread-safe.
class Network {
 public:
  Network(std::uint64_t seed, NetworkOptions options);

  TimePoint now() const { return now_; }
  // The time on the node's clock.
  TimePoint now(NodeId node) const;
  Random& random() { return random_; }
  std::uint64_t trace() const { return trace_; }
  void set_options(NetworkOptions options) { options_ = options; }

  // `node` must outlive the network, unless it is replaced.
  NodeId add(Node* node);
  // Cuts the node's streams and drops its at() callbacks; nothing reaches it until
  // replace().
  void kill(NodeId node);
  void replace(NodeId id, Node* node);
  void listen(NodeId node, const std::string& address);
  // From now on, what `from` sends to `to` is silently lost.
  void partition(NodeId from, NodeId to) { cut_off_.insert({from, to}); }
  void heal() { cut_off_.clear(); }
  // Acts like a keepalive: a stream that is closed at one end ends at the other too, even if a
  // partition has dropped the notice.
  void end_half_open();
  // Survives the node's deaths. Call it before anything uses the node's clock.
  void set_clock(NodeId node, NodeClock clock) { clocks_[node] = clock; }
  // The node reads arrivals with this pause after earlier bytes of the same stream; zero: at once.
  void slow_down(NodeId node, Duration pause) { pauses_[node] = pause; }

  EndId connect(NodeId from, const std::string& address);
  void send(EndId end, std::vector<std::byte> bytes);
  void close(EndId end);
  // `when` is a time of the node's clock.
  void at(NodeId node, TimePoint when, std::function<void()> run);

  // Runs one event. False if there is none.
  bool step();

 private:
  struct Side {
    NodeId node = 0;
    std::uint64_t life = 0;
    bool is_open = false;
    bool is_swallowed = false;  // what it sends never arrives
    TimePoint last_arrival;
  };
  struct Event {
    NodeId node;
    std::uint64_t life;
    const char* what;
    EndId end;
    std::size_t size;
    std::function<void()> run;
  };

  Duration delay();
  void push(TimePoint when, Event event);
  void note(std::uint64_t value) { trace_ = mix64(trace_ ^ value); }
  void deliver_end(EndId to);

  Random random_;
  NetworkOptions options_;
  TimePoint now_{};
  std::uint64_t trace_ = 0;
  std::uint64_t next_event_ = 0;
  EndId next_end_ = 2;
  std::vector<Node*> nodes_;
  std::vector<std::uint64_t> incarnations_;
  std::vector<NodeClock> clocks_;
  std::vector<Duration> pauses_;
  std::map<std::string, NodeId> listeners_;
  std::map<EndId, Side> sides_;
  std::set<std::pair<NodeId, NodeId>> cut_off_;
  std::map<std::pair<std::int64_t, std::uint64_t>, Event> events_;
};

}  // namespace reverie::sim
