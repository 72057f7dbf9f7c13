// CallGatherer: calls of one function that wait until they make a batch.
//
//     add() --> [ call ][ call ][ call ] --take()--> a batch
//     closed at `size` calls, when the first has waited `max_wait`, when the server closes it, or
//     with all that wait (dynamic)
//
// One thread serves it at a time, and none while nothing can become a batch:
//     if (gatherer->add(request)) queue->push({.gatherer = gatherer});   // a thread must serve it
//
//     seen = gatherer->count()                                   that thread, in a loop
//     calls = gatherer->take(closed)       some: run them
//                                          none: gatherer->wait(seen, until), or leave(seen)
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

// Thread-safe.
class CallGatherer {
 public:
  struct Options {
    std::size_t size = 1;              // calls of a batch, at most; >= 1
    std::optional<Duration> max_wait;  // of the first call; empty: until there are `size`
    bool is_dynamic = false;           // a batch is whatever waits
    bool may_close_early = false;      // the server may close a batch by take(count)
    bool is_served = true;             // false: add() only notifies who called notify_on_next()
  };

  explicit CallGatherer(const Options& options, Clock& clock = Clock::system())
      : options_(options), clock_(clock) {}
  CallGatherer(const CallGatherer&) = delete;
  CallGatherer& operator=(const CallGatherer&) = delete;

  // Takes the request, unless the gatherer is closed. True: a thread must start serving it, since
  // none does; or, if `is_served` is false, the callers of notify_on_next() must be notified.
  bool add(Request& request);
  // The callers no longer wait. Takes those that wait here out of `requests`. One pass, since there
  // may be many of both.
  void withdraw(std::set<InboundId>& requests);
  void notify_on_next();

  std::size_t count() const;
  // The calls of the batch that is due, or the first `closed` waiting calls, if the server has
  // closed a batch after them. Empty if nothing is due.
  std::vector<Request> take(std::size_t closed = 0);
  // How long until the waiting calls become a batch if no other call arrives; empty: no limit.
  std::optional<Duration> time_left() const;
  // Waits until the number of calls is not `seen`, a batch is due, or close(); at most until
  // `until`.
  void wait(std::size_t seen, TimePoint until);
  // The serving thread leaves after it has seen `seen` calls. False: there is something to do.
  bool leave(std::size_t seen);

  // Ends all waits. Returns the waiting calls; no more are taken. Idempotent.
  std::vector<Request> close();
  bool is_closed() const;

 private:
  struct Waiting {
    Request request;
    TimePoint since;
  };
  std::optional<Duration> left_locked() const REVERIE_REQUIRES(mutex_);
  bool is_due_locked() const REVERIE_REQUIRES(mutex_);

  const Options options_;
  Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Waiting> calls_ REVERIE_GUARDED_BY(mutex_);
  std::size_t waiters_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool has_server_ REVERIE_GUARDED_BY(mutex_) = false;  // it serves, or will soon
  bool notifies_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
