// InsertPump: sends a client's items to a table of its server, or a writer's items to several.
//     insert --> [ waiting ] --message--> [ sent ] --inserted, or failed--> done
//                     ^-- the connection broke: sent again --|
// A message contains all waiting items. The next one is sent when the server has accepted it, or
// when many bytes wait: a single item is sent at once, and many share a message and an answer.
// Items are numbered and the pump has a session, so that the server inserts no item twice
// (docs/decisions/0004).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/adapters/peer/insert_ledger.h"
#include "reverie/adapters/peer/store_link.h"
#include "reverie/base/mutex.h"
#include "reverie/service/replay_service.h"
#include "reverie/store_messages/store_wire.h"

namespace reverie {

// Thread-safe.
class InsertPump {
 public:
  // A request that waits for a connection has at least this long, however short its own time is.
  static constexpr Duration kConnectTime = std::chrono::milliseconds(500);
  using Done = ReplayService::Done<InsertResult>;
  // Callbacks to call once no lock is held.
  using Ended = std::vector<std::pair<Done, InsertResult>>;

  // `number` identifies the pump on a connection; never 0. `seed` is that of its session's name: no
  // two pumps of a server may have the same.
  InsertPump(std::uint32_t number, std::uint64_t seed);

  std::uint32_t number() const { return number_; }
  // See ReplayService::insert. Returns the number of the request for cancel(). Requires at least
  // one item, all of them checked. The request fails if no server has answered by `give_up_at`, and
  // with RESOURCE_EXHAUSTED if its message is larger than the server's limits. Returns 0 and takes
  // nothing once the pump is closed.
  std::uint64_t insert(const InsertRequest& request, TimePoint give_up_at, Done& done,
                       Ended& ended);
  // Withdraws a request, also at the server. Completes it at `until` at the latest.
  void cancel(std::uint64_t request, const Status& status, TimePoint until, Ended& ended);
  void close(const Status& status, Ended& ended);

  // A connection is open, to a server with these limits.
  void connect(const std::shared_ptr<StoreLink>& link, const FrameLimits& limits, Ended& ended);
  // The connection is lost; unconfirmed items are sent on the next one, or fail at `give_up_at`.
  // Withdrawn requests end now: sent again, their items could follow later ones.
  void disconnect(TimePoint give_up_at, Ended& ended);
  // Sends what may be sent. With `all`, even if the server has not accepted the last message, so
  // that the next request sees these items.
  void pump(Ended& ended, bool all = false);
  // An answer that came on `link`. Ignored if that is no longer the connection: what it confirms
  // was sent again, and is confirmed again. If the server has ended the writer, what was sent fails
  // with its reason, and later items are sent to a new one.
  void on_inserted(const StoreLink& link, const store_wire::Inserted& inserted, Ended& ended);

  // Ends requests that are late, and returns when the next one will be. `why` is why no server
  // answers.
  TimePoint sweep(TimePoint now, const Status& why, Ended& ended);
  // When the next request will be late.
  TimePoint next_due();
  bool is_connected();
  bool empty();

 private:
  struct Request {
    std::uint64_t first = 0;
    std::size_t confirmed = 0;  // on this connection
    // The most that an earlier connection confirmed, or a failure reports.
    std::size_t confirmed_before = 0;
    std::size_t size_bytes = 0;
    std::string_view table = {};  // of tables_
    TimePoint deadline = TimePoint::max();
    TimePoint ends_at = TimePoint::max();  // of a cancelled request: when it completes in any case
    Status ends_with = {};
    Done done = nullptr;  // null once complete
    Item one = {};
    std::vector<Item> more = {};

    std::size_t count() const { return 1 + more.size(); }
    // How many of its first items are inserted, as far as is known.
    std::size_t applied() const { return std::max(confirmed, confirmed_before); }
    bool is_open() const { return done != nullptr; }
  };

  Request* find(std::uint64_t number) REVERIE_REQUIRES(mutex_);
  bool may_send(bool all = false) const REVERIE_REQUIRES(mutex_);
  void send_some(Ended& ended) REVERIE_REQUIRES(mutex_);
  void refuse(Request& request, Ended& ended) REVERIE_REQUIRES(mutex_);
  void complete(Request& request, Status status, Ended& ended) REVERIE_REQUIRES(mutex_);
  void drop_done() REVERIE_REQUIRES(mutex_);
  void restart() REVERIE_REQUIRES(mutex_);
  void open_writer() REVERIE_REQUIRES(mutex_);
  std::string_view kept(std::string_view table) REVERIE_REQUIRES(mutex_);
  void note_due(TimePoint due) REVERIE_REQUIRES(mutex_) { due_ = std::min(due_, due); }

  const std::uint32_t number_;
  const std::string session_;

  Mutex mutex_;
  std::shared_ptr<StoreLink> link_ REVERIE_GUARDED_BY(mutex_);  // null without a connection
  FrameLimits limits_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t open_count_ REVERIE_GUARDED_BY(mutex_) = 0;  // how often a server has opened it
  std::deque<std::string> tables_ REVERIE_GUARDED_BY(mutex_);
  std::deque<Request> requests_ REVERIE_GUARDED_BY(mutex_);  // in the order of their numbers
  std::size_t next_ REVERIE_GUARDED_BY(mutex_) = 0;          // the next of requests_ to send
  std::uint64_t next_number_ REVERIE_GUARDED_BY(mutex_) = 1;
  std::size_t under_way_ REVERIE_GUARDED_BY(mutex_) = 0;      // items that were sent
  std::size_t waiting_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // of items that were not sent
  std::uint64_t sent_ REVERIE_GUARDED_BY(mutex_) = 0;         // messages
  std::uint64_t taken_ REVERIE_GUARDED_BY(mutex_) = 0;
  TimePoint give_up_at_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  TimePoint due_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();  // the first deadline or earlier
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  InsertLedger ledger_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
