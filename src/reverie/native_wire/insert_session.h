// InsertSession: which items of one writer are in the store, across all of its connections.
//
//     stream 1    items 1 2 3 4 --x      in: 1 2 3, and the writer knows of 1 2
//     stream 2        items 3 4 5        3 is confirmed without a look at it; 4 and 5 go in
//
// A writer that resends items numbers them (docs/decisions/0004). Only one stream of a session
// inserts at a time: the next begins when the inserts that the one before left pending are decided.
// Late data from an old connection does no harm: a stream older than one already seen is refused,
// and a settled number is never inserted again (docs/models/insert_once.pml).
//
// What is remembered: for a session, the items that its writer has not settled, as runs; at most
// `idle_count_max` sessions without a stream, each for `idle_time`. A writer that returns later
// counts as a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/number_set.h"
#include "reverie/base/status.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// A stream on a connection that inserts for a session. Thread-safe; no method waits.
class InsertCall {
 public:
  virtual ~InsertCall() = default;
  // Nothing more is inserted until resume_reading().
  virtual void pause_reading() = 0;
  virtual void resume_reading() = 0;
  // Ends the stream: InsertSession::leave() follows.
  virtual void abort(const Status& why) = 0;
};

// Thread-safe.
class InsertSession {
 public:
  using Call = std::shared_ptr<InsertCall>;

  // `in`: the numbers of items that are in the store already.
  explicit InsertSession(NumberSet in = {}) : in_(std::move(in)) {}

  // Makes `call` the session's stream, and ends the current one. Pauses the call's reading, and
  // resumes it when it is its turn: before it returns, or later. `ordinal` grows with each stream
  // that the writer begins; 0 from a writer that does not send it. False, without effect except the
  // pause: a newer stream was seen.
  bool attach(const Call& call, std::uint64_t ordinal = 0);
  // The call has ended; it begins no more inserts.
  void leave(const Call& call);

  // Whether the item is in the store already, or settled. If not, it is pending until note_done().
  bool begin(std::uint64_t number);
  void note_done(std::uint64_t number, bool is_in);
  // The writer will not ask for numbers below `below` again. Returns whether that was new.
  bool settle(std::uint64_t below);

 private:
  // The call whose turn it is now, if it just became so.
  Call promote() REVERIE_REQUIRES(mutex_);

  Mutex mutex_;
  NumberSet in_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t settled_below_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::uint64_t newest_ REVERIE_GUARDED_BY(mutex_) = 0;  // greatest ordinal seen
  std::size_t under_way_ REVERIE_GUARDED_BY(mutex_) = 0;
  Call current_ REVERIE_GUARDED_BY(mutex_);
  Call next_ REVERIE_GUARDED_BY(mutex_);
};

// Thread-safe.
class InsertSessions {
 public:
  static constexpr std::size_t kIdleCountMax = 16384;
  static constexpr Duration kIdleTime = std::chrono::minutes(15);

  explicit InsertSessions(Clock& clock, std::size_t idle_count_max = kIdleCountMax,
                          Duration idle_time = kIdleTime)
      : clock_(clock), idle_count_max_(idle_count_max), idle_time_(idle_time) {}

  // Sessions are named by 32 hexadecimal digits.
  static bool is_id(std::string_view id);
  // The session of that name, made if it is not known. Each open() requires a close().
  std::shared_ptr<InsertSession> open(const std::string& id);
  void close(const std::string& id);
  // Adds a session of a store that was reopened; it has no stream yet. Call it before any other.
  void restore(const std::string& id, NumberSet in);
  // Called with each session that is forgotten. Set it before any other call.
  void set_on_forget(std::function<void(const std::string& id)> on_forget) {
    on_forget_ = std::move(on_forget);
  }
  std::size_t count();

 private:
  struct Idle {
    std::string id;
    TimePoint since;
  };
  struct Entry {
    std::shared_ptr<InsertSession> session;
    std::size_t users = 0;
    std::list<Idle>::iterator idle;  // while it has no users
  };
  void expire() REVERIE_REQUIRES(mutex_);

  std::function<void(const std::string& id)> on_forget_;
  Clock& clock_;
  const std::size_t idle_count_max_;
  const Duration idle_time_;
  Mutex mutex_;
  std::unordered_map<std::string, Entry> sessions_ REVERIE_GUARDED_BY(mutex_);
  std::list<Idle> idle_ REVERIE_GUARDED_BY(mutex_);  // longest idle first
};

// The sessions of a service: includes those that it has restored, and tells it which are forgotten.
// All servers of one service share them. `service` outlives them.
std::shared_ptr<InsertSessions> insert_sessions_of(ReplayService& service, Clock& clock);

}  // namespace reverie
