// Tested in tests/sim/peers_sim_test.cc.
#include "reverie/sim/network.h"

#include <algorithm>

namespace reverie::sim {

Network::Network(std::uint64_t seed, NetworkOptions options) : random_(seed), options_(options) {}

NodeId Network::add(Node* node) {
  nodes_.push_back(node);
  incarnations_.push_back(1);
  clocks_.emplace_back();
  pauses_.emplace_back();
  return nodes_.size() - 1;
}

Duration Network::delay() {
  const auto range = static_cast<std::uint64_t>((options_.delay_max - options_.delay_min).count());
  Duration drawn =
      options_.delay_min + Duration(static_cast<std::int64_t>(random_.below(range + 1)));
  if (random_.uniform() < options_.slow_share) {
    drawn *= static_cast<std::int64_t>(1 + random_.below(100));
  }
  return drawn;
}

void Network::push(TimePoint when, Event event) {
  events_.emplace(std::pair(when.ns, next_event_++), std::move(event));
}

TimePoint Network::now(NodeId node) const {
  const NodeClock& clock = clocks_[node];
  if (clock.rate == 1.0) return now_ + clock.ahead;
  return TimePoint{static_cast<std::int64_t>(static_cast<double>(now_.ns) * clock.rate)} +
         clock.ahead;
}

void Network::at(NodeId node, TimePoint when, std::function<void()> run) {
  TimePoint there = now_;
  if (const Duration left = when - now(node); left > Duration::zero()) {
    const double rate = clocks_[node].rate;
    // Rounded up: its clock then shows `when`, or a nanosecond more.
    there =
        now_ +
        (rate == 1.0
             ? left
             : Duration(static_cast<std::int64_t>(static_cast<double>(left.count()) / rate) + 1));
  }
  push(there, {node, incarnations_[node], "wake", 0, 0, std::move(run)});
}

void Network::kill(NodeId node) {
  for (auto& [end, side] : sides_) {
    if (side.node != node || !side.is_open) continue;
    side.is_open = false;
    deliver_end(end ^ 1u);
  }
  ++incarnations_[node];
  nodes_[node] = nullptr;
  std::erase_if(listeners_, [&](const auto& entry) { return entry.second == node; });
}

void Network::end_half_open() {
  for (auto& [end, side] : sides_) {
    const auto other = sides_.find(end ^ 1u);
    if (side.is_open && other != sides_.end() && !other->second.is_open) deliver_end(end);
  }
}

void Network::replace(NodeId id, Node* node) {
  nodes_[id] = node;
  ++incarnations_[id];
}

void Network::listen(NodeId node, const std::string& address) {
  listeners_[address] = node;
}

EndId Network::connect(NodeId from, const std::string& address) {
  const EndId mine = next_end_;
  next_end_ += 2;
  const EndId theirs = mine ^ 1u;
  Side& side = sides_[mine];
  side.node = from;
  side.life = incarnations_[from];
  const auto listener = listeners_.find(address);
  const bool is_lost =
      listener != listeners_.end() &&
      (cut_off_.contains({from, listener->second}) || cut_off_.contains({listener->second, from}));
  const TimePoint there = now_ + delay();
  if (listener == listeners_.end() || is_lost) {
    // No answer is sent, or none comes back.
    const TimePoint told = is_lost ? there + std::chrono::seconds(3) : there;
    push(told, {from, incarnations_[from], "refused", mine, 0, [this, mine, from] {
                  sides_.erase(mine);
                  nodes_[from]->on_closed(mine);
                }});
    return mine;
  }
  const NodeId to = listener->second;
  Side& other = sides_[theirs];
  other.node = to;
  other.life = incarnations_[to];
  // Who connects to a Unix socket has no address.
  const std::string whence =
      address.starts_with("unix:") ? "unix:" : "node" + std::to_string(from) + ":1";
  push(there, {to, incarnations_[to], "accept", theirs, 0, [this, theirs, to, whence] {
                 if (!sides_.contains(theirs)) return;
                 sides_[theirs].is_open = true;
                 nodes_[to]->on_accepted(theirs, whence);
               }});
  const TimePoint back = there + delay();
  sides_[theirs].last_arrival = back;
  push(back, {from, incarnations_[from], "connected", mine, 0, [this, mine, from] {
                const auto place = sides_.find(mine);
                if (place == sides_.end()) return;
                place->second.is_open = true;
                nodes_[from]->on_connected(mine);
              }});
  return mine;
}

void Network::send(EndId end, std::vector<std::byte> bytes) {
  const auto place = sides_.find(end);
  const auto other = sides_.find(end ^ 1u);
  if (place == sides_.end() || other == sides_.end() || !place->second.is_open) return;
  Side& side = place->second;
  const NodeId to = other->second.node;
  if (cut_off_.contains({side.node, to})) side.is_swallowed = true;
  if (side.is_swallowed) return;
  const bool is_cut = random_.uniform() < options_.cut_share;
  if (is_cut) bytes.resize(random_.below(bytes.size() + 1));
  side.last_arrival = std::max(side.last_arrival, now_ + delay()) + pauses_[to];
  const std::size_t size = bytes.size();
  const EndId theirs = end ^ 1u;
  push(side.last_arrival,
       {to, other->second.life, "bytes", theirs, size, [this, theirs, to, b = std::move(bytes)] {
          const auto open = sides_.find(theirs);
          if (open != sides_.end() && open->second.is_open) nodes_[to]->on_bytes(theirs, b);
        }});
  if (is_cut) {
    side.is_swallowed = true;
    other->second.is_swallowed = true;
    deliver_end(end);
    deliver_end(theirs);
  }
}

// Tells the owner of `to` that the stream is over, behind what is on its way to it.
void Network::deliver_end(EndId to) {
  const auto place = sides_.find(to);
  const auto other = sides_.find(to ^ 1u);
  if (place == sides_.end()) return;
  TimePoint when = now_ + delay();
  if (other != sides_.end()) {
    when = std::max(when, other->second.last_arrival);
    other->second.last_arrival = when;
    if (cut_off_.contains({other->second.node, place->second.node})) return;
  }
  const NodeId node = place->second.node;
  push(when, {node, place->second.life, "closed", to, 0, [this, to, node] {
                const auto open = sides_.find(to);
                if (open == sides_.end() || !open->second.is_open) return;
                open->second.is_open = false;
                nodes_[node]->on_closed(to);
              }});
}

void Network::close(EndId end) {
  const auto place = sides_.find(end);
  if (place == sides_.end()) return;
  const bool was_open = place->second.is_open;
  place->second.is_open = false;
  if (was_open) deliver_end(end ^ 1u);
}

bool Network::step() {
  while (!events_.empty()) {
    auto node = events_.extract(events_.begin());
    now_.ns = std::max(now_.ns, node.key().first);
    Event& event = node.mapped();
    if (nodes_[event.node] == nullptr || incarnations_[event.node] != event.life) continue;
    note(static_cast<std::uint64_t>(now_.ns));
    for (const char* letter = event.what; *letter != 0; ++letter) {
      note(static_cast<std::uint64_t>(*letter));
    }
    note(event.node);
    note(event.end);
    note(event.size);
    event.run();
    return true;
  }
  return false;
}

}  // namespace reverie::sim
