// Tested in tests/integration/served_store_test.cc and tests/integration/served_reading_test.cc.
#include "reverie/adapters/reverb/sample_channel.h"

#include <utility>

#include "reverie/base/start_thread.h"

namespace reverie {

void SampleChannel::open(Request request, GrpcCallOptions options, bool is_only) {
  const auto start = [&] {
    return world_.start(std::string(wire::kServicePath) + "SampleStream", std::move(options),
                        shared_from_this());
  };
  std::string message = request.message;
  wire::put_received(message, 0);
  if (!fork_guard_.check("client").ok()) {
    {
      MutexLock lock(mutex_);
      push(std::move(request));
    }
    start();  // ends the stream at once
    return;
  }
  MutexLock lock(mutex_);
  has_no_successor_ = is_only;
  push(std::move(request));
  call_ = start();
  if (!why_.ok()) return call_->cancel();  // its deadline has no timer
  call_->write(GrpcPayload::of(std::move(message)));
  if (is_only) call_->half_close();
}

bool SampleChannel::ask(Request& request, RequestId follows) {
  if (!fork_guard_.check("client").ok()) return false;
  MutexLock lock(mutex_);
  if (is_over_ || has_no_successor_ || !why_.ok() || !call_) return false;
  if (follows != (requests_.empty() ? 0 : requests_.back().id)) return false;
  std::string message = request.message;
  wire::put_received(message, received_);
  push(std::move(request));
  // Under the lock, so that messages have the order of the queue.
  call_->write(GrpcPayload::of(std::move(message)));
  return true;
}

void SampleChannel::cancel(RequestId id) {
  MutexLock lock(mutex_);
  for (const Request& request : requests_) {
    if (request.id == id) return give_up(cancelled("the call was cancelled"));
  }
}

void SampleChannel::finish() {
  MutexLock lock(mutex_);
  has_no_successor_ = true;
  if (call_) call_->half_close();
}

void SampleChannel::push(Request request) {
  requests_.push_back(std::move(request));
  if (requests_.size() == 1) watch_front();
}

void SampleChannel::watch_front() {
  answer_by_ = TimePoint::max();
  if (requests_.empty() || requests_.front().answer_max == Duration::max()) return;
  answer_by_ = world_.now() + requests_.front().answer_max;
  watch(answer_by_);
}

// One timer for all requests: when it fires, it is set again for the request that is first then.
void SampleChannel::watch(TimePoint due) {
  if (watch_id_ != 0 && watch_due_ <= due) return;
  if (watch_id_ != 0) world_.cancel(watch_id_, watch_due_);
  watch_due_ = due;
  watch_id_ = world_.schedule(due, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_watch();
  });
  if (watch_id_ == 0) give_up(no_thread("the deadline of a sample"));
}

void SampleChannel::on_watch() {
  MutexLock lock(mutex_);
  watch_id_ = 0;
  if (requests_.empty() || answer_by_ == TimePoint::max()) return;
  if (world_.now() < answer_by_) return watch(answer_by_);
  give_up(deadline_exceeded("Deadline Exceeded"));
}

void SampleChannel::give_up(Status why) {
  if (!why_.ok()) return;
  why_ = std::move(why);
  if (call_) call_->cancel();
}

void SampleChannel::on_message(Ref<GrpcMessage> message) {
  SampleCall* call = nullptr;
  {
    MutexLock lock(mutex_);
    if (!why_.ok()) return;
    if (requests_.empty()) {
      return give_up(internal_error("the server sent samples that were not requested"));
    }
    call = requests_.front().call.get();
  }
  const Status status = call->take(message);
  message = {};
  if (status.ok() && !call->is_complete()) return;
  Request request;
  bool is_idle = false;
  {
    MutexLock lock(mutex_);
    if (!call->is_complete()) return give_up(status);
    request = std::move(requests_.front());
    requests_.pop_front();
    received_ += request.call->count();
    watch_front();
    if (!status.ok()) give_up(status);  // more samples arrived than were requested
    is_idle = requests_.empty() && why_.ok() && !has_no_successor_;
  }
  if (is_idle) owner_.on_idle(shared_from_this());
  request.done(request.call->finish({}));
}

void SampleChannel::on_end(const Status& status) {
  const auto self = shared_from_this();
  std::deque<Request> ended;
  Status why;
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    ended.swap(requests_);
    why = why_.ok() ? status : why_;
    if (watch_id_ != 0) world_.cancel(std::exchange(watch_id_, 0), watch_due_);
  }
  owner_.on_over(self, why);
  for (Request& request : ended) request.done(request.call->finish(why));
}

}  // namespace reverie
