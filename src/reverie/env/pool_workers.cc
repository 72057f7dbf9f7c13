#include "reverie/env/pool_workers.h"

#include <algorithm>

namespace reverie {

Result<int> PoolWorkers::start(std::size_t worker, const ChildProcess::Options& options) {
  MutexLock lock(mutex_);
  if (children_[worker]) children_[worker]->kill();
  children_[worker].reset();
  REVERIE_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::start(options));
  const int pid = child.pid();
  children_[worker].emplace(std::move(child));
  return pid;
}

std::optional<std::string> PoolWorkers::end_text(std::size_t worker) {
  MutexLock lock(mutex_);
  if (threads_[worker].is_there) return threads_[worker].end_text;
  if (!children_[worker]) return "was not started";
  if (!children_[worker]->has_ended()) return std::nullopt;
  return children_[worker]->end_text();
}

std::optional<int> PoolWorkers::pid(std::size_t worker) {
  MutexLock lock(mutex_);
  if (!children_[worker] || children_[worker]->has_ended()) return std::nullopt;
  return children_[worker]->pid();
}

void PoolWorkers::set_thread(std::size_t worker, std::optional<std::string> end_text) {
  MutexLock lock(mutex_);
  threads_[worker] = {true, std::move(end_text)};
}

bool PoolWorkers::are_threads() const {
  MutexLock lock(mutex_);
  return std::ranges::any_of(threads_, &Thread::is_there);
}

void PoolWorkers::end_all(Duration at_most) {
  MutexLock lock(mutex_);
  const TimePoint end = Clock::system().now() + at_most;
  for (auto& child : children_) {
    if (child) child->wait(std::max(Duration(0), end - Clock::system().now()));
  }
  for (auto& child : children_) child.reset();
}

}  // namespace reverie
