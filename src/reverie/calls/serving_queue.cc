#include "reverie/calls/serving_queue.h"

#include <utility>

namespace reverie {

void ServingQueue::push(ServingTask task) {
  MutexLock lock(mutex_);
  push_locked(std::move(task));
}

void ServingQueue::push_locked(ServingTask task) {
  tasks_.push_back(std::move(task));
  ready_.store(tasks_.size());
  if (tasks_.size() == 1 && looker_ != nullptr) return looker_->wake();
  wake_one_locked();
}

void ServingQueue::wake_one_locked() {
  if (idle_.empty()) return;
  Waiter* const waiter = idle_.back();
  idle_.pop_back();
  wake_locked(*waiter);
}

void ServingQueue::wake_locked(Waiter& waiter) {
  waiter.is_woken = true;
  ++starting_threads_;
  waiter.changed.notify_all();
}

void ServingQueue::withdraw(std::set<InboundId> requests) {
  MutexLock lock(mutex_);
  std::erase_if(tasks_, [&](const ServingTask& task) {
    return !task.done && !task.gatherer && requests.erase(task.request.id) > 0;
  });
  ready_.store(tasks_.size());
  if (!tells_withdrawn_) return;
  for (const InboundId request : requests) {
    ServingTask notice;
    notice.request.id = request;
    notice.is_withdrawn = true;
    push_locked(std::move(notice));
  }
}

void ServingQueue::tell_withdrawn() {
  MutexLock lock(mutex_);
  tells_withdrawn_ = true;
}

void ServingQueue::give_back(ServingTask task) {
  MutexLock lock(mutex_);
  tasks_.push_front(std::move(task));
  ready_.store(tasks_.size());
}

std::optional<ServingTask> ServingQueue::take_locked() {
  if (tasks_.empty()) return std::nullopt;
  std::optional<ServingTask> task(std::move(tasks_.front()));
  tasks_.pop_front();
  ready_.store(tasks_.size());
  task->needs_help = is_short_locked();
  return task;
}

bool ServingQueue::is_short_locked() const {
  return idle_.empty() && starting_threads_ == 0 && looker_ == nullptr && threads_ < threads_max_;
}

bool ServingQueue::needs_thread() {
  MutexLock lock(mutex_);
  return !is_closed_ && is_short_locked();
}

std::optional<ServingTask> ServingQueue::take() {
  MutexLock lock(mutex_);
  if (threads_ > threads_max_) return std::nullopt;
  return take_locked();
}

std::optional<ServingTask> ServingQueue::wait(const Peer& peer) {
  look(peer);
  MutexLock lock(mutex_);
  while (true) {
    const bool is_surplus = threads_ > threads_max_;
    if (!is_surplus) {
      if (std::optional<ServingTask> task = take_locked()) return task;
    }
    if (is_surplus || is_closed_ || idle_.size() >= kIdleMax) {
      threads_ -= threads_ > 0 ? 1 : 0;
      ask_looker_locked();
      if (!tasks_.empty()) wake_one_locked();  // it may have been woken for a task
      return std::nullopt;
    }
    Waiter waiter;
    idle_.push_back(&waiter);
    while (!waiter.is_woken) waiter.changed.wait(mutex_);
    --starting_threads_;
  }
}

// Waits for a task in the peer's seat, unless another thread does.
void ServingQueue::look(const Peer& peer) {
  {
    MutexLock lock(mutex_);
    if (looker_ != nullptr) return;
    looker_ = &peer;
  }
  (void)peer.wait([this] { return ready_.load() > 0 || is_asked_.load(); }, TimePoint::max(),
                  /*yields=*/true);
  MutexLock lock(mutex_);
  looker_ = nullptr;
}

// Has the looking thread find out whether it should end.
void ServingQueue::ask_looker_locked() {
  is_asked_.store(is_closed_ || threads_ > threads_max_);
  if (is_asked_.load() && looker_ != nullptr) looker_->wake();
}

void ServingQueue::set_threads_max(std::size_t count) {
  MutexLock lock(mutex_);
  threads_max_ = count;
  ask_looker_locked();
  for (std::size_t surplus = threads_; surplus > threads_max_; --surplus) wake_one_locked();
}

void ServingQueue::expect_thread() {
  MutexLock lock(mutex_);
  ++starting_threads_;
}

void ServingQueue::note_thread_failed() {
  MutexLock lock(mutex_);
  --starting_threads_;
}

void ServingQueue::note_thread_started() {
  MutexLock lock(mutex_);
  --starting_threads_;
  ++threads_;
  ask_looker_locked();
}

void ServingQueue::close() {
  MutexLock lock(mutex_);
  is_closed_ = true;
  ask_looker_locked();
  for (Waiter* const waiter : idle_) wake_locked(*waiter);
  idle_.clear();
}

}  // namespace reverie
