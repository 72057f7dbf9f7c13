// FakeServerCall: a gRPC call without a socket, to test code that answers calls.
//
// It records what is written. The test decides whether it has room.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/native_wire/insert_session.h"

namespace reverie {

class FakeServerCall final : public GrpcServerCall, public InsertCall {
 public:
  explicit FakeServerCall(bool is_peer_local = true, GrpcMetadata metadata = {}) {
    info_.is_peer_local = is_peer_local;
    info_.metadata = std::move(metadata);
  }

  const GrpcCallInfo& info() const override { return info_; }
  void write(GrpcPayload message) override {
    MutexLock lock(mutex_);
    if (!finished_) written_.push_back(message.flat());
  }
  void finish(const Status& status) override {
    MutexLock lock(mutex_);
    if (!finished_) finished_ = status;
  }
  void abort(const Status& why) override { finish(why); }
  void pause_reading() override {
    MutexLock lock(mutex_);
    is_paused_ = true;
  }
  void resume_reading() override {
    MutexLock lock(mutex_);
    is_paused_ = false;
  }
  std::size_t queued_bytes() const override { return 0; }
  bool has_room() const override {
    MutexLock lock(mutex_);
    return has_room_;
  }
  bool is_over() const override {
    MutexLock lock(mutex_);
    return finished_.has_value() && !ends_late_;
  }
  // Over a socket a call is over only after the event that finishes it, and those under way.
  void end_late() {
    MutexLock lock(mutex_);
    ends_late_ = true;
  }

  bool has_room_to_draw() const override { return has_room(); }
  void hold(std::size_t bytes) override { held_bytes_ += bytes; }
  std::size_t reserve_up_to(std::size_t count, std::size_t bytes_each) override {
    held_bytes_ += count * bytes_each;
    return count;
  }
  void release(std::size_t bytes) override { held_bytes_ -= bytes; }
  std::size_t held_bytes() const { return held_bytes_; }

  void set_room(bool has_room) {
    MutexLock lock(mutex_);
    has_room_ = has_room;
  }
  bool is_paused() const {
    MutexLock lock(mutex_);
    return is_paused_;
  }
  // The messages written since the last call.
  std::vector<std::string> take_written() {
    MutexLock lock(mutex_);
    return std::exchange(written_, {});
  }
  std::optional<Status> finished() const {
    MutexLock lock(mutex_);
    return finished_;
  }

 private:
  GrpcCallInfo info_;
  mutable Mutex mutex_;
  std::vector<std::string> written_ REVERIE_GUARDED_BY(mutex_);
  std::optional<Status> finished_ REVERIE_GUARDED_BY(mutex_);
  std::atomic<std::size_t> held_bytes_{0};
  bool is_paused_ REVERIE_GUARDED_BY(mutex_) = false;
  bool has_room_ REVERIE_GUARDED_BY(mutex_) = true;
  bool ends_late_ REVERIE_GUARDED_BY(mutex_) = false;
};

inline Ref<GrpcMessage> grpc_message(const std::string& bytes) {
  Ref<GrpcMessage> message = GrpcMessage::make(make_ref<MessagePool>(), bytes.size()).value();
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(message->writable().data()));
  return message;
}

}  // namespace reverie
