// InsertSender: a client's items on their way to one table of a server.
//
//     insert --> [ waiting to be written ] --write--> [ unconfirmed ] --key comes back--> done
//                          ^----------- the stream broke: written again on the next ---|
//
// An item keeps its key, so one that is written twice becomes an update of itself. Each table has a
// stream of its own: a table whose limiter holds items back does not hold up another.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/adapters/reverb/chunk_sender.h"
#include "reverie/adapters/reverb/grpc_client.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Thread-safe. Held by shared_ptr.
class InsertSender final : public std::enable_shared_from_this<InsertSender> {
 public:
  using Done = ReplayService::Done<InsertResult>;

  // What it is made with outlives it, until close().
  InsertSender(std::string table, GrpcClient& client, TimerQueue& timers, Clock& clock,
               std::uint64_t seed)
      : table_(std::move(table)), client_(client), timers_(timers), clock_(clock), chunks_(seed) {}

  // See ReplayService::insert; `id` is what cancel() is given. `done` comes on any thread, never
  // within the call.
  void insert(RequestId id, InsertRequest request, Done done);
  // Completes a request with `status`. What of it waits at the server is taken back: the stream is
  // begun afresh.
  void cancel(RequestId id, const Status& status);
  // Ends all requests with `status`.
  void close(const Status& status);

 private:
  class Stream;

  struct Request {
    std::vector<Item> items;
    std::vector<bool> is_confirmed;
    std::size_t confirmed = 0;
    TimePoint deadline;
    std::uint64_t timer = 0;
    Done done;
  };
  // An item of a request.
  struct Place {
    RequestId request = 0;
    std::size_t index = 0;
  };
  using Ended = std::vector<std::pair<Done, InsertResult>>;

  void on_keys(const std::shared_ptr<Stream>& stream, const std::vector<ItemKey>& keys);
  void on_end(const std::shared_ptr<Stream>& stream, const Status& status);
  void write(Ended& ended) REVERIE_REQUIRES(mutex_);
  Status write_some() REVERIE_REQUIRES(mutex_);
  void enlist(RequestId id, InsertRequest& request, Done done) REVERIE_REQUIRES(mutex_);
  void begin_stream() REVERIE_REQUIRES(mutex_);
  void drop_stream() REVERIE_REQUIRES(mutex_);
  void try_later() REVERIE_REQUIRES(mutex_);
  void complete(RequestId id, const Status& status, Ended& ended) REVERIE_REQUIRES(mutex_);
  void complete_all(const Status& status, Ended& ended) REVERIE_REQUIRES(mutex_);
  static void tell(Ended& ended);

  const std::string table_;
  GrpcClient& client_;
  TimerQueue& timers_;
  Clock& clock_;

  Mutex mutex_;
  ChunkSender chunks_ REVERIE_GUARDED_BY(mutex_);
  std::unordered_map<RequestId, Request> requests_ REVERIE_GUARDED_BY(mutex_);
  // By the item's key, all that are not confirmed; an item may be inserted twice at a time.
  std::unordered_multimap<ItemKey, Place> unconfirmed_ REVERIE_GUARDED_BY(mutex_);
  std::deque<Place> to_write_ REVERIE_GUARDED_BY(mutex_);
  std::shared_ptr<Stream> stream_ REVERIE_GUARDED_BY(mutex_);
  Duration pause_ REVERIE_GUARDED_BY(mutex_) = Duration::zero();
  std::uint64_t retry_timer_ REVERIE_GUARDED_BY(mutex_) = 0;
  TimePoint stream_since_ REVERIE_GUARDED_BY(mutex_);
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
