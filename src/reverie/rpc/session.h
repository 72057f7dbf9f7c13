// The frames that two runs of two peers exchange, in order and each once, over successive
// connections.
//
//     queue   [ 7 sent ][ 8 sent ][ 9 sent ][ 10 ][ 11 ]      each until the other side
//                                                             has received it
//
// A connection is a stream, so what arrives is a prefix of what was sent. On the next connection
// each side continues after the last sequence that the other received. Frames with a sequence at or
// below it are duplicates and are dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/rpc/frame.h"
#include "reverie/rpc/handshake.h"

namespace reverie {

using LinkId = std::uint64_t;
using CallId = std::uint64_t;

// Plain data with the rules above; PeerCore decides.
struct Session {
  struct Queued {
    FrameHeader header;
    std::shared_ptr<const Message> message;
    bool is_sent = false;  // on some connection: it may have arrived
  };

  std::string peer_name;
  RunId peer_run;
  std::uint64_t nonce = 0;       // of this side's state; never 0
  std::uint64_t peer_nonce = 0;  // of the other side's; 0 until it is known
  std::string peer_host;
  std::vector<std::string> peer_addresses;
  // The same for others. A wildcard of a peer on this host means the host that they reach this at.
  std::vector<std::string> told_addresses;
  LinkId link = 0;  // 0: none now
  TimePoint link_lost_at;
  bool is_host_proved = false;  // both runs have read memory of the other (os/link_share.h)
  // Lives as long as the session at the other end.
  std::shared_ptr<const void> life = std::make_shared<char>();
  // Memory that the other side reads, by the message that names it.
  std::map<std::pair<FrameKind, std::uint64_t>, std::shared_ptr<Lent>> lent;

  std::uint64_t next_sequence = 1;
  std::uint64_t last_received = 0;
  std::size_t unacknowledged = 0;  // frames that were received since the last acknowledgement
  std::size_t unacknowledged_bytes = 0;
  std::deque<Queued> queue;
  std::size_t answer_bytes = 0;  // of the answers in it
  bool is_unread = false;        // the other side reads too slowly: the bound is exceeded

  std::size_t call_count = 0;  // of this side, not answered
  // Calls of the other side that are not answered: the call's number, the bytes of its arguments.
  std::unordered_map<std::uint64_t, std::size_t> running;

  // The other side has received everything up to `sequence`. Returns the bytes of the answers in
  // it.
  std::size_t acknowledge(std::uint64_t sequence) {
    std::size_t bytes = 0;
    while (!queue.empty() && queue.front().header.sequence <= sequence) {
      bytes += answer_bytes_of(queue.front());
      queue.pop_front();
    }
    answer_bytes -= bytes;
    return bytes;
  }
  // The other side does not read the memory any more that this message names.
  void take_back(FrameKind kind, std::uint64_t call) {
    const auto found = lent.extract({kind, call});
    if (!found.empty()) found.mapped()->memory.reset();
  }
  void take_all_back() {
    for (const auto& [message, taken] : std::exchange(lent, {})) taken->memory.reset();
  }
  static std::size_t answer_bytes_of(const Queued& queued) {
    return queued.header.kind == FrameKind::kAnswer ? queued.message->size_bytes() : 0;
  }
  // Records the frame; true if it is new.
  bool receive(std::uint64_t sequence) {
    if (sequence <= last_received) return false;
    last_received = sequence;
    ++unacknowledged;
    return true;
  }
};

}  // namespace reverie
