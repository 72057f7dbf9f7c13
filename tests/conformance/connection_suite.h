// What every Connection must do. An implementation joins by giving a function that makes a
// connected pair.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "reverie/net/connection.h"
#include "tests/support/connection_end.h"

namespace reverie::test {

struct ConnectionMaker {
  std::string name;
  // Two connected ends, one on each of the two loops of `threads`.
  std::function<ConnectionPair(IoThreads& threads)> make;
};

inline void PrintTo(const ConnectionMaker& maker, std::ostream* out) {
  *out << maker.name;
}

class ConnectionSuite : public ::testing::TestWithParam<ConnectionMaker> {
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

TEST_P(ConnectionSuite, AHangUpEndsTheStreamAfterTheDataSent) {
  first_->send("last words");
  EXPECT_EQ(second_->received(10), "last words");
  first_->hang_up();
  EXPECT_TRUE(second_->wait_for_end().ok());
  EXPECT_EQ(second_->received(10), "last words");
}

TEST_P(ConnectionSuite, WritesToADisconnectedPeerFail) {
  first_->send("x");
  second_->received(1);
  first_->hang_up();
  (void)second_->wait_for_end();
  Status status;
  second_->loop().run_and_wait([&] {
    const std::string text = numbered(1 << 20);
    const std::span<const std::byte> piece = std::as_bytes(std::span(text));
    // The system may still accept the first write.
    for (int i = 0; i < 3 && status.ok(); ++i) {
      status = second_->connection().write({&piece, 1}).status;
    }
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

TEST_P(ConnectionSuite, AHangUpInTheMiddleOfAWriteEndsTheConnection) {
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
