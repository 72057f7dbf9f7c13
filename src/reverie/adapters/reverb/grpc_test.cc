// The server against the client, over pairs and sockets.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/reverb/grpc_blocking.h"
#include "reverie/adapters/reverb/grpc_client.h"
#include "reverie/adapters/reverb/grpc_server.h"

namespace reverie {
namespace {

std::string text_of(const GrpcMessage& message) {
  return {reinterpret_cast<const char*>(message.bytes().data()), message.bytes().size()};
}

GrpcCallOptions within(double s) {
  GrpcCallOptions options;
  options.deadline = Clock::system().now() + seconds(s);
  return options;
}

// Sends back what comes.
class Echo final : public GrpcServerEvents {
 public:
  explicit Echo(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
  void on_message(Ref<GrpcMessage> message) override {
    GrpcPayload payload;
    const auto bytes = message->bytes();
    payload.append(bytes, std::move(message));
    call_->write(std::move(payload));
    if (!call_->has_room()) call_->pause_reading();
  }
  void on_room() override { call_->resume_reading(); }
  void on_half_close() override { call_->finish({}); }
  void on_end(const Status&) override {}

 private:
  std::shared_ptr<GrpcServerCall> call_;
};

class GrpcTest : public testing::Test {
 protected:
  GrpcTest() : server_(threads_, {}) {
    server_.add_method("/t/Echo", [](std::shared_ptr<GrpcServerCall> call) {
      return std::make_shared<Echo>(std::move(call));
    });
    server_.add_unary("/t/Upper", [](const auto&, Ref<GrpcMessage> request, GrpcUnaryReply reply) {
      std::string text = text_of(*request);
      for (char& c : text) c = static_cast<char>(std::toupper(c));
      reply(GrpcPayload::of(text));
    });
    server_.add_unary("/t/Fail", [](const auto&, Ref<GrpcMessage> request, GrpcUnaryReply reply) {
      reply(not_found("no such thing: {}", text_of(*request)));
    });
  }
  std::unique_ptr<GrpcClient> connect() {
    auto addresses = server_.listen({"localhost:0"});
    EXPECT_TRUE(addresses.ok()) << addresses.status().to_string();
    return GrpcClient::open(threads_, addresses->front(), {}).value();
  }

  IoThreads threads_{2};
  GrpcServer server_;
};

TEST_F(GrpcTest, AUnaryCallIsAnswered) {
  const auto client = connect();
  for (int i = 0; i < 3; ++i) {
    auto response = unary_and_wait(*client, "/t/Upper", GrpcPayload::of("hello"), within(10));
    ASSERT_TRUE(response.ok()) << response.status().to_string();
    EXPECT_EQ(text_of(**response), "HELLO");
  }
}

TEST_F(GrpcTest, AStatusArrivesWithItsText) {
  const auto client = connect();
  const auto response = unary_and_wait(*client, "/t/Fail", GrpcPayload::of("ä\n%"), within(10));
  EXPECT_EQ(response.status().to_string(), "NOT_FOUND: no such thing: ä\n%");
}

TEST_F(GrpcTest, MessagesOfEverySizeComeBackAsTheyWere) {
  const auto client = connect();
  GrpcBlockingStream stream(*client, "/t/Echo", within(30));
  for (std::size_t size : {0u, 1u, 5u, 1024u, 1025u, 16384u, 400000u, 4194304u, 16777216u}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + (i >> 11u));
    ASSERT_TRUE(stream.write(GrpcPayload::of(text)).ok());
    auto message = stream.read();
    ASSERT_TRUE(message) << size << " " << stream.status().to_string();
    EXPECT_TRUE(text_of(**message) == text) << size;
  }
  stream.half_close();
  EXPECT_FALSE(stream.read());
  EXPECT_TRUE(stream.status().ok()) << stream.status().to_string();
}

}  // namespace
}  // namespace reverie
