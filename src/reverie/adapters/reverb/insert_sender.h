// InsertSender: sends a client's items to a table of a server, or a writer's items to several.
//
//     insert --> [ waiting ] --message--> [ unconfirmed ] --confirmed--> done
//                     ^----- the stream broke: sent again on the next ----|
// A message contains all waiting items. While the server has not accepted the last message, further
// items wait for the next one: a single item is sent at once, and many share a message, a write and
// an answer, without a timer. Items are numbered, and the stream names its session: Reverie's
// servers insert no item twice (docs/decisions/0004). dm-reverb's server treats a repeated item as
// an update of its priority, and inserts it again if it has been removed meanwhile. Each table has
// its own stream, so that a table whose rate limiter blocks does not delay another. But the items
// of a writer of several tables (InsertRequest::writer) use one stream of that writer, as in
// dm-reverb, so that chunks are sent once.
//
// A server ends the stream of an item that it refuses. Reverie's servers answer the message with
// that item first, so the last answered message has it: if the message has items of one request,
// that request fails, else its items are sent again, each in a message of its own. All other items
// are sent again, too. After the refusal of a server that sends no numbers, all items fail: which
// ones it has inserted is not known.
//
// The server does not know deadlines. At that of a request its items may be on their way, or be
// inserted but not yet confirmed. So the request is late, and ends once it is known what became of
// it, 2 s later at most:
//
//     late --server has read it--> sent again on a new stream --server has read it--> too late
//       |                            |
//       +-------- confirmed ---------+--> done
//
// The new stream withdraws what waits for its table, and confirms with its first answer what the
// old one has inserted.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
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
    // How long to retry an unreachable server before requests fail.
    Duration retry_time = Duration::max();
    // The seed of the session's name and of the keys of chunks: no two senders of a server may have
    // the same.
    std::uint64_t seed = 0;
  };

  // The arguments outlive it, until close(). `what` is named in errors: "table 't'".
  InsertSender(std::string what, CallWorld& world, const Options& options);

  // See ReplayService::insert. Names the request for cancel(), never 0. Requires at least one item.
  // After its deadline the request is given 2 s at most, for the answer.
  std::uint64_t insert(const InsertRequest& request, Done done);
  // Completes a request with `status`. Its items that wait at the server are withdrawn by starting
  // a new stream.
  void cancel(std::uint64_t request, const Status& status);
  // Ends all requests with `status`.
  void close(const Status& status);

 private:
  class Stream;
  using StreamPtr = std::shared_ptr<Stream>;
  using Outcome = InsertWindow::Outcome;

  // The numbers first, first + 1, ..., up to but without `end`.
  struct Numbers {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };
  // The progress of a stream, and what is known of its server.
  struct Progress {
    std::uint64_t sent = 0;  // messages
    std::uint64_t taken = 0;
    std::uint64_t unanswered = 0;  // messages since the last answer
    // The items of the last messages: that which was taken last, and those after it.
    std::deque<Numbers> messages;
    bool has_numbers = false;   // the server is Reverie's
    bool takes_stored = false;  // stored_chunk.h
    bool has_confirmed = false;
    TimePoint since = TimePoint::max();  // connected
  };

  // A request past its deadline.
  struct Late {
    bool was_held_up = false;     // it was sent again, with the items that it waited for
    bool is_asked_again = false;  // it was sent again after the server had read it
  };

  void on_response(const StreamPtr& stream, const wire::InsertStreamResponse& response);
  void on_connected(const StreamPtr& stream);
  void on_end(const StreamPtr& stream, const Status& status);
  void pump(Outcome& outcome);
  bool may_send() REVERIE_REQUIRES(mutex_);
  std::size_t items_max() REVERIE_REQUIRES(mutex_);
  // One of these items is at fault. Its request fails if it is the only one, else the items are
  // sent alone from now on. False if none of them is unsettled.
  bool single_out(const Numbers& numbers, const Status& status, Outcome& outcome)
      REVERIE_REQUIRES(mutex_);
  // Whether `status` was the refusal of an item, and only that item is affected.
  bool is_refusal(const Progress& progress, const Status& status, Outcome& outcome)
      REVERIE_REQUIRES(mutex_);
  bool set_timer(InsertWindow::Request& request) REVERIE_REQUIRES(mutex_);
  void on_deadline(std::uint64_t first);
  // Ends late requests, or sends them again, after an answer.
  void end_late(Outcome& outcome) REVERIE_REQUIRES(mutex_);
  void withdraw(InsertWindow::Request& request, const Status& status, Outcome& outcome)
      REVERIE_REQUIRES(mutex_);
  bool is_busy() const REVERIE_REQUIRES(mutex_);
  void begin_stream() REVERIE_REQUIRES(mutex_);
  void drop_stream() REVERIE_REQUIRES(mutex_);
  // Sends again after a pause. False if the system has no thread for that.
  bool try_later() REVERIE_REQUIRES(mutex_);
  void resume_soon() REVERIE_REQUIRES(mutex_);
  void cancel_timers() REVERIE_REQUIRES(mutex_);
  bool may_retry(TimePoint now) const REVERIE_REQUIRES(mutex_);
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
  std::deque<std::string> tables_ REVERIE_GUARDED_BY(mutex_);  // named by requests
  InsertWindow window_ REVERIE_GUARDED_BY(mutex_);
  bool is_writing_ REVERIE_GUARDED_BY(mutex_) = false;
  StreamPtr stream_ REVERIE_GUARDED_BY(mutex_);
  Progress progress_ REVERIE_GUARDED_BY(mutex_);
  Numbers alone_ REVERIE_GUARDED_BY(mutex_);  // a message contains only one of these
  std::map<std::uint64_t, Late> late_ REVERIE_GUARDED_BY(mutex_);  // by their first numbers
  bool is_stream_new_ REVERIE_GUARDED_BY(mutex_) = false;          // nothing was written to it
  std::uint64_t stream_count_ REVERIE_GUARDED_BY(mutex_) = 0;      // streams that were started
  Duration pause_ REVERIE_GUARDED_BY(mutex_) = Duration::zero();
  std::uint64_t retry_timer_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_resuming_ REVERIE_GUARDED_BY(mutex_) = false;  // a stream is about to start
  bool is_logged_ REVERIE_GUARDED_BY(mutex_) = false;    // the retry was logged
  // When the server stopped answering; max() while it answers.
  TimePoint broken_since_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
