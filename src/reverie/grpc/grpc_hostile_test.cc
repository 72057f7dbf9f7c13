// A server with peers that break the rules, or abuse them: each gets an error or is dropped, memory
// stays bounded, and other clients are not affected.

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/grpc/grpc_blocking.h"
#include "reverie/grpc/grpc_client.h"
#include "reverie/grpc/grpc_server.h"
#include "tests/scale.h"
#include "tests/support/connection_end.h"
#include "tests/support/eventually.h"
#include "tests/support/grpc_methods.h"
#include "tests/support/http2_frames.h"
#include "tests/support/readable_frames.h"

namespace reverie {
namespace {

using namespace test;  // for HTTP/2 frames

constexpr std::size_t kMiB = std::size_t{1} << 20;

// The resident memory of the process.
std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

class GrpcHostile : public ::testing::Test {
 protected:
  GrpcHostile() {
    GrpcServerOptions options;
    options.limits.connection_bytes_max = 16 * kMiB;
    options.limits.message_bytes_max = 900 * kMiB;
    options.limits.call_count_max = 1000;
    server_ = std::make_unique<GrpcServer>(threads_, options);
    add_methods(*server_, [this](const Status&) { ++ended_; });
    address_ = server_->listen({"localhost:0"})->front();
    beside_ = GrpcClient::open(threads_, address_, {}).value();
    expect_others_unharmed();
  }
  ~GrpcHostile() override {
    beside_->close();
    server_->stop();
  }

  std::unique_ptr<ConnectionEnd> meet() {
    ConnectionPair pair = make_connection_pair(threads_.loop(0), threads_.loop(1)).value();
    server_->serve(std::move(pair.second));
    auto end = std::make_unique<ConnectionEnd>(std::move(pair.first));
    end->read_on();
    return end;
  }
  // Waits until only the good client is connected, and no call of another is left.
  void wait_until_alone() {
    EXPECT_TRUE(test::eventually([&] {
      const GrpcServerFigures figures = server_->figures();
      return figures.connection_count <= 1 && figures.call_count == 0;
    }));
    EXPECT_EQ(server_->figures().call_count, 0u);
  }
  void expect_others_unharmed() {
    GrpcCallOptions options;
    options.deadline = Clock::system().now() + std::chrono::seconds(60);
    const auto response = unary_and_wait(*beside_, "/t/Upper", GrpcPayload::of("others"), options);
    ASSERT_TRUE(response.ok()) << response.status().to_string();
    EXPECT_EQ(text_of(**response), "OTHERS");
  }
  // Sends `bytes` and waits until the server hangs up.
  void expect_dropped(const std::string& bytes) {
    const auto peer = meet();
    peer->send(bytes);
    (void)peer->wait_for_end();
    expect_others_unharmed();
  }
  // Sends `bytes` and waits until `text` is in the decoded answer.
  void expect_answer(ConnectionEnd& peer, const std::string& bytes, const std::string& text) {
    peer.send(bytes);
    std::size_t size = 1;
    while (true) {
      const std::string answer = peer.received(size);
      if (readable(answer).find(text) != std::string::npos) return;
      ASSERT_GE(answer.size(), size) << "hung up without '" << text << "'";
      size = answer.size() + 1;
    }
  }

  std::atomic<int> ended_{0};
  IoThreads threads_{2};
  std::unique_ptr<GrpcServer> server_;
  std::string address_;
  std::unique_ptr<GrpcClient> beside_;
};

std::string whole_call(std::uint32_t stream, const std::string& path, const std::string& text) {
  return frame(kHeadersFrame, kEndHeaders, stream, call_fields(path)) +
         frame(kDataFrame, kEndStream, stream, grpc_message(text));
}

TEST_F(GrpcHostile, ARawPeerThatFollowsTheProtocolIsAnswered) {
  const auto peer = meet();
  expect_answer(*peer, hello() + whole_call(1, "/t/Upper", "abc"), "ABC");
}

TEST_F(GrpcHostile, AConversationCutAtAnyByteLeavesNothingBehind) {
  const std::string all = hello() + whole_call(1, "/t/Never", "abc");
  for (std::size_t size = 0; size < all.size(); ++size) {
    meet()->send(all.substr(0, size));  // the peer hangs up after sending
  }
  wait_until_alone();
  expect_others_unharmed();
}

TEST_F(GrpcHostile, AConversationChangedAtAnyByteDoesNotAffectOthers) {
  const std::string all =
      hello() + whole_call(1, "/t/Never", "abc") + whole_call(3, "/t/Upper", "x");
  Random random(7);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string changed = all;
    changed[i] = static_cast<char>(changed[i] ^ (1 + random.below(255)));
    meet()->send(changed);
  }
  wait_until_alone();
  expect_others_unharmed();
}

TEST_F(GrpcHostile, APeerThatDoesNotSpeakHttp2IsDropped) {
  expect_dropped("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  expect_dropped(std::string(1000, '\0'));
  expect_dropped(format("{}no frame at all, but quite a lot of text", kPreface));
}

TEST_F(GrpcHostile, APeerThatSendsInvalidFramesIsDropped) {
  const std::string headers = frame(kHeadersFrame, kEndHeaders, 1, call_fields("/t/Never"));
  expect_dropped(std::string(kPreface) + headers);  // without settings before
  expect_dropped(hello() + frame(kDataFrame, 0, 1, "idle stream"));
  expect_dropped(hello() + frame(kHeadersFrame, kEndHeaders, 2, call_fields("/t/Never")));
  expect_dropped(hello() + frame(kHeadersFrame, kEndHeaders, 0, call_fields("/t/Never")));
  expect_dropped(hello() +
                 frame(kHeadersFrame, kEndHeaders, 1, "\xff\xff\xff\xff\xff\xff\xff\xff"));
  expect_dropped(hello() + frame(kContinuationFrame, kEndHeaders, 1, "x"));
  expect_dropped(hello() + frame(kHeadersFrame, 0, 1, "") + frame(kPingFrame, 0, 0, "12345678"));
  expect_dropped(hello() + frame(kSettingsFrame, 0, 0, "12345"));
  expect_dropped(hello() + frame(kSettingsFrame, 0, 1, ""));
  expect_dropped(hello() + frame(kPingFrame, 0, 0, "1234567"));
  expect_dropped(hello() + frame(kWindowFrame, 0, 0, big_endian(0, 4)));
  expect_dropped(hello() + frame(kWindowFrame, 0, 0, big_endian(0x7fffffff, 4)));
  // A frame above the announced maximum is refused by its length.
  expect_dropped(hello() + big_endian(0xffffff, 3) + std::string("\0\0", 2) + big_endian(1, 4));
}

TEST_F(GrpcHostile, AMessageLengthBeyondTheBoundIsReportedAndTakesNoMemory) {
  const auto peer = meet();
  const std::string begin = hello() + frame(kHeadersFrame, kEndHeaders, 1, call_fields("/t/Never"));
  const std::size_t before = resident_bytes();
  expect_answer(*peer, begin + frame(kDataFrame, 0, 1, std::string("\0\xff\xff\xff\xff", 5)),
                "4294967295");
  EXPECT_LT(resident_bytes(), before + 50 * kMiB);
  expect_others_unharmed();
}

TEST_F(GrpcHostile, AnnouncedMessagesTakeNoMemory) {
  const auto peer = meet();
  std::string bytes = hello();
  const std::string promise = std::string(1, '\0') + big_endian(60 * kMiB, 4) + "x";
  for (std::uint32_t i = 0; i < 500; ++i) {
    bytes += frame(kHeadersFrame, kEndHeaders, 2 * i + 1, call_fields("/t/Never")) +
             frame(kDataFrame, 0, 2 * i + 1, promise);
  }
  const std::size_t before = resident_bytes();
  expect_answer(*peer, bytes + whole_call(2001, "/t/Upper", "abc"), "ABC");
  EXPECT_LT(resident_bytes(), before + 50 * kMiB);
  expect_others_unharmed();
}

TEST_F(GrpcHostile, IncompleteMessagesShareABound) {
  const auto peer = meet();
  const std::string part =
      std::string(1, '\0') + big_endian(60 * kMiB, 4) + std::string(std::size_t{250} << 10, 'x');
  peer->send(hello() + frame(kSettingsFrame, 1, 0, ""));
  for (std::uint32_t i = 0; i < 300; ++i) {  // 75 MB
    peer->send(frame(kHeadersFrame, kEndHeaders, 2 * i + 1, call_fields("/t/Never")) +
               frame(kDataFrame, 0, 2 * i + 1, part));
  }
  expect_answer(*peer, frame(kPingFrame, 0, 0, "all sent"), "connection_bytes");
  EXPECT_LT(server_->figures().held_bytes, 36 * kMiB);
  expect_others_unharmed();
}

// A single message larger than the connection's bound is accepted, whatever other calls do.
TEST_F(GrpcHostile, ALargeMessagePassesAlongsideOthers) {
  GrpcClientOptions options;
  const auto client = GrpcClient::open(threads_, address_, options).value();
  std::vector<std::unique_ptr<GrpcBlockingStream>> streams;
  GrpcCallOptions within;
  within.deadline = Clock::system().now() + std::chrono::seconds(60);
  const std::string text = pattern_text(40 * kMiB);
  for (int i = 0; i < 4; ++i) {
    streams.push_back(std::make_unique<GrpcBlockingStream>(*client, "/t/Sum", within));
    ASSERT_TRUE(streams.back()->write(GrpcPayload::of(text)).ok());
  }
  for (const auto& stream : streams) {
    stream->half_close();
    const auto sum = stream->read();
    ASSERT_TRUE(sum) << stream->status().to_string();
    EXPECT_EQ(text_of(**sum), format("1 {}", text.size()));
  }
  EXPECT_LT(server_->figures().held_bytes, kMiB);
}

// The memory of all calls on a connection that are never read is bounded, and freed with the
// connection.
TEST_F(GrpcHostile, CallsThatAreNeverReadShareTheBoundOfTheConnection) {
  const auto peer = meet();
  std::string bytes = hello();
  for (std::uint32_t i = 0; i < 900; ++i) {
    bytes += whole_call(2 * i + 1, "/t/Count", "100 1000000");
  }
  peer->send(bytes + frame(kPingFrame, 0, 0, "all sent"));
  while (readable(peer->received(1)).find("all sent") == std::string::npos) {
  }
  const std::size_t held = server_->figures().held_bytes;
  EXPECT_GE(held, 7 * kMiB);
  EXPECT_LE(held, 18 * kMiB);
  expect_others_unharmed();
  peer->hang_up();
  wait_until_alone();
  EXPECT_LT(server_->figures().held_bytes, kMiB);
}

TEST_F(GrpcHostile, AClientThatKeepsReadingGetsAllResponsesOfManyCalls) {
  const auto client = GrpcClient::open(threads_, address_, {}).value();
  GrpcCallOptions within;
  within.deadline = Clock::system().now() + std::chrono::seconds(60);
  std::vector<std::unique_ptr<GrpcBlockingStream>> streams;
  for (int i = 0; i < 40; ++i) {
    streams.push_back(std::make_unique<GrpcBlockingStream>(*client, "/t/Count", within));
    ASSERT_TRUE(streams.back()->write(GrpcPayload::of("5 1000000")).ok());
  }
  for (const auto& stream : streams) {
    int count = 0;
    while (stream->read()) ++count;
    EXPECT_EQ(count, 5) << stream->status().to_string();
  }
}

TEST_F(GrpcHostile, ManyCallsAtOnceAreRefusedBeyondTheBound) {
  const auto peer = meet();
  std::string bytes = hello();
  for (std::uint32_t i = 0; i < 1500; ++i) {
    bytes += frame(kHeadersFrame, kEndHeaders, 2 * i + 1, call_fields("/t/Never"));
  }
  expect_answer(*peer, bytes + frame(kPingFrame, 0, 0, "all sent"), "all sent");
  EXPECT_EQ(server_->figures().call_count, 1000u);
  expect_others_unharmed();
}

TEST_F(GrpcHostile, APeerThatKnowsTheBoundIsDroppedForExceedingIt) {
  std::string bytes = hello() + frame(kSettingsFrame, 1, 0, "");
  for (std::uint32_t i = 0; i < 1001; ++i) {
    bytes += frame(kHeadersFrame, kEndHeaders, 2 * i + 1, call_fields("/t/Never"));
  }
  expect_dropped(bytes);
  wait_until_alone();
  EXPECT_EQ(ended_, 1000);
}

TEST_F(GrpcHostile, AFloodOfPingsIsAnsweredOrDropped) {
  const auto peer = meet();
  std::string bytes = hello();
  for (int i = 0; i < 100'000; ++i) bytes += frame(kPingFrame, 0, 0, "12345678");
  const std::size_t before = resident_bytes();
  peer->send(bytes);
  expect_others_unharmed();
  EXPECT_LT(resident_bytes(), before + 100 * kMiB);
}

TEST_F(GrpcHostile, AFloodOfSettingsIsDropped) {
  std::string bytes = hello();
  for (int i = 0; i < 100'000; ++i) bytes += frame(kSettingsFrame, 0, 0, "");
  expect_dropped(bytes);
}

TEST_F(GrpcHostile, AFloodOfContinuationsIsDropped) {
  std::string bytes = hello() + frame(kHeadersFrame, 0, 1, call_fields("/t/Never"));
  for (int i = 0; i < 100'000; ++i) {
    bytes += frame(kContinuationFrame, 0, 1, fields({{"x-more", "and more"}}));
  }
  expect_dropped(bytes);
}

TEST_F(GrpcHostile, HeadersBeyondTheBoundAreRefused) {
  const auto peer = meet();
  std::string part;
  for (int i = 0; i < 100; ++i) part += fields({{"x-large", std::string(100, 'y')}});
  expect_answer(*peer,
                hello() + frame(kHeadersFrame, 0, 1, call_fields("/t/Never")) +
                    frame(kContinuationFrame, 0, 1, part) +
                    frame(kContinuationFrame, kEndHeaders, 1, part),
                "headers take");
  expect_answer(*peer, whole_call(3, "/t/Upper", "abc"), "ABC");
}

// Fields that refer to one large entry of the dynamic table again and again.
TEST_F(GrpcHostile, HeadersThatDecodeBeyondTheBoundAreRefused) {
  const auto peer = meet();
  std::string bomb = call_fields("/t/Never");
  // A literal with indexing, whose value has 3,000 bytes.
  bomb += '\x40';
  bomb += static_cast<char>(1);
  bomb += "x";
  bomb += "\x7f\xb9\x16";  // 127 + 57 + 22 * 128 = 3000
  bomb += std::string(3000, 'v');
  bomb += std::string(12'000, '\xbe');  // refers to entry 62, the newest
  const std::size_t before = resident_bytes();
  expect_answer(*peer, hello() + frame(kHeadersFrame, kEndHeaders, 1, bomb), "headers take");
  EXPECT_LT(resident_bytes(), before + 50 * kMiB);
}

TEST_F(GrpcHostile, CallsResetAtOnceLeaveNothingAndDoNotAffectOthers) {
  const auto peer = meet();
  std::string bytes = hello();
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    bytes += frame(kHeadersFrame, kEndHeaders, 2 * i + 1, call_fields("/t/Never")) +
             frame(kResetFrame, 0, 2 * i + 1, big_endian(8, 4));
  }
  const std::size_t before = resident_bytes();
  peer->send(bytes);
  expect_others_unharmed();
  expect_answer(*peer, whole_call(40'001, "/t/Upper", "and still served"), "AND STILL SERVED");
  EXPECT_EQ(ended_, 20'000);
  EXPECT_EQ(server_->figures().call_count, 0u);
  EXPECT_LT(resident_bytes(), before + 100 * kMiB);
}

TEST_F(GrpcHostile, EmptyDataFramesAreIgnored) {
  const auto peer = meet();
  std::string bytes = hello() + frame(kHeadersFrame, kEndHeaders, 1, call_fields("/t/Upper"));
  for (int i = 0; i < 100'000; ++i) bytes += frame(kDataFrame, 0, 1, "");
  bytes += frame(kDataFrame, kEndStream, 1, grpc_message("abc"));
  expect_answer(*peer, bytes, "ABC");
}

TEST_F(GrpcHostile, AStreamThatEndsInTheMiddleOfAMessageIsRefused) {
  const auto peer = meet();
  const std::string begin = frame(kHeadersFrame, kEndHeaders, 1, call_fields("/t/Never"));
  expect_answer(
      *peer, hello() + begin + frame(kDataFrame, kEndStream, 1, std::string("\0\0\0\0\x09xyz", 8)),
      "in the middle of a message");
  EXPECT_EQ(ended_, 1);
}

// Large contents are read directly into their final memory: a stream may end during that.
TEST_F(GrpcHostile, LargeMessagesAbandonedHalfwayDoNotAffectOthers) {
  const auto peer = meet();
  peer->send(hello() + frame(kSettingsFrame, 1, 0, ""));
  const std::string prefix = std::string(1, '\0') + big_endian(2'000'000, 4);
  std::uint32_t stream = 1;
  for (const std::size_t sent : {std::size_t{100}, std::size_t{40'000}, std::size_t{299'990}}) {
    for (const bool is_reset : {true, false}) {
      const std::string data = prefix + std::string(299'995, 'x');
      const std::string whole = frame(kDataFrame, 0, stream, data);
      peer->send(frame(kHeadersFrame, kEndHeaders, stream, call_fields("/t/Upper")) +
                 whole.substr(0, sent));
      expect_others_unharmed();  // after this call the server has begun to read the message
      peer->send(whole.substr(sent));
      expect_others_unharmed();
      if (is_reset) {
        peer->send(frame(kResetFrame, 0, stream, big_endian(8, 4)));
      } else {
        // Sends the rest, and then more than was announced.
        for (std::size_t left = 2'000'000 - 299'995; left > 0;) {
          const std::size_t part = std::min<std::size_t>(left, 250'000);
          peer->send(frame(kDataFrame, 0, stream, std::string(part, 'x')));
          left -= part;
        }
        expect_answer(*peer, frame(kDataFrame, kEndStream, stream, grpc_message("one too many")),
                      "a second message");
      }
      stream += 2;
    }
  }
  expect_answer(*peer, whole_call(stream, "/t/Upper", "still served"), "STILL SERVED");
  const auto gone = meet();
  gone->send(hello() + frame(kHeadersFrame, kEndHeaders, 1, call_fields("/t/Upper")) +
             frame(kDataFrame, 0, 1, prefix + std::string(200'000, 'x')).substr(0, 150'000));
  expect_others_unharmed();
}

TEST_F(GrpcHostile, ARequestThatIsNotACallGetsAnHttpError) {
  const auto peer = meet();
  const std::string get =
      fields({{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "x"}});
  expect_answer(*peer, hello() + frame(kHeadersFrame, kEndHeaders | kEndStream, 1, get), "415");
  EXPECT_EQ(server_->figures().calls_begun, 1u);  // only the good client's call
}

TEST_F(GrpcHostile, InvalidTimeoutsEncodingsAndMetadataAreRefused) {
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> table = {
      {{"grpc-timeout", "1x"}, "is not a timeout"},
      {{"grpc-encoding", "br"}, "not understood"},
      {{"x-bin", "***"}, "not base64"},
  };
  for (const auto& [field, answer] : table) {
    const auto peer = meet();
    expect_answer(
        *peer,
        hello() + frame(kHeadersFrame, kEndHeaders, 1, call_fields("/t/Never") + fields({field})),
        answer);
  }
}

// Random changes of a valid conversation.
TEST_F(GrpcHostile, RandomFramesDoNotAffectOthers) {
  Random random(11);
  const auto count = static_cast<int>(scaled(300, 5000));
  for (int i = 0; i < count; ++i) {
    std::string bytes = hello();
    for (std::uint64_t frames = random.below(20); frames > 0; --frames) {
      std::string payload;
      if (random.below(3) == 0) {
        payload = call_fields("/t/Echo");
      } else {
        for (std::uint64_t n = random.below(64); n > 0; --n) {
          payload += static_cast<char>(random.below(256));
        }
      }
      bytes += frame(static_cast<std::uint8_t>(random.below(11)),
                     static_cast<std::uint8_t>(random.below(64)),
                     static_cast<std::uint32_t>(random.below(8)), payload);
    }
    meet()->send(bytes);
  }
  wait_until_alone();
  expect_others_unharmed();
}

bool has_frame(std::string_view bytes, std::uint8_t type) {
  while (bytes.size() >= 9) {
    if (static_cast<std::uint8_t>(bytes[3]) == type) return true;
    const auto byte = [&](std::size_t i) {
      return std::size_t{static_cast<std::uint8_t>(bytes[i])};
    };
    bytes.remove_prefix(std::min(bytes.size(), 9 + (byte(0) << 16u | byte(1) << 8u | byte(2))));
  }
  return false;
}

// A connection without a first call, or without a call for long, gets a GOAWAY.
TEST_F(GrpcHostile, ConnectionsWithoutCallsAreClosed) {
  GrpcServerOptions options;
  options.first_call_timeout = std::chrono::milliseconds(20);
  options.idle_timeout = std::chrono::milliseconds(20);
  GrpcServer server(threads_, options);
  add_methods(server);
  const std::string address = server.listen({"localhost:0"})->front();
  const auto silent = [&](const std::string& bytes) {
    ConnectionPair pair = make_connection_pair(threads_.loop(0), threads_.loop(1)).value();
    server.serve(std::move(pair.second));
    ConnectionEnd end(std::move(pair.first));
    end.read_on();
    end.send(bytes);
    (void)end.wait_for_end();
    EXPECT_TRUE(has_frame(end.received(1), kGoawayFrame));
  };
  const std::string ping = frame(kPingFrame, 1, 0, "goodbye.");  // acknowledges the server's ping
  silent(hello());
  silent(hello() + ping);
  silent(hello() + whole_call(1, "/t/Upper", "abc"));
  // Our client does not fail: it reconnects.
  const auto client = GrpcClient::open(threads_, address, {}).value();
  for (int i = 0; i < 3; ++i) {
    GrpcCallOptions within;
    within.deadline = Clock::system().now() + std::chrono::seconds(60);
    const auto response = unary_and_wait(*client, "/t/Upper", GrpcPayload::of("again"), within);
    ASSERT_TRUE(response.ok()) << response.status().to_string();
    EXPECT_TRUE(test::eventually([&] { return server.figures().connection_count == 0; }));
  }
}

}  // namespace
}  // namespace reverie
