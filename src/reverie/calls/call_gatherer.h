// CallGatherer: calls of one function that wait until they make a batch.
//
//     add() --> [ call ][ call ][ call ] --take()--> a batch
//
//     closed at `size` calls, when the first has waited `max_wait`, when its server says so, or
//     with all that wait (dynamic)
//
// One thread serves it at a time, and none while nothing can become a batch:
//
//     if (gatherer->add(request)) queue->push({.gatherer = gatherer});   // a thread is to serve it
//
//     seen = gatherer->count()                                   that thread, in a loop
//     calls = gatherer->take(closed)       some: run them
//                                          none: gatherer->wait(seen, until), or leave(seen)
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
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
    std::optional<Duration> max_wait;  // of the first call; none: until there are `size`
    bool is_dynamic = false;           // what waits is a batch
    bool asks = false;                 // the server may close a batch by take(count)
    bool is_served = true;             // false: add() only tells those who asked
  };

  explicit CallGatherer(const Options& options, Clock& clock = Clock::system())
      : options_(options), clock_(clock) {}
  CallGatherer(const CallGatherer&) = delete;
  CallGatherer& operator=(const CallGatherer&) = delete;

  // Takes the request, unless this is closed. True: a thread is to serve, since none does; or, of
  // one that is not served, those who asked by tell_of_next() are to be told.
  bool add(Request& request);
  // Its caller waits no more. False if it does not wait here.
  bool withdraw(InboundId request);
  void tell_of_next();

  std::size_t count() const;
  // The calls of the batch that is due, or the first `closed` of those that wait, where the server
  // has closed a batch behind them. None if nothing is due.
  std::vector<Request> take(std::size_t closed = 0);
  // How long until what waits is a batch, if nothing more comes; none: for ever.
  std::optional<Duration> time_left() const;
  // Waits until there are other than `seen` calls, a batch is due, or close(); at most until then.
  void wait(std::size_t seen, TimePoint until);
  // The thread that serves leaves, having seen so many calls. False: there is something to do.
  bool leave(std::size_t seen);

  // Ends the waits. What waits here is dropped, and nothing is taken any more.
  void close();
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
  bool has_server_ REVERIE_GUARDED_BY(mutex_) = false;  // it serves, or is on its way
  bool tells_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
