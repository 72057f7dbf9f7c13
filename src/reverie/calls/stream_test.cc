// Streams: StreamCore alone, then StreamServer and StreamReader between two peers.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/calls/pending_call.h"
#include "reverie/calls/stream_core.h"
#include "reverie/calls/stream_reader.h"
#include "reverie/calls/stream_server.h"
#include "tests/support/eventually.h"
#include "tests/support/late_calls.h"
#include "tests/support/number_values.h"

namespace reverie {
namespace {

constexpr Duration kStreamPatience = std::chrono::seconds(60);

TimePoint in_a_minute() {
  return Clock::system().now() + kStreamPatience;
}

// --- Messages.

TEST(StreamWire, MessagesSurviveARoundTrip) {
  for (const StreamAsk ask : {StreamAsk::kNext, StreamAsk::kSend, StreamAsk::kFinish,
                              StreamAsk::kWatch, StreamAsk::kClose}) {
    StreamMessage message{7, ask, 3, {}};
    if (ask == StreamAsk::kSend) message.value = number_payload(42);
    const Result<StreamMessage> got = decode_stream_message(encode_stream_message(message));
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(got->stream, 7u);
    EXPECT_EQ(got->ask, ask);
    if (ask == StreamAsk::kNext) {
      EXPECT_EQ(got->number, 3u);
    }
    if (ask == StreamAsk::kSend) {
      EXPECT_EQ(number_of(got->value), 42);
    }
  }
  for (const bool is_end : {false, true}) {
    const auto got = decode_stream_answer(encode_stream_answer({is_end, number_payload(5)}));
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->is_end, is_end);
    EXPECT_EQ(number_of(got->value), 5);
  }
}

TEST(StreamWire, TruncatedMessagesAreRefusedAndDamagedOnesAreHarmless) {
  const Payload good = encode_stream_message({7, StreamAsk::kSend, 3, number_payload(42)});
  for (std::size_t size = 0; size < good.head.size(); ++size) {
    Payload cut;
    cut.head.assign(good.head.begin(), good.head.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode_stream_message(std::move(cut)).ok()) << size;
  }
  Random draws(std::uint64_t{3});
  for (int i = 0; i < 2000; ++i) {  // no message may end the process
    Payload damaged = good;
    damaged.head[draws.below(damaged.head.size())] ^= static_cast<std::byte>(draws.below(256));
    (void)decode_stream_message(std::move(damaged)).ok();
    Payload answer = number_payload(static_cast<std::int64_t>(draws.below(1000)));
    EXPECT_FALSE(decode_stream_answer(std::move(answer)).ok());
  }
}

// --- The core.

InboundId stream_call(std::uint64_t number) {
  return {1, number};
}

TEST(StreamCore, AValueAnswersTheCallThatWaitsForItsNumber) {
  StreamCore core;
  StreamCore::Answers answers;
  EXPECT_FALSE(core.has_room());
  core.want(1, stream_call(11), answers);
  EXPECT_FALSE(core.has_room()) << "value 0 comes first";
  core.want(0, stream_call(10), answers);
  EXPECT_TRUE(answers.empty());
  core.put(number_payload(100), answers);
  core.put(number_payload(101), answers);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].request, stream_call(10));
  EXPECT_EQ(answers[1].request, stream_call(11));
  EXPECT_FALSE(core.has_room());
}

TEST(StreamCore, TheEndIsSentWhenTheCallerAsksForIt) {
  StreamCore core;
  StreamCore::Answers answers;
  core.end(number_payload(9), answers);
  EXPECT_TRUE(answers.empty());
  EXPECT_TRUE(core.is_over());
  core.fail({StatusCode::kInternal, "", "too late", ""}, answers);
  core.want(0, stream_call(10), answers);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_FALSE(answers[0].error);
  const auto end = decode_stream_answer(answers[0].payload);
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->is_end);
  EXPECT_EQ(number_of(end->value), 9);
  core.want(1, stream_call(11), answers);
  ASSERT_EQ(answers.size(), 2u) << "what is asked for beyond the end is answered at once";
}

TEST(StreamCore, SentValuesAreTakenInOrderAndAnsweredWhenTaken) {
  StreamCore core;
  StreamCore::Answers answers;
  core.send(1, number_payload(21), stream_call(2), answers);
  EXPECT_FALSE(core.take(answers));
  core.send(0, number_payload(20), stream_call(1), answers);
  EXPECT_TRUE(answers.empty());
  EXPECT_EQ(number_of(*core.take(answers)), 20);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].request, stream_call(1));
  core.finish(2, stream_call(3), answers);
  EXPECT_FALSE(core.is_finished());
  EXPECT_EQ(number_of(*core.take(answers)), 21);
  EXPECT_TRUE(core.is_finished());
  EXPECT_FALSE(core.take(answers));
}

TEST(StreamCore, ClosingAnswersEveryCallOnce) {
  StreamCore core;
  StreamCore::Answers answers;
  core.want(0, stream_call(10), answers);
  core.want(1, stream_call(11), answers);
  core.send(0, number_payload(1), stream_call(12), answers);
  core.close(answers);
  core.close(answers);
  EXPECT_EQ(answers.size(), 3u);
  core.want(2, stream_call(13), answers);
  core.send(1, number_payload(1), stream_call(14), answers);
  EXPECT_EQ(answers.size(), 5u);
  EXPECT_FALSE(core.has_room());
  EXPECT_FALSE(core.take(answers));
}

// --- Between peers.

std::shared_ptr<Peer> peer_of_streams(const std::string& name) {
  Peer::Options options;
  options.name = name;
  options.uses_tcp = false;
  return std::move(Peer::make(options)).value();
}

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    const Result<std::string> address =
        server_->listen("unix:@reverie-" + std::to_string(random_seed()));
    EXPECT_TRUE(address.ok()) << address.status().to_string();
    EXPECT_TRUE(caller_->connect(*address).ok());
    // Puts the numbers below its argument, and ends with the argument.
    define("count", [this](const std::shared_ptr<ServedStream>& stream, Request request) {
      const std::int64_t until = number_of(request.message.payload);
      stream->set_changed([this, until, n = std::int64_t{0}](ServedStream& self) mutable {
        while (n < until && self.has_room()) {
          ++put_;
          EXPECT_TRUE(self.put(number_payload(n++)).ok());
        }
        if (n == until) self.end(number_payload(until));
        if (self.is_closed()) ++closed_;
      });
    });
    // Puts the running sums of the numbers that it is sent.
    define("sums", [](const std::shared_ptr<ServedStream>& stream, const Request&) {
      stream->set_changed([sum = std::int64_t{0}](ServedStream& self) mutable {
        while (self.has_room()) {
          const std::optional<Payload> value = self.take();
          if (!value) break;
          sum += number_of(*value);
          if (!self.put(number_payload(sum)).ok()) return;
        }
        if (self.is_finished()) self.end();
      });
    });
  }
  ~StreamTest() override {
    caller_->close();
    server_->close();
  }

  void define(const std::string& name, StreamServer::Begin begin) {
    const Status status = streams_->define(name, std::move(begin));
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  std::unique_ptr<StreamReader> open(const std::string& name, std::int64_t argument = 0,
                                     std::size_t window = 16) {
    auto stream = StreamReader::open(caller_, "server", name, number_payload(argument), {window});
    EXPECT_TRUE(stream.ok()) << stream.status().to_string();
    return stream.ok() ? std::move(stream).value() : nullptr;
  }

  std::atomic<int> put_{0};
  std::atomic<int> closed_{0};
  const std::shared_ptr<Peer> server_ = peer_of_streams("server");
  const std::shared_ptr<Peer> caller_ = peer_of_streams("caller");
  std::unique_ptr<StreamServer> streams_ = StreamServer::make(server_).value();
};

TEST_F(StreamTest, GivesEveryValueOnceInOrderAndThenTheResult) {
  const auto stream = open("count", 1000);
  for (std::int64_t i = 0; i < 1000; ++i) {
    const auto value = stream->next(in_a_minute());
    ASSERT_TRUE(value.ok()) << value.status().to_string();
    ASSERT_TRUE(value->has_value());
    EXPECT_EQ(number_of(**value), i);
  }
  EXPECT_FALSE(stream->result());
  const auto end = stream->next(in_a_minute());
  ASSERT_TRUE(end.ok()) << end.status().to_string();
  EXPECT_FALSE(end->has_value());
  ASSERT_TRUE(stream->result());
  EXPECT_EQ(number_of(*stream->result()), 1000);
  EXPECT_FALSE((*stream->next(in_a_minute())).has_value()) << "it stays at its end";
  EXPECT_TRUE(test::eventually([&] { return streams_->count() == 0; }));
}

TEST_F(StreamTest, ASlowReaderHoldsTheServerBack) {
  const auto stream = open("count", 1000, /*window=*/4);
  ASSERT_TRUE(test::eventually([&] { return put_ == 4; }));
  ASSERT_TRUE((*stream->next(in_a_minute())).has_value());
  ASSERT_TRUE(test::eventually([&] { return put_ == 5; }));
  EXPECT_LE(put_, 5);
}

TEST_F(StreamTest, ClosingReachesTheServer) {
  {
    const auto stream = open("count", 1000);
    ASSERT_TRUE((*stream->next(in_a_minute())).has_value());
  }
  EXPECT_TRUE(test::eventually([&] { return streams_->count() == 0 && closed_ == 1; }));
  const auto late_one = open("count", 1000);
  late_one->close();
  late_one->close();
  EXPECT_FALSE((*late_one->next(in_a_minute())).has_value());
}

// A server in Python may not have read the watch when it is withdrawn.
TEST_F(StreamTest, ClosingIsAlsoSentAsAMessageUnlessTheStreamHasEnded) {
  streams_.reset();
  std::atomic<bool> ends{false};
  std::atomic<int> closes{0};
  ASSERT_TRUE(server_
                  ->define("silent",
                           [this](const Request& request) {
                             server_->answer(request.id, number_payload(7));
                           })
                  .ok());
  ASSERT_TRUE(server_
                  ->define(std::string(kStreamsFunction),
                           [&](Request request) {
                             const auto message =
                                 decode_stream_message(std::move(request.message.payload));
                             ASSERT_TRUE(message.ok());
                             EXPECT_EQ(message->stream, 7u);
                             if (message->ask == StreamAsk::kClose) ++closes;
                             if (message->ask == StreamAsk::kNext && ends) {
                               server_->answer(request.id, encode_stream_answer({.is_end = true}));
                             }
                           })
                  .ok());
  const auto stream = open("silent");
  stream->close();
  stream->close();
  EXPECT_TRUE(test::eventually([&] { return closes == 1; }));
  ends = true;
  open("silent")->close();
  EXPECT_TRUE(test::eventually([&] { return closes == 2; }));
  const auto ended = open("silent");
  EXPECT_FALSE((*ended->next(in_a_minute())).has_value());
  ended->close();
  open("silent")->close();
  EXPECT_TRUE(test::eventually([&] { return closes >= 3; }));
  const auto last = open("silent");  // its answer comes after all that was sent before
  EXPECT_EQ(closes, 3);
  EXPECT_TRUE(server_->undefine(std::string(kStreamsFunction)));
}

TEST_F(StreamTest, AStreamWhoseCallerGaveUpIsClosed) {
  std::promise<void> blocked;
  std::promise<void> may_go_on;
  ASSERT_TRUE(server_
                  ->define("block",
                           [&](const Request& request) {  // runs where the server reads
                             blocked.set_value();
                             may_go_on.get_future().wait();
                             server_->answer(request.id, {});
                           })
                  .ok());
  open("count", 1)->close();
  ASSERT_TRUE(test::eventually([&] {
    const auto peers = caller_->peers();
    return peers.size() == 1 && peers[0].transport == "shared memory";
  }));
  ASSERT_TRUE(caller_->call("server", "block", {}, {}, [](const CallResult&) {}).ok());
  blocked.get_future().wait();
  StreamReader::Options hasty;
  hasty.deadline = Clock::system().now() + std::chrono::milliseconds(1);
  const auto given_up = StreamReader::open(caller_, "server", "count", number_payload(1000), hasty);
  EXPECT_EQ(given_up.status().code(), StatusCode::kDeadlineExceeded);
  may_go_on.set_value();
  EXPECT_TRUE(test::eventually([&] { return streams_->count() == 0 && closed_ == 2; }));
}

// The caller of the first one is lost between the stream's number and the call that watches it.
TEST_F(StreamTest, AStreamThatIsNotWatchedInTimeIsClosedOnceAnotherOneBegins) {
  ManualClock clock;
  streams_.reset();
  streams_ = StreamServer::make(server_, clock).value();
  define("endless", [this](const std::shared_ptr<ServedStream>& stream, const Request&) {
    stream->set_changed([this](ServedStream& self) {
      if (self.is_closed()) ++closed_;
    });
  });
  const CallResult unwatched =
      caller_->sync("server", "endless", number_payload(0), {.deadline = in_a_minute()});
  ASSERT_EQ(unwatched.kind, CallResult::Kind::kAnswer);
  clock.advance(StreamServer::kWatchTime);
  const auto watched = open("endless");
  ASSERT_TRUE(test::eventually([&] { return streams_->count() == 2; }));
  clock.advance(StreamServer::kWatchTime + std::chrono::seconds(1));
  const auto next = open("endless");
  EXPECT_TRUE(test::eventually([&] { return streams_->count() == 2 && closed_ == 1; }));
  // Its caller, if it is only late, does not take it for a stream without values.
  const Payload late = encode_stream_message(
      {static_cast<std::uint64_t>(number_of(unwatched.payload)), StreamAsk::kNext, 0, {}});
  const CallResult told =
      caller_->sync("server", std::string(kStreamsFunction), late, {.deadline = in_a_minute()});
  EXPECT_EQ(told.kind, CallResult::Kind::kRemoteError);
}

TEST_F(StreamTest, ClosingTheCallerEndsItsStreams) {
  const auto stream = open("count", 1000);
  ASSERT_TRUE((*stream->next(in_a_minute())).has_value());
  caller_->close();
  EXPECT_TRUE(test::eventually([&] { return streams_->count() == 0; }));
  Result<std::optional<Payload>> value = stream->next(in_a_minute());
  while (value.ok() && value->has_value()) value = stream->next(in_a_minute());
  EXPECT_FALSE(value.ok());
}

TEST_F(StreamTest, ValuesGoBothWaysAndASenderWaitsForRoom) {
  const auto stream = open("sums", 0, /*window=*/3);
  std::thread sender([&] {
    for (std::int64_t i = 1; i <= 500; ++i) {
      const Status sent = stream->send(number_payload(i), in_a_minute());
      ASSERT_TRUE(sent.ok()) << sent.to_string();
    }
    EXPECT_TRUE(stream->finish(in_a_minute()).ok());
    EXPECT_EQ(stream->send(number_payload(1), in_a_minute()).code(),
              StatusCode::kFailedPrecondition);
  });
  std::int64_t sum = 0;
  for (std::int64_t i = 1; i <= 500; ++i) {
    const auto value = stream->next(in_a_minute());
    ASSERT_TRUE(value.ok() && value->has_value()) << value.status().to_string();
    EXPECT_EQ(number_of(**value), sum += i);
  }
  EXPECT_FALSE((*stream->next(in_a_minute())).has_value());
  sender.join();
}

TEST_F(StreamTest, AFinishThatCouldNotBeSentMayBeTriedAgain) {
  Peer::Options options;
  options.name = "busy";
  options.uses_tcp = false;
  options.calls_max = 3;
  const std::shared_ptr<Peer> busy = Peer::make(options).value();
  ASSERT_TRUE(busy->connect(server_->addresses().front()).ok());
  ASSERT_TRUE(server_->define("keep", [](const Request&) {}).ok());
  // It has two calls: one for its next value, and one that tells the server of its end.
  const auto stream = StreamReader::open(busy, "server", "sums", number_payload(0), {1}).value();
  const auto kept = PendingCall::begin(busy, "server", "keep", {}, {}).value();
  EXPECT_EQ(stream->finish(in_a_minute()).code(), StatusCode::kResourceExhausted);
  kept->cancel();
  ASSERT_TRUE(stream->finish(in_a_minute()).ok());
  const auto end = stream->next(in_a_minute());
  ASSERT_TRUE(end.ok()) << end.status().to_string();
  EXPECT_FALSE(end->has_value());
}

TEST_F(StreamTest, AFailureReachesTheReaderAfterTheValuesBeforeIt) {
  define("fails", [](const std::shared_ptr<ServedStream>& stream, const Request&) {
    stream->set_changed([n = 0](ServedStream& self) mutable {
      for (; n < 2 && self.has_room(); ++n) EXPECT_TRUE(self.put(number_payload(n)).ok());
      if (n == 2) self.fail({StatusCode::kInternal, "Broken", "no more of them", ""});
    });
  });
  const auto stream = open("fails");
  EXPECT_EQ(number_of(**stream->next(in_a_minute())), 0);
  EXPECT_EQ(number_of(**stream->next(in_a_minute())), 1);
  const auto failed = stream->next(in_a_minute());
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.status().message().find("no more of them"), std::string::npos);
}

TEST_F(StreamTest, WhatACallbackHoldsMayUseTheStreamWhenAnotherCallbackReplacesIt) {
  struct LastValue {
    std::shared_ptr<ServedStream> stream;
    ~LastValue() { EXPECT_TRUE(stream->put(number_payload(7)).ok()); }
  };
  std::shared_ptr<ServedStream> served;
  define("later",
         [&](const std::shared_ptr<ServedStream>& stream, const Request&) { served = stream; });
  const auto stream = open("later");
  EXPECT_EQ(stream->next(Clock::system().now()).status().code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(test::eventually([&] { return served->has_room(); }));
  served->set_changed([last = std::shared_ptr<LastValue>(new LastValue{served})](ServedStream&) {});
  served->set_changed([](ServedStream&) {});
  EXPECT_EQ(number_of(**stream->next(in_a_minute())), 7);
}

TEST_F(StreamTest, ACallbackThatRunsWhileItsStreamIsClosedIsToldOfIt) {
  std::shared_ptr<ServedStream> served;
  define("later",
         [&](const std::shared_ptr<ServedStream>& stream, const Request&) { served = stream; });
  const auto stream = open("later");
  std::atomic<bool> is_in_it{false};
  std::atomic<int> told{0};
  std::thread server([&] {
    served->set_changed([&](ServedStream& self) {
      if (++told > 1) return;
      is_in_it = true;
      EXPECT_TRUE(test::eventually([&] { return self.is_closed(); }));
    });
  });
  EXPECT_TRUE(test::eventually([&] { return is_in_it.load(); }));
  stream->close();
  server.join();
  EXPECT_TRUE(test::eventually([&] { return told == 2; }));
}

TEST_F(StreamTest, AWaitEndsAtItsDeadlineAndTheStreamContinues) {
  std::shared_ptr<ServedStream> served;
  define("later",
         [&](const std::shared_ptr<ServedStream>& stream, const Request&) { served = stream; });
  const auto stream = open("later");
  EXPECT_EQ(stream->next(Clock::system().now()).status().code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(test::eventually([&] { return served->has_room(); }));
  EXPECT_TRUE(served->put(number_payload(3)).ok());
  EXPECT_EQ(number_of(**stream->next(in_a_minute())), 3);
}

TEST_F(StreamTest, ClosingEndsTheWaitOfAnotherThread) {
  define("never", [](const std::shared_ptr<ServedStream>&, const Request&) {});
  const auto stream = open("never");
  std::thread reader([&] {
    Status status;
    do {  // while the other thread looks
      status = stream->next(in_a_minute()).status();
    } while (status.code() == StatusCode::kFailedPrecondition);
    // It may be about to wait when the stream is closed; then it finds an ended stream.
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled) << status.to_string();
  });
  EXPECT_TRUE(test::eventually([&] {
    return stream->next(Clock::system().now()).status().code() == StatusCode::kFailedPrecondition;
  }));
  stream->close();
  reader.join();
}

TEST_F(StreamTest, InvalidUsesAreRefused) {
  EXPECT_EQ(StreamServer::make(server_).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(streams_->define("count", nullptr).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(StreamReader::open(caller_, "server", "count", {}, {0}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(StreamReader::open(caller_, "server", "nothing", {}, {}).status().code(),
            StatusCode::kNotFound);
  ASSERT_TRUE(
      server_->define("plain", [this](Request request) { server_->answer(request.id, {}); }).ok());
  EXPECT_EQ(StreamReader::open(caller_, "server", "plain", {}, {}).status().code(),
            StatusCode::kDataLoss);
  const auto stream = open("count", 100, /*window=*/1);
  ASSERT_TRUE((*stream->next(in_a_minute())).has_value());
}

TEST_F(StreamTest, TheIntegerOfAFunctionIsNoStreamsNumber) {
  const auto stream = open("count", 100);  // one that it could be taken for
  ASSERT_TRUE(
      server_
          ->define("integer",
                   [this](Request request) { server_->answer(request.id, number_payload(1)); })
          .ok());
  auto other = StreamReader::open(caller_, "server", "integer", {}, {});
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  const auto value = (*other)->next(in_a_minute());
  EXPECT_EQ(value.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(value.status().message().find("1 is no stream's number"), std::string::npos)
      << value.status().to_string();
}

TEST_F(StreamTest, TheServerMayEndBeforeItsReaders) {
  const auto stream = open("count", 1000);
  ASSERT_TRUE((*stream->next(in_a_minute())).has_value());
  streams_.reset();
  Result<std::optional<Payload>> value = stream->next(in_a_minute());
  while (value.ok() && value->has_value()) value = stream->next(in_a_minute());
  EXPECT_EQ(StreamReader::open(caller_, "server", "count", number_payload(1), {}).status().code(),
            StatusCode::kNotFound);
}

// The handler of such a call was looked up before the server undefined it, and runs afterwards.
TEST_F(StreamTest, CallsThatAreHandledWhileTheServerEndsAreRefused) {
  const auto end = [&] { streams_.reset(); };
  for (const auto& call : test::late_calls(*server_, caller_, end, "count", number_payload(1))) {
    EXPECT_EQ(call->result().status.code(), StatusCode::kNotFound);
  }
}

TEST_F(StreamTest, AServerAndItsPeerMayEndWhileAStreamBegins) {
  std::shared_ptr<Peer> peer = peer_of_streams("another");
  const Result<std::string> address =
      peer->listen("unix:@reverie-" + std::to_string(random_seed()));
  ASSERT_TRUE(address.ok()) << address.status().to_string();
  ASSERT_TRUE(caller_->connect(*address).ok());
  std::unique_ptr<StreamServer> streams = StreamServer::make(peer).value();
  std::promise<void> has_begun;
  std::promise<void> may_go_on;
  const auto begin = [&](const std::shared_ptr<ServedStream>&, const Request&) {
    has_begun.set_value();
    may_go_on.get_future().wait();
  };
  ASSERT_TRUE(streams->define("slow", begin).ok());
  ASSERT_TRUE(caller_->call("another", "slow", {}, {}, [](const CallResult&) {}).ok());
  has_begun.get_future().wait();
  // The last share of the peer must not end on its own thread, where the stream begins.
  auto ended = std::async(std::launch::async, [&] {
    streams.reset();
    peer.reset();
  });
  EXPECT_EQ(ended.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  may_go_on.set_value();
  ended.get();
}

}  // namespace
}  // namespace reverie
