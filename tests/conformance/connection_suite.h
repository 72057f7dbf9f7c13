// What every Connection promises, whatever carries it: a way to make a connected pair is all that
// an implementation gives to join.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "reverie/base/mutex.h"
#include "reverie/net/connection.h"

namespace reverie::test {

struct ConnectionMaker {
  std::string name;
  // Two connected ends, on the two loops of `threads`.
  std::function<ConnectionPair(IoThreads& threads)> make;
};

inline void PrintTo(const ConnectionMaker& maker, std::ostream* out) {
  *out << maker.name;
}

// One end, driven on its loop: sends a text, collects what comes.
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
  // Waits for so much, or for the end of the stream.
  std::string received(std::size_t size) {
    MutexLock lock(mutex_);
    while (received_.size() < size && !is_over_) changed_.wait(mutex_);
    return received_;
  }
  Status wait_for_end() {
    MutexLock lock(mutex_);
    while (!is_over_) changed_.wait(mutex_);
    return status_;
  }
  std::size_t unsent() {
    std::size_t size = 0;
    loop_.run_and_wait([&] { size = to_send_.size() - sent_; });
    return size;
  }

  void on_readable() override {
    for (int i = 0; i < 4; ++i) {
      const auto scratch = loop_.scratch();
      const IoResult got = connection_->read(scratch);
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
      // In two pieces, to see them gathered.
      const auto rest = std::as_bytes(std::span(to_send_)).subspan(sent_);
      const std::span<const std::byte> pieces[] = {rest.first(rest.size() / 3),
                                                   rest.subspan(rest.size() / 3)};
      const IoResult result = connection_->write(pieces);
      sent_ += result.size_bytes;
      if (!result.status.ok()) return;
      if (result.size_bytes == 0) {
        connection_->want_write();
        return;
      }
    }
  }

 private:
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

class ConnectionSuite : public testing::TestWithParam<ConnectionMaker> {
 protected:
  ConnectionSuite() {
    ConnectionPair pair = GetParam().make(threads_);
    first_ = std::make_unique<ConnectionEnd>(std::move(pair.first));
    second_ = std::make_unique<ConnectionEnd>(std::move(pair.second));
    first_->read_on();
    second_->read_on();
  }
  ~ConnectionSuite() override {
    first_.reset();
    second_.reset();
  }

  IoThreads threads_{2};
  std::unique_ptr<ConnectionEnd> first_;
  std::unique_ptr<ConnectionEnd> second_;
};

inline std::string numbered(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + (i >> 13u));
  return text;
}

TEST_P(ConnectionSuite, CarriesBytesBothWaysAtOnce) {
  const std::string there = numbered(8'000'001);
  const std::string back = numbered(3'000'000);
  first_->send(there);
  second_->send(back);
  EXPECT_TRUE(second_->received(there.size()) == there);
  EXPECT_TRUE(first_->received(back.size()) == back);
}

TEST_P(ConnectionSuite, CarriesSmallPiecesInOrder) {
  std::string all;
  for (int i = 0; i < 500; ++i) {
    const std::string piece = numbered(static_cast<std::size_t>(i % 7) + 1);
    all += piece;
    first_->send(piece);
  }
  EXPECT_EQ(second_->received(all.size()), all);
}

TEST_P(ConnectionSuite, AHangUpEndsTheStreamBehindWhatWasSent) {
  first_->send("last words");
  EXPECT_EQ(second_->received(10), "last words");
  first_->hang_up();
  EXPECT_TRUE(second_->wait_for_end().ok());
  EXPECT_EQ(second_->received(10), "last words");
}

TEST_P(ConnectionSuite, APeerThatIsGoneMakesWritesFailAndHarmsNobody) {
  first_->send("x");
  second_->received(1);
  first_->hang_up();
  (void)second_->wait_for_end();
  Status status;
  second_->loop().run_and_wait([&] {
    const std::string text = numbered(1 << 20);
    const std::span<const std::byte> piece = std::as_bytes(std::span(text));
    // The first may still be taken by the system.
    for (int i = 0; i < 3 && status.ok(); ++i) {
      status = second_->connection().write({&piece, 1}).status;
    }
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST_P(ConnectionSuite, ADroppedEndInTheMiddleOfAWriteLeavesNothingRunning) {
  first_->send(numbered(32'000'000));  // more than any buffer holds
  second_->received(1);
  first_->hang_up();
  (void)second_->wait_for_end();
}

TEST_P(ConnectionSuite, KnowsThatThePeerIsOnThisMachine) {
  EXPECT_TRUE(first_->connection().is_peer_local());
  EXPECT_FALSE(first_->connection().peer().empty());
}

}  // namespace reverie::test
