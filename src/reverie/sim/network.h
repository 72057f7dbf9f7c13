// sim::Network: nodes, streams between them and a clock, on one thread and from one seed.
//
//     a node's events  -->  its code  -->  connect, send, close, at
//           ^                                     |
//           |                                     v
//           +---- [ 0.3 ms: bytes ][ 0.9 ms: end ][ 4 ms: wake ] ----   the queue, by time
//
// What can go wrong, by draws of the seed: bytes take their time; a stream is cut behind any byte,
// and its two ends learn of it at different times, or while bytes of theirs are still on their way
// on a newer stream; a partition, in one direction or both, swallows what is sent, and says
// nothing; a node dies, and may come back as another run of itself; a node reads slowly, or its
// clock is ahead and runs fast. Within a stream order is kept, as TCP keeps it: loss, repetition
// and reordering come from streams that follow each other, of which an older one may arrive last.
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
  // A stream was closed that was open, or an attempt to connect failed.
  virtual void on_closed(EndId end) = 0;
};

struct NetworkOptions {
  Duration delay_min = std::chrono::microseconds(20);
  Duration delay_max = std::chrono::milliseconds(2);
  double slow_share = 0.01;  // of what is sent takes up to a hundred times as long
  double cut_share = 0.0;    // of what is sent cuts its stream
};

// What a node takes for the time: `ahead` of the network's, and `rate` times as fast.
struct NodeClock {
  Duration ahead{};
  double rate = 1.0;
};

// Not thread-safe.
class Network {
 public:
  Network(std::uint64_t seed, NetworkOptions options);

  TimePoint now() const { return now_; }
  // As the node's clock shows it.
  TimePoint now(NodeId node) const;
  Random& random() { return random_; }
  std::uint64_t trace() const { return trace_; }
  void set_options(NetworkOptions options) { options_ = options; }

  // `node` outlives the network, or is replaced.
  NodeId add(Node* node);
  // The node's streams are cut, what it asked for at() is dropped, and nothing reaches it any more
  // until replace().
  void kill(NodeId node);
  void replace(NodeId id, Node* node);
  void listen(NodeId node, const std::string& address);
  // From now on what `from` sends to `to` is lost, unseen.
  void partition(NodeId from, NodeId to) { cut_off_.insert({from, to}); }
  void heal() { cut_off_.clear(); }
  // As a keepalive does: a stream of which one end is closed ends at the other too, though a
  // partition has swallowed the word.
  void end_half_open();
  // Kept over the node's deaths. Before anything is asked for at a time of it.
  void set_clock(NodeId node, NodeClock clock) { clocks_[node] = clock; }
  // What arrives is read so much behind what arrived before it on the same stream; zero: at once.
  void slow_down(NodeId node, Duration pause) { pauses_[node] = pause; }

  EndId connect(NodeId from, const std::string& address);
  void send(EndId end, std::vector<std::byte> bytes);
  void close(EndId end);
  // `when` is a time of the node's clock.
  void at(NodeId node, TimePoint when, std::function<void()> run);

  // Runs one event. False without one.
  bool step();

 private:
  struct Side {
    NodeId node = 0;
    std::uint64_t life = 0;
    bool is_open = false;
    bool is_swallowed = false;  // what it sends never arrives any more
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
  std::vector<std::uint64_t> lives_;
  std::vector<NodeClock> clocks_;
  std::vector<Duration> pauses_;
  std::map<std::string, NodeId> listeners_;
  std::map<EndId, Side> sides_;
  std::set<std::pair<NodeId, NodeId>> cut_off_;
  std::map<std::pair<std::int64_t, std::uint64_t>, Event> events_;
};

}  // namespace reverie::sim
