#include "reverie/calls/call_gatherer.h"

#include <algorithm>
#include <utility>

namespace reverie {

bool CallGatherer::add(Request& request) {
  MutexLock lock(mutex_);
  if (is_closed_) return false;
  // The clock is read only if it is needed.
  calls_.push_back({std::move(request), options_.max_wait ? clock_.now() : TimePoint()});
  if (waiters_ > 0) changed_.notify_all();
  if (!options_.is_served) return std::exchange(notifies_, false);
  const bool may_be_batch = options_.is_dynamic || options_.max_wait || options_.may_close_early ||
                            calls_.size() >= options_.size;
  return may_be_batch && !std::exchange(has_server_, true);
}

void CallGatherer::withdraw(std::set<InboundId>& requests) {
  MutexLock lock(mutex_);
  std::erase_if(calls_, [&](const Waiting& w) { return requests.erase(w.request.id) > 0; });
}

void CallGatherer::notify_on_next() {
  MutexLock lock(mutex_);
  notifies_ = true;
}

std::size_t CallGatherer::count() const {
  MutexLock lock(mutex_);
  return calls_.size();
}

std::optional<Duration> CallGatherer::left_locked() const {
  if (calls_.empty()) return std::nullopt;
  if (options_.is_dynamic || calls_.size() >= options_.size) return Duration::zero();
  if (!options_.max_wait) return std::nullopt;
  return std::max(Duration::zero(), calls_.front().since + *options_.max_wait - clock_.now());
}

bool CallGatherer::is_due_locked() const {
  return left_locked() == Duration::zero();
}

std::vector<Request> CallGatherer::take(std::size_t closed) {
  std::vector<Request> batch;
  MutexLock lock(mutex_);
  if (is_closed_ || !(closed > 0 || is_due_locked())) return batch;
  const std::size_t most = closed > 0 ? std::min(closed, options_.size) : options_.size;
  const std::size_t count = std::min(most, calls_.size());
  batch.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    batch.push_back(std::move(calls_.front().request));
    calls_.pop_front();
  }
  return batch;
}

std::optional<Duration> CallGatherer::time_left() const {
  MutexLock lock(mutex_);
  return left_locked();
}

void CallGatherer::wait(std::size_t seen, TimePoint until) {
  MutexLock lock(mutex_);
  ++waiters_;
  while (calls_.size() == seen && !is_closed_ && clock_.now() < until) {
    const std::optional<Duration> left = left_locked();
    if (left == Duration::zero()) break;
    clock_.wait_until(changed_, mutex_, left ? std::min(until, clock_.now() + *left) : until);
  }
  --waiters_;
}

bool CallGatherer::leave(std::size_t seen) {
  MutexLock lock(mutex_);
  if (!is_closed_ && (is_due_locked() ||
                      (calls_.size() != seen && (options_.max_wait || options_.may_close_early)))) {
    return false;
  }
  has_server_ = false;
  return true;
}

std::vector<Request> CallGatherer::close() {
  std::vector<Request> waiting;
  MutexLock lock(mutex_);
  is_closed_ = true;
  waiting.reserve(calls_.size());
  for (Waiting& call : calls_) waiting.push_back(std::move(call.request));
  calls_.clear();
  changed_.notify_all();
  return waiting;
}

bool CallGatherer::is_closed() const {
  MutexLock lock(mutex_);
  return is_closed_;
}

}  // namespace reverie
