// Streams that a peer serves: functions that give many values, as their callers have room for them.
//
//     StreamServer streams(peer);
//     streams.define("count", [](const std::shared_ptr<ServedStream>& stream, Request) {
//       stream->set_changed([n = 0](ServedStream& self) mutable {
//         while (self.has_room() && n < 10) self.put(number(n++));
//         if (n == 10) self.end();
//       });
//     });
//
// A stream never buffers a value: put() answers a call of the stream's caller, which has at most
// its window of them in progress. So a slow reader holds the server back. StreamReader is the other
// side, or `Rpc.stream` in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/calls/stream_core.h"
#include "reverie/rpc/peer.h"

namespace reverie {

class PeerTurns;

// One stream of a caller. Thread-safe.
class ServedStream final : public std::enable_shared_from_this<ServedStream> {
 public:
  // Called after the caller has asked for a value, sent one, or closed the stream: on the thread
  // that reads the peer's messages, under no lock, and not twice at a time. It must not wait.
  using Changed = std::function<void(ServedStream& stream)>;

  const std::string& caller() const { return caller_; }
  // Also calls it once, at once. Replaces the one before.
  void set_changed(Changed changed);

  // Whether the caller has room for a value.
  bool has_room() const;
  // Sends a value. RESOURCE_EXHAUSTED without room, CANCELLED once the caller has closed the stream
  // or disconnected, FAILED_PRECONDITION after end() and fail().
  Status put(Payload value);
  // No value follows. `result` is for the caller, too. Ignored after the first.
  void end(Payload result = {});
  void fail(const RemoteError& error);
  bool is_closed() const;

  // The next value that the caller has sent, if there is one.
  std::optional<Payload> take();
  // The caller sends no more, and all was taken.
  bool is_finished() const;

 private:
  friend class StreamServer;
  ServedStream(std::shared_ptr<PeerTurns> turns, std::string caller)
      : turns_(std::move(turns)), caller_(std::move(caller)) {}
  void on_message(StreamMessage message, InboundId request);
  void on_close();
  void carry_out(StreamCore::Answers answers);
  void tell();

  const std::shared_ptr<PeerTurns> turns_;
  const std::string caller_;
  mutable Mutex mutex_;
  StreamCore core_ REVERIE_GUARDED_BY(mutex_);
  std::shared_ptr<Changed> changed_ REVERIE_GUARDED_BY(mutex_);
  bool is_telling_ REVERIE_GUARDED_BY(mutex_) = false;
  bool has_news_ REVERIE_GUARDED_BY(mutex_) = false;  // since the call that runs began
};

// The streams of one peer, which it holds. Thread-safe. When it ends, all streams are closed; it
// waits for a Begin that is running, and so must not end within one, nor within a Changed.
class StreamServer final {
 public:
  // Streams that are served at the same time; a further one is refused.
  static constexpr std::size_t kStreamsMax = 65'536;
  // A stream that its caller does not watch by then is closed once another one begins: the caller
  // was lost, or gave up, before it had the stream's number.
  static constexpr Duration kWatchTime = std::chrono::seconds(30);

  // Called when a caller begins a stream, on the thread that reads the peer's messages, under no
  // lock. It must not wait. If it drops `stream` and sets no callback, the stream never ends.
  using Begin = std::function<void(const std::shared_ptr<ServedStream>& stream, Request request)>;

  // ALREADY_EXISTS if the peer has a StreamServer.
  static Result<std::unique_ptr<StreamServer>> make(const std::shared_ptr<Peer>& peer,
                                                    const Clock& clock = Clock::system());
  ~StreamServer();
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  // ALREADY_EXISTS for a name that is defined.
  Status define(const std::string& function, Begin begin);
  std::size_t count() const;

 private:
  struct State;
  StreamServer(std::shared_ptr<Peer> peer, std::shared_ptr<State> state)
      : peer_(std::move(peer)), state_(std::move(state)) {}
  const ForkGuard fork_guard_;
  const std::shared_ptr<Peer> peer_;
  std::shared_ptr<State> state_;
};

}  // namespace reverie
