// InsertPump: a client's items on their way to a table of its server, or a writer's to several.
//
//     insert --> [ waiting ] --message--> [ under way ] --in, or failed--> done
//                     ^---- the connection broke: again on the next ----|
//
// A message takes all that waits, and the next goes when the server has taken it, or when much
// waits: an item alone goes at once, and many share a message and an answer. Items are numbered and
// the pump has a session, so that the server puts none in twice (docs/decisions/0004).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/adapters/peer/insert_ledger.h"
#include "reverie/adapters/peer/store_link.h"
#include "reverie/adapters/peer/store_wire.h"
#include "reverie/base/mutex.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Thread-safe.
class InsertPump {
 public:
  using Done = ReplayService::Done<InsertResult>;
  // What is to be done once no lock is held.
  using Ended = std::vector<std::pair<Done, InsertResult>>;

  // `number` names it on a connection; never 0.
  InsertPump(std::uint32_t number, std::uint64_t seed);

  std::uint32_t number() const { return number_; }
  // See ReplayService::insert. Names the request for cancel(). Requires at least one item, all of
  // them checked. `give_up_at`: when no server has answered by then. 0, and nothing taken, once it
  // is closed.
  std::uint64_t insert(const InsertRequest& request, TimePoint give_up_at, Done& done);
  // Takes a request back: what of it waits at the server too. Completes it at `until` at the
  // latest.
  void cancel(std::uint64_t request, const Status& status, TimePoint until, Ended& ended);
  void close(const Status& status, Ended& ended);

  // A connection stands.
  void connect(const std::shared_ptr<StoreLink>& link);
  // It is gone; what is not confirmed goes on the next, or fails at `give_up_at`.
  void disconnect(TimePoint give_up_at);
  // Sends what may be sent. With `all`, though the server has not taken the last message: what is
  // asked next is to find it there.
  void pump(bool all = false);
  void on_inserted(const store_wire::Inserted& inserted, Ended& ended);

  // Ends what is late, and says when something is late next. `why` tells why no server answers.
  TimePoint sweep(TimePoint now, const Status& why, Ended& ended);
  // When something is late next.
  TimePoint next_due();
  bool empty();

 private:
  struct Request {
    std::uint64_t first = 0;
    std::size_t confirmed = 0;
    std::size_t size_bytes = 0;
    std::string_view table = {};  // of tables_
    TimePoint deadline = TimePoint::max();
    TimePoint ends_at = TimePoint::max();  // cancelled: when it completes anyway
    Status ends_with = {};
    Done done = nullptr;  // null once it is complete
    Item one = {};
    std::vector<Item> more = {};

    std::size_t count() const { return 1 + more.size(); }
    bool is_open() const { return done != nullptr; }
  };

  Request* find(std::uint64_t number) REVERIE_REQUIRES(mutex_);
  bool may_send(bool all = false) const REVERIE_REQUIRES(mutex_);
  void send_some() REVERIE_REQUIRES(mutex_);
  void complete(Request& request, Status status, std::size_t applied, Ended& ended)
      REVERIE_REQUIRES(mutex_);
  void drop_done() REVERIE_REQUIRES(mutex_);
  void restart() REVERIE_REQUIRES(mutex_);
  std::string_view kept(std::string_view table) REVERIE_REQUIRES(mutex_);
  void note_due(TimePoint due) REVERIE_REQUIRES(mutex_) { due_ = std::min(due_, due); }

  const std::uint32_t number_;
  const std::string session_;

  Mutex mutex_;
  std::shared_ptr<StoreLink> link_ REVERIE_GUARDED_BY(mutex_);  // null without a connection
  std::uint64_t connection_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::deque<std::string> tables_ REVERIE_GUARDED_BY(mutex_);
  std::deque<Request> requests_ REVERIE_GUARDED_BY(mutex_);  // in the order of their numbers
  std::size_t next_ REVERIE_GUARDED_BY(mutex_) = 0;          // of requests_, to be sent
  std::uint64_t next_number_ REVERIE_GUARDED_BY(mutex_) = 1;
  std::size_t under_way_ REVERIE_GUARDED_BY(mutex_) = 0;      // items that were sent
  std::size_t waiting_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // of those that were not
  std::uint64_t sent_ REVERIE_GUARDED_BY(mutex_) = 0;         // messages
  std::uint64_t taken_ REVERIE_GUARDED_BY(mutex_) = 0;
  TimePoint give_up_at_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  TimePoint due_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();  // of a request, or earlier
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  InsertLedger ledger_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
