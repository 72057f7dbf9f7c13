// InsertSender: a client's items on their way to a table of a server, or a writer's to several.
//
//     insert --> [ waiting ] --message--> [ unconfirmed ] --confirmed--> done
//                     ^----- the stream broke: sent again on the next ----|
//
// A message takes all that waits. While the server has one that it did not take yet, what comes
// waits for the next: an item alone goes at once, and many share a message, a write and an
// answer, without a timer.
//
// Items are numbered, and the stream names its session: a server of ours puts none in twice
// (docs/decisions/0004). One of dm-reverb's takes an item that it has for an update of its
// priority, and inserts one that is gone already again.
//
// Each table has a stream of its own: a table whose limiter holds items back does not hold up
// another. But what a writer puts into several tables (InsertRequest::writer) goes on one stream of
// that writer, as dm-reverb's does: its chunks travel once.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/adapters/reverb/call_world.h"
#include "reverie/adapters/reverb/chunk_sender.h"
#include "reverie/base/mutex.h"
#include "reverie/native_wire/insert_window.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Thread-safe. Held by shared_ptr.
class InsertSender final : public std::enable_shared_from_this<InsertSender> {
 public:
  using Done = InsertWindow::Done;

  struct Options {
    // How long it tries to reach a server that does not answer before its requests fail.
    Duration retry_time = Duration::max();
    std::uint64_t seed = 0;  // of the session's name, and of the keys of chunks
  };

  // What it is made with outlives it, until close(). `what` is named in errors: "table 't'".
  InsertSender(std::string what, CallWorld& world, const Options& options);

  // See ReplayService::insert. Names the request for cancel(), never 0. Requires at least one item.
  std::uint64_t insert(const InsertRequest& request, Done done);
  // Completes a request with `status`. What of it waits at the server is taken back: the stream is
  // begun afresh.
  void cancel(std::uint64_t request, const Status& status);
  // Ends all requests with `status`.
  void close(const Status& status);

 private:
  class Stream;
  using StreamPtr = std::shared_ptr<Stream>;
  using Outcome = InsertWindow::Outcome;

  // What has come back on a stream, and how it goes with its server.
  struct Progress {
    std::uint64_t sent = 0;  // messages
    std::uint64_t taken = 0;
    std::uint64_t unanswered = 0;  // messages since the last answer
    bool has_numbers = false;      // a server of ours
    bool takes_stored = false;     // stored_chunk.h
    bool has_confirmed = false;
    TimePoint since = TimePoint::max();  // connected
  };

  void on_response(const StreamPtr& stream, const wire::InsertStreamResponse& response);
  void on_connected(const StreamPtr& stream);
  void on_end(const StreamPtr& stream, const Status& status);
  void pump(Outcome& outcome);
  bool may_send() REVERIE_REQUIRES(mutex_);
  bool is_busy() const REVERIE_REQUIRES(mutex_);
  void begin_stream() REVERIE_REQUIRES(mutex_);
  void drop_stream() REVERIE_REQUIRES(mutex_);
  void try_later() REVERIE_REQUIRES(mutex_);
  void resume_soon() REVERIE_REQUIRES(mutex_);
  void cancel_timers() REVERIE_REQUIRES(mutex_);
  bool is_patient(TimePoint now) const REVERIE_REQUIRES(mutex_);
  Result<GrpcPayload> write_message(const InsertWindow::Batch& batch, std::uint64_t settled_below,
                                    bool takes_stored);
  void finish(Outcome& outcome);
  std::string_view kept(std::string_view table) REVERIE_REQUIRES(mutex_);

  const std::string what_;
  const std::string session_;
  const Duration retry_time_;
  CallWorld& world_;

  // Only the thread that has set is_writing_ uses these.
  ChunkSender chunks_;
  wire::WireItem scratch_;

  Mutex mutex_;
  std::deque<std::string> tables_ REVERIE_GUARDED_BY(mutex_);  // that requests named
  InsertWindow window_ REVERIE_GUARDED_BY(mutex_);
  bool is_writing_ REVERIE_GUARDED_BY(mutex_) = false;
  StreamPtr stream_ REVERIE_GUARDED_BY(mutex_);
  Progress progress_ REVERIE_GUARDED_BY(mutex_);
  bool is_stream_new_ REVERIE_GUARDED_BY(mutex_) = false;      // nothing was written on it
  std::uint64_t stream_count_ REVERIE_GUARDED_BY(mutex_) = 0;  // that were begun
  Duration pause_ REVERIE_GUARDED_BY(mutex_) = Duration::zero();
  std::uint64_t retry_timer_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_resuming_ REVERIE_GUARDED_BY(mutex_) = false;  // a stream is about to be begun
  bool is_told_ REVERIE_GUARDED_BY(mutex_) = false;      // that it is tried again
  // Since when no server has answered; max() while one does.
  TimePoint broken_since_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
