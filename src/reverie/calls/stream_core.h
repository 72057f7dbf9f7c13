// One stream at its server: which values its caller has room for, and which it has sent.
//
//     wanted   [ 7 ][ 8 ][ 9 ]       calls that wait for a value each, at most the caller's window
//     sent     [ 3 ][ 4 ]            calls that bring a value each, answered when it is taken
//
// A state machine: no lock, no thread. Each method appends the answers that it causes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "reverie/calls/stream_wire.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Not thread-safe.
class StreamCore {
 public:
  // An answer, or with an error the failure of a request.
  struct Answer {
    InboundId request;
    Payload payload = {};
    std::optional<RemoteError> error = std::nullopt;
  };
  using Answers = std::vector<Answer>;

  // --- The caller's messages.
  void want(std::uint64_t number, InboundId request, Answers& answers);
  void send(std::uint64_t number, Payload value, InboundId request, Answers& answers);
  void finish(std::uint64_t count, InboundId request, Answers& answers);
  // The caller has closed the stream or disconnected.
  void close(Answers& answers);

  // --- The server's side.
  bool has_room() const { return !is_over() && wanted_.contains(next_); }
  // REQUIRES: has_room().
  void put(Payload value, Answers& answers);
  // No value follows; the first of these counts.
  void end(Payload result, Answers& answers);
  void fail(RemoteError error, Answers& answers);
  // The next value that the caller has sent.
  std::optional<Payload> take(Answers& answers);
  // The caller sends no more, and all was taken.
  bool is_finished() const { return is_closed_ || (count_ && taken_ >= *count_); }
  // Nothing more can be put: it has ended or was closed.
  bool is_over() const { return is_closed_ || end_.has_value(); }
  bool is_closed() const { return is_closed_; }

 private:
  struct End {
    Payload result;
    std::optional<RemoteError> error;
  };
  void over(Answers& answers);

  std::map<std::uint64_t, InboundId> wanted_;
  std::uint64_t next_ = 0;  // the number of the next value that is put
  std::map<std::uint64_t, std::pair<Payload, InboundId>> sent_;
  std::uint64_t taken_ = 0;
  std::optional<std::uint64_t> count_;  // of all that are sent, once it is known
  std::optional<End> end_;
  bool has_told_end_ = false;
  bool is_closed_ = false;
};

}  // namespace reverie
