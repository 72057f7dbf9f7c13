// Tested in grpc_test.cc.
#include "reverie/grpc/grpc_blocking.h"

#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/fifo_queue.h"
#include "reverie/base/mutex.h"
#include "reverie/base/waiting.h"

namespace reverie {
namespace {

constexpr std::size_t kUnreadBytesMax = std::size_t{4} << 20;

}  // namespace

class GrpcBlockingStream::Receiver final : public GrpcClientEvents {
 public:
  explicit Receiver(Interrupted interrupted) : interrupted_(std::move(interrupted)) {}

  // Before the first event that needs it: messages come only after the first write or half-close,
  // or at least a round trip later; until then there is nothing to pause.
  void set_call(const std::shared_ptr<GrpcClientCall>& call) {
    MutexLock lock(mutex_);
    call_ = call;
  }

  void on_message(Ref<GrpcMessage> message) override {
    MutexLock lock(mutex_);
    if (is_dropping_) return;
    unread_bytes_ += message->bytes().size();
    unread_.push(std::move(message));
    const auto call = call_.lock();
    if (unread_bytes_ >= kUnreadBytesMax && call) call->pause_reading();
    changed_.notify_all();
  }
  void on_room() override {
    MutexLock lock(mutex_);
    changed_.notify_all();
  }
  void on_end(const Status& status) override {
    MutexLock lock(mutex_);
    end_ = status;
    changed_.notify_all();
  }

  // Waits until `is_there` holds, under the lock.
  template <typename Condition>
  void wait(GrpcClientCall& call, Condition is_there) REVERIE_REQUIRES(mutex_) {
    Clock& clock = Clock::system();
    while (!is_there()) {
      const bool is_notified = clock.wait_until(changed_, mutex_, clock.now() + kInterruptInterval);
      if (is_notified || !interrupted_ || is_interrupted_) continue;
      mutex_.unlock();  // a signal handler of the user's may run there
      const bool is_interrupted = interrupted_();
      mutex_.lock();
      if (!is_interrupted) continue;
      is_interrupted_ = true;
      call.cancel();
    }
  }

  Status wait_for_room(GrpcClientCall& call) {
    MutexLock lock(mutex_);
    wait(call, [&] {
      mutex_.assert_held();
      return end_.has_value() || call.has_room();
    });
    return end_ ? *end_ : Status();
  }

  std::optional<Ref<GrpcMessage>> read(GrpcClientCall& call) {
    MutexLock lock(mutex_);
    wait(call, [this] {
      mutex_.assert_held();
      return end_.has_value() || !unread_.empty();
    });
    if (unread_.empty()) return std::nullopt;
    Ref<GrpcMessage> message = unread_.pop();
    const std::size_t before = unread_bytes_;
    unread_bytes_ -= message->bytes().size();
    if (before >= kUnreadBytesMax && unread_bytes_ < kUnreadBytesMax) call.resume_reading();
    return message;
  }

  Status status(GrpcClientCall& call) {
    MutexLock lock(mutex_);
    is_dropping_ = true;
    unread_.clear();
    unread_bytes_ = 0;
    call.resume_reading();
    wait(call, [this] {
      mutex_.assert_held();
      return end_.has_value();
    });
    return *end_;
  }

 private:
  const Interrupted interrupted_;
  Mutex mutex_;
  CondVar changed_;
  std::weak_ptr<GrpcClientCall> call_ REVERIE_GUARDED_BY(mutex_);
  FifoQueue<Ref<GrpcMessage>> unread_ REVERIE_GUARDED_BY(mutex_);
  std::size_t unread_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  // Only the status is still wanted: messages never pause reading, which would keep the end back.
  bool is_dropping_ REVERIE_GUARDED_BY(mutex_) = false;
  std::optional<Status> end_ REVERIE_GUARDED_BY(mutex_);
  bool is_interrupted_ REVERIE_GUARDED_BY(mutex_) = false;
};

GrpcBlockingStream::GrpcBlockingStream(GrpcClient& client, std::string_view path,
                                       GrpcCallOptions options, Interrupted interrupted)
    : receiver_(std::make_shared<Receiver>(std::move(interrupted))),
      call_(client.start(path, std::move(options), receiver_)) {
  receiver_->set_call(call_);
}

GrpcBlockingStream::~GrpcBlockingStream() {
  call_->cancel();
}

Status GrpcBlockingStream::write(GrpcPayload message) {
  REVERIE_RETURN_IF_ERROR(receiver_->wait_for_room(*call_));
  call_->write(std::move(message));
  return {};
}

void GrpcBlockingStream::half_close() {
  call_->half_close();
}

std::optional<Ref<GrpcMessage>> GrpcBlockingStream::read() {
  return receiver_->read(*call_);
}

Status GrpcBlockingStream::status() {
  return receiver_->status(*call_);
}

void GrpcBlockingStream::cancel() {
  call_->cancel();
}

Result<Ref<GrpcMessage>> unary_and_wait(GrpcClient& client, std::string_view path,
                                        GrpcPayload request, GrpcCallOptions options,
                                        const Interrupted& interrupted) {
  GrpcBlockingStream stream(client, path, std::move(options), interrupted);
  REVERIE_RETURN_IF_ERROR(stream.write(std::move(request)));
  stream.half_close();
  std::optional<Ref<GrpcMessage>> response = stream.read();
  const bool has_two = response && stream.read().has_value();
  REVERIE_RETURN_IF_ERROR(stream.status());
  if (!response || has_two) {
    return internal_error("the server sent {} for a call with one response",
                          has_two ? "several messages" : "no message");
  }
  return *std::move(response);
}

}  // namespace reverie
