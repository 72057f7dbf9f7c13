// One end of a connection, for tests that look at bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/net/connection.h"

namespace reverie::test {

// One end, which runs on its loop: sends a text and collects what it receives.
class ConnectionEnd final : public ConnectionEvents {
 public:
  explicit ConnectionEnd(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)), loop_(connection_->loop()) {
    loop_.run_and_wait([this] { connection_->set_events(this); });
  }
  ~ConnectionEnd() override { hang_up(); }

  Connection& connection() { return *connection_; }
  IoLoop& loop() { return loop_; }

  void send(std::string text) {
    loop_.run_and_wait([&] {
      to_send_ += text;
      on_writable();
    });
  }
  void read_on() {
    loop_.run_and_wait([this] { connection_->want_read(); });
  }
  void hang_up() {
    loop_.run_and_wait([this] { connection_.reset(); });
  }
  // Waits for `size` bytes, or for the end of the stream.
  std::string received(std::size_t size) {
    MutexLock lock(mutex_);
    const TimePoint until = Clock::system().now() + kPatience;
    while (received_.size() < size && !is_over_ && wait(until)) {
    }
    return received_;
  }
  Status wait_for_end() {
    MutexLock lock(mutex_);
    const TimePoint until = Clock::system().now() + kPatience;
    while (!is_over_ && wait(until)) {
    }
    return is_over_ ? status_ : deadline_exceeded("the connection did not end");
  }
  std::size_t unsent() {
    std::size_t size = 0;
    loop_.run_and_wait([&] { size = to_send_.size() - sent_; });
    return size;
  }

  void on_readable() override {
    for (int i = 0; i < 4; ++i) {
      // By turns into one buffer, and into two consecutive ones.
      const auto scratch = loop_.scratch();
      const std::size_t first = scratch.size() / 3;
      const IoResult got =
          i % 2 == 0 ? connection_->read_both(scratch.first(first), scratch.subspan(first))
                     : connection_->read(scratch);
      MutexLock lock(mutex_);
      received_.append(reinterpret_cast<const char*>(scratch.data()), got.size_bytes);
      status_ = got.status;
      is_over_ = got.is_end || !got.status.ok();
      changed_.notify_all();
      if (is_over_) return;
      if (got.size_bytes == 0) break;
    }
    connection_->want_read();
  }
  void on_writable() override {
    while (sent_ < to_send_.size()) {
      // In two pieces, to test gathering writes.
      const auto rest = std::as_bytes(std::span(to_send_)).subspan(sent_);
      const std::span<const std::byte> pieces[] = {rest.first(rest.size() / 3),
                                                   rest.subspan(rest.size() / 3)};
      const IoResult result = connection_->write(pieces);
      sent_ += result.size_bytes;
      if (!result.status.ok()) {
        MutexLock lock(mutex_);
        if (!is_over_) status_ = result.status;
        is_over_ = true;
        changed_.notify_all();
        return;
      }
      if (result.size_bytes == 0) {
        connection_->want_write();
        return;
      }
    }
  }

 private:
  static constexpr Duration kPatience = std::chrono::seconds(60);

  bool wait(TimePoint until) REVERIE_REQUIRES(mutex_) {
    return Clock::system().wait_until(changed_, mutex_, until);
  }

  std::unique_ptr<Connection> connection_;
  IoLoop& loop_;
  std::string to_send_;
  std::size_t sent_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::string received_ REVERIE_GUARDED_BY(mutex_);
  Status status_ REVERIE_GUARDED_BY(mutex_);
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie::test
