// RetryQueue: requests that wait until any shard answers; without lock, thread or clock.
#pragma once

#include <functional>
#include <list>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Not thread-safe. Never calls the functions that it holds: the caller does, under no lock.
class RetryQueue {
 public:
  struct Waiting {
    RequestId id = 0;
    TimePoint deadline;                     // on the clock of requests' deadlines
    TimePoint give_up_at;                   // of the retry clock
    std::function<void(const Status&)> go;  // ok: try again
  };

  void add(Waiting waiting) { waiting_.push_back(std::move(waiting)); }
  // Removes those of one request.
  std::list<Waiting> take(RequestId id);
  std::list<Waiting> take_all();

  struct Due {
    std::list<Waiting> expired;         // past their deadline
    std::list<Waiting> given_up;        // not expired, but past their retry time
    TimePoint next = TimePoint::max();  // on the retry clock: when the next is due
  };
  Due take_due(TimePoint now, TimePoint retry_now);

 private:
  std::list<Waiting> waiting_;  // oldest first
};

}  // namespace reverie
