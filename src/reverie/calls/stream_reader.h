// StreamReader: the values of a call that gives many (stream_server.h, or a generator in Python).
//
//     REVERIE_ASSIGN_OR_RETURN(const auto stream, StreamReader::open(peer, "counter", "count",
//                                                                    std::move(arguments), {}));
//     while (true) {
//       REVERIE_ASSIGN_OR_RETURN(const std::optional<Payload> value, stream->next(deadline));
//       if (!value) break;                                   // stream->result(): what it gave
//     }
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/calls/pending_call.h"
#include "reverie/calls/stream_wire.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Thread-safe. One thread may read while another one sends, and any may close it; a second one that
// reads, or sends, meanwhile gets FAILED_PRECONDITION. Its destructor closes it.
class StreamReader final {
 public:
  struct Options {
    // How many values may be in transit or unread in each direction; >= 1.
    std::size_t window = 16;
    // By when the server must have begun it.
    TimePoint deadline = TimePoint::max();
  };

  // Begins the stream, and waits until the server has. INVALID_ARGUMENT for a window of 0; what
  // Peer::sync returns if it cannot begin.
  static Result<std::unique_ptr<StreamReader>> open(const std::shared_ptr<Peer>& peer,
                                                    const std::string& to,
                                                    const std::string& function, Payload arguments,
                                                    const Options& options);
  ~StreamReader() { close(); }
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  // The next value; nothing after the last. DEADLINE_EXCEEDED if none has arrived by then: the
  // stream continues. CANCELLED if it is closed meanwhile. Any other error ends it.
  Result<std::optional<Payload>> next(TimePoint until);
  // What the function gave at its end, once next() has found it.
  std::optional<Payload> result() const;

  // Sends one value; waits while the server has `window` of them that it has not taken.
  // DEADLINE_EXCEEDED if it takes none by then: nothing was sent. FAILED_PRECONDITION after
  // finish(), and once the stream has ended.
  Status send(Payload value, TimePoint until);
  // No value follows.
  Status finish(TimePoint until);

  // The server is told, and ends the stream. Idempotent.
  void close();

 private:
  class Alone;
  using Call = std::shared_ptr<PendingCall>;
  using Calls = std::deque<Call>;
  StreamReader(std::shared_ptr<Peer> peer, std::string to, std::uint64_t number, std::size_t window)
      : peer_(std::move(peer)), to_(std::move(to)), number_(number), window_(window) {}
  Result<Call> ask(StreamAsk what, std::uint64_t number, Payload value = {},
                   TimePoint deadline = TimePoint::max());
  Status fill_window();
  void keep(Calls StreamReader::*calls, Call call);
  // False if that was done before.
  bool cancel_calls();
  // The first call of a queue, once it is done; nothing if the stream is over.
  Result<Call> wait_for_first(Calls StreamReader::*calls, TimePoint until, const char* what);

  const std::shared_ptr<Peer> peer_;
  const std::string to_;
  const std::uint64_t number_;
  const std::size_t window_;
  std::atomic<bool> is_reading_{false};
  std::atomic<bool> is_sending_{false};

  mutable Mutex mutex_;
  Calls wanted_ REVERIE_GUARDED_BY(mutex_);   // values that were asked for
  Calls untaken_ REVERIE_GUARDED_BY(mutex_);  // values that were sent
  Call watch_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t asked_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::uint64_t sent_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_finished_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  std::optional<Payload> result_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
