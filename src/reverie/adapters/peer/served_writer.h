// ServedWriter: the server's side of one writer of a connection: holds its chunks, and inserts its
// items into the tables.
//     message --> InsertMirror --> items --> ReplayService, as many at once as fit --> answer
// An item that waits for a table is answered when it is inserted or has failed. If too many items
// wait, reading of the writer pauses: its messages wait, up to a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "reverie/adapters/peer/insert_mirror.h"
#include "reverie/adapters/peer/peer_store.h"
#include "reverie/base/mutex.h"
#include "reverie/native_wire/insert_session.h"
#include "reverie/store_messages/store_wire.h"

namespace reverie {

// Messages arrive on the connection's thread, completions on any thread.
class ServedWriter final : public InsertCall, public std::enable_shared_from_this<ServedWriter> {
 public:
  // What a connection does for its writers: end() and post() on any thread.
  class Owner {
   public:
    virtual ~Owner() = default;
    // On the thread on which messages arrive.
    virtual void send_inserted(const store_wire::Inserted& inserted) = 0;
    // Whether its client knows that a writer may end alone: Inserted::ended, after which the owner
    // calls end() and drops what the writer sends.
    virtual bool ends_writers_alone() const { return false; }
    // Ends the connection after an error.
    virtual void end(const Status& why) = 0;
    // Runs `work` later on the thread on which messages arrive.
    virtual void post(std::function<void()> work) = 0;
  };

  ServedWriter(std::shared_ptr<PeerStore> store, std::weak_ptr<Owner> owner, std::uint32_t number,
               std::string session_id);
  ~ServedWriter() override;

  // Its turn in its session begins now, or when the session's previous connection has left.
  // `ordinal` grows with each connection of the writer. False: there was a newer one.
  bool begin(std::uint64_t ordinal);
  // An error ends the connection. A bound that the writer meets ends only the writer, if the client
  // knows that: the waiting items are withdrawn, and the last answer says why.
  Status take(Payload payload);
  // Withdraws the waiting items of the request that begins with that number.
  void withdraw(std::uint64_t first);
  // Withdraws all waiting items, the last first. There are no further answers.
  void end();
  // Whether items wait for their tables.
  bool is_waiting();

  // InsertCall
  void pause_reading() override;
  void resume_reading() override;
  void abort(const Status& why) override;

 private:
  Status read(const Payload& payload);
  // Ends the writer if it may end alone. If not, returns the error.
  Status refuse(const Status& why);
  void withdraw_all();
  // The numbers of items_. DATA_LOSS if they do not follow those of the messages before.
  Status take_numbers(std::uint64_t first_number);
  void insert_at_once(std::size_t begin, std::size_t end, std::uint64_t first_number);
  void insert_request(std::size_t begin, std::size_t end, std::uint64_t first_number);
  void on_inserted(std::uint64_t first, std::size_t count, const InsertResult& result);
  void confirm(std::uint64_t first, std::uint64_t count) REVERIE_REQUIRES(mutex_);
  void answer_soon() REVERIE_REQUIRES(mutex_);
  void answer();
  void read_waiting();
  bool is_held_back() const REVERIE_REQUIRES(mutex_) { return is_paused_ || has_long_wait_; }

  const std::shared_ptr<PeerStore> store_;
  const std::weak_ptr<Owner> owner_;
  const std::uint32_t number_;
  const std::string session_id_;
  const std::shared_ptr<InsertSession> session_;

  // The connection's thread only.
  InsertMirror mirror_;
  std::vector<InsertMirror::Taken> items_;
  std::uint64_t next_number_ = 1;  // gaps are allowed: withdrawn requests
  std::vector<Item> run_;

  // A request that waits for its table.
  struct Waiting {
    RequestId id = 0;  // 0 until the service has returned it
    std::size_t count = 0;
    bool is_withdrawn = false;
  };
  // Bytes of chunks that were released while requests up to this number waited.
  struct Release {
    std::uint64_t last_number = 0;
    std::size_t size_bytes = 0;
  };
  Mutex mutex_;
  std::map<std::uint64_t, Waiting> waiting_ REVERIE_GUARDED_BY(mutex_);
  std::size_t waiting_items_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::deque<Release> releases_ REVERIE_GUARDED_BY(mutex_);
  std::size_t released_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  store_wire::Inserted answer_ REVERIE_GUARDED_BY(mutex_);
  bool is_reading_ REVERIE_GUARDED_BY(mutex_) = false;  // its end answers
  bool is_answer_posted_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  Status ended_ REVERIE_GUARDED_BY(mutex_);  // not ok: nothing more is read, and the rest withdrawn
  bool is_paused_ REVERIE_GUARDED_BY(mutex_) = false;
  bool has_long_wait_ REVERIE_GUARDED_BY(mutex_) = false;
  std::deque<Payload> unread_ REVERIE_GUARDED_BY(mutex_);
  std::size_t unread_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  // Requests in unread_ that were withdrawn.
  std::set<std::uint64_t> withdrawn_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
