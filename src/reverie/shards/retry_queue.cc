#include "reverie/shards/retry_queue.h"

#include <algorithm>
#include <iterator>

namespace reverie {

std::list<RetryQueue::Waiting> RetryQueue::take(RequestId id) {
  std::list<Waiting> found;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto next = std::next(at);
    if (at->id == id) found.splice(found.end(), waiting_, at);
    at = next;
  }
  return found;
}

std::list<RetryQueue::Waiting> RetryQueue::take_all() {
  std::list<Waiting> all;
  all.swap(waiting_);
  return all;
}

RetryQueue::Due RetryQueue::take_due(TimePoint now, TimePoint retry_now) {
  Due due;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto after = std::next(at);
    if (at->deadline <= now) {
      due.expired.splice(due.expired.end(), waiting_, at);
    } else if (at->give_up_at <= retry_now) {
      due.given_up.splice(due.given_up.end(), waiting_, at);
    } else {
      due.next = std::min(due.next, at->give_up_at);
      if (at->deadline != TimePoint::max()) {
        due.next = std::min(due.next, retry_now + (at->deadline - now));
      }
    }
    at = after;
  }
  return due;
}

}  // namespace reverie
