// The server with the client, over sockets and pairs.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/grpc/grpc_blocking.h"
#include "reverie/grpc/grpc_client.h"
#include "reverie/grpc/grpc_server.h"
#include "tests/scale.h"
#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/grpc_methods.h"

namespace reverie {
namespace {

using test::add_methods;
using test::pattern_text;
using test::text_of;

GrpcCallOptions within(double s) {
  GrpcCallOptions options;
  options.deadline = Clock::system().now() + seconds(s);
  return options;
}

// Events that another thread reports.
class Events {
 public:
  void add(std::string event) {
    MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  std::string wait_for(std::size_t index) {
    const TimePoint until = Clock::system().now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (events_.size() <= index) {
      if (Clock::system().now() >= until) return "nothing in 60 s";
      changed_.wait_for(mutex_, std::chrono::seconds(1));
    }
    return events_[index];
  }
  std::size_t count() {
    MutexLock lock(mutex_);
    return events_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> events_ REVERIE_GUARDED_BY(mutex_);
};

// A server with the test methods, and clients of it.
class Grpc : public ::testing::Test {
 protected:
  explicit Grpc(GrpcServerOptions options = {}) { open_server(std::move(options)); }

  void open_server(GrpcServerOptions options, const std::string& address = "localhost:0") {
    server_.reset();
    server_ = std::make_unique<GrpcServer>(threads_, std::move(options));
    add_methods(*server_, [this](const Status& why) { ended_.add(why.to_string()); });
    const auto addresses = server_->listen({address});
    ASSERT_TRUE(addresses.ok()) << addresses.status().to_string();
    address_ = addresses->front();
  }
  std::unique_ptr<GrpcClient> open(GrpcClientOptions options = {}) {
    options.backoff_min = std::chrono::milliseconds(1);
    return GrpcClient::open(threads_, address_, std::move(options)).value();
  }
  static std::string ask(GrpcClient& client, std::string_view path, const std::string& text,
                         GrpcCallOptions options = within(20)) {
    const auto response = unary_and_wait(client, path, GrpcPayload::of(text), std::move(options));
    return response.ok() ? text_of(**response) : response.status().to_string();
  }

  Events ended_;  // how each call of /t/Never ended
  IoThreads threads_{2};
  std::unique_ptr<GrpcServer> server_;
  std::string address_;
};

TEST_F(Grpc, AUnaryCallIsAnswered) {
  const auto client = open();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(*client, "/t/Upper", "hello"), "HELLO");
}

TEST_F(Grpc, AStatusArrivesWithItsText) {
  const auto client = open();
  EXPECT_EQ(ask(*client, "/t/Fail", "5 nö\n%"), "NOT_FOUND: nö\n%");
  for (const int code : {1, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16}) {
    const std::string text = ask(*client, "/t/Fail", format("{} x", code));
    EXPECT_EQ(text, Status(static_cast<StatusCode>(code), "x").to_string());
  }
  EXPECT_EQ(ask(*client, "/t/Nothing", ""),
            "UNIMPLEMENTED: method '/t/Nothing' is not served here");
}

TEST_F(Grpc, ALongStatusTextIsCutToWhatThePeerAccepts) {
  const auto client = open();
  const std::string text = ask(*client, "/t/Fail", "3 " + std::string(100'000, 'x'));
  EXPECT_EQ(text.substr(0, 20), "INVALID_ARGUMENT: xx");
  EXPECT_GT(text.size(), 7000u);
  EXPECT_LT(text.size(), 8192u);
}

TEST_F(Grpc, MessagesOfEverySizeAreEchoedUnchanged) {
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Echo", within(60));
  for (const std::size_t size :
       {0u, 1u, 5u, 1024u, 1025u, 16384u, 400'000u, 4'194'304u, 16'777'216u}) {
    const std::string text = pattern_text(size);
    ASSERT_TRUE(stream.write(GrpcPayload::of(text)).ok());
    const auto message = stream.read();
    ASSERT_TRUE(message) << size << " " << stream.status().to_string();
    EXPECT_TRUE(text_of(**message) == text) << size;
  }
  stream.half_close();
  EXPECT_FALSE(stream.read());
  EXPECT_TRUE(stream.status().ok()) << stream.status().to_string();
}

TEST_F(Grpc, PiecesOfAMessageArriveAsOneMessage) {
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Echo", within(20));
  GrpcPayload payload;
  std::string whole;
  for (int i = 0; i < 700; ++i) {  // more pieces than one system call takes, small and large
    auto piece = std::make_shared<const std::string>(
        pattern_text(static_cast<std::size_t>(i % 5 == 0 ? 3000 + i : i % 40)));
    whole += *piece;
    payload.append(std::as_bytes(std::span(*piece)), piece);
  }
  ASSERT_TRUE(stream.write(std::move(payload)).ok());
  const auto message = stream.read();
  ASSERT_TRUE(message);
  EXPECT_TRUE(text_of(**message) == whole);
}

TEST_F(Grpc, EveryKindOfStreamIsServed) {
  const auto client = open();
  GrpcBlockingStream counting(*client, "/t/Count", within(20));
  ASSERT_TRUE(counting.write(GrpcPayload::of("1000 3000")).ok());
  counting.half_close();
  std::size_t count = 0;
  while (const auto message = counting.read()) {
    EXPECT_TRUE(text_of(**message) == pattern_text(3000));
    ++count;
  }
  EXPECT_EQ(count, 1000u);
  EXPECT_TRUE(counting.status().ok());

  GrpcBlockingStream summing(*client, "/t/Sum", within(20));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(summing.write(GrpcPayload::of("four")).ok());
  summing.half_close();
  EXPECT_EQ(text_of(**summing.read()), "1000 4000");
  EXPECT_TRUE(summing.status().ok());
}

TEST_F(Grpc, ACallMayEndWithoutAMessageInEitherDirection) {
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Echo", within(20));
  stream.half_close();
  EXPECT_FALSE(stream.read());
  EXPECT_TRUE(stream.status().ok()) << stream.status().to_string();
}

TEST_F(Grpc, AStatusArrivesAfterLargeMessagesThatNobodyRead) {
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Count", within(20));
  ASSERT_TRUE(stream.write(GrpcPayload::of("4 5000000")).ok());
  stream.half_close();
  ASSERT_TRUE(stream.read());
  EXPECT_TRUE(stream.status().ok()) << stream.status().to_string();
  EXPECT_FALSE(stream.read());
}

TEST_F(Grpc, MetadataAndTheDeadlineReachTheMethod) {
  const auto client = open();
  GrpcCallOptions options;
  options.metadata = {{"x-text", "a b"}, {"x-bytes-bin", std::string("\0\xff", 2)}};
  const std::string info = ask(*client, "/t/Info", "", options);
  EXPECT_NE(info.find("path /t/Info\nlocal true\n"), std::string::npos) << info;
  EXPECT_NE(info.find("deadline false\n"), std::string::npos) << info;
  EXPECT_NE(info.find("x-text: a b\n"), std::string::npos) << info;
  EXPECT_NE(info.find(std::string("x-bytes-bin: \0\xff\n", 16)), std::string::npos) << info;
  EXPECT_NE(ask(*client, "/t/Info", "").find("deadline true"), std::string::npos);
}

TEST_F(Grpc, MetadataThatHttpCannotCarryIsRefused) {
  const auto client = open();
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"Upper", "x"},       {"", "x"},    {":path", "x"},
      {"grpc-status", "0"}, {"a b", "x"}, {"text", "\n"}};
  for (const auto& pair : refused) {
    GrpcCallOptions options;
    options.metadata = {pair};
    EXPECT_EQ(ask(*client, "/t/Info", "", options).substr(0, 16), "INVALID_ARGUMENT") << pair.first;
  }
}

TEST_F(Grpc, HeadersBeyondTheBoundAreRefusedAndTheConnectionSurvives) {
  const auto client = open();
  GrpcCallOptions options;
  options.metadata = {{"x-large", std::string(20'000, 'x')}};
  EXPECT_EQ(ask(*client, "/t/Info", "", options).substr(0, 18), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(ask(*client, "/t/Upper", "a"), "A");
  EXPECT_EQ(server_->figures().connection_count, 1u);
}

TEST_F(Grpc, ADeadlineEndsTheCallOnBothEnds) {
  const auto client = open();
  // Repeated if the deadline passed before the call was sent, and the server never got it.
  ASSERT_TRUE(test::eventually([&] {
    EXPECT_EQ(ask(*client, "/t/Never", "", within(0.02)), "DEADLINE_EXCEEDED: Deadline Exceeded");
    return ended_.count() > 0;
  }));
  const std::string ended = ended_.wait_for(0);
  EXPECT_TRUE(ended.starts_with("DEADLINE_EXCEEDED") || ended.starts_with("CANCELLED")) << ended;
  EXPECT_EQ(ask(*client, "/t/Upper", "", within(-1)), "DEADLINE_EXCEEDED: Deadline Exceeded");
}

TEST_F(Grpc, ACancelEndsTheCallOnBothEnds) {
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Never");
  ASSERT_TRUE(stream.write(GrpcPayload::of("x")).ok());
  ASSERT_TRUE(test::eventually([&] { return server_->figures().call_count > 0; }));
  std::jthread canceller([&] { stream.cancel(); });
  EXPECT_FALSE(stream.read());
  EXPECT_EQ(stream.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(ended_.wait_for(0), "CANCELLED: the caller cancelled the call");
  EXPECT_EQ(stream.write(GrpcPayload::of("late")).code(), StatusCode::kCancelled);
}

TEST_F(Grpc, AWaitCanBeInterrupted) {
  const auto client = open();
  const auto response = unary_and_wait(*client, "/t/Never", GrpcPayload(), {}, [] { return true; });
  EXPECT_EQ(response.status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(ended_.wait_for(0).starts_with("CANCELLED"));
}

TEST_F(Grpc, ManyCallsShareOneConnection) {
  const auto client = open();
  std::vector<std::unique_ptr<GrpcBlockingStream>> streams;
  for (int i = 0; i < 1000; ++i) {
    streams.push_back(std::make_unique<GrpcBlockingStream>(*client, "/t/Echo", within(60)));
  }
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      ASSERT_TRUE(streams[i]->write(GrpcPayload::of(format("{}/{}", i, round))).ok());
    }
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const auto message = streams[i]->read();
      ASSERT_TRUE(message);
      EXPECT_EQ(text_of(**message), format("{}/{}", i, round));
    }
  }
  EXPECT_EQ(server_->figures().connection_count, 1u);
  EXPECT_EQ(server_->figures().call_count, 1000u);
}

TEST_F(Grpc, ThreadsThatCallCancelAndWriteConcurrentlyLoseNothing) {
  const auto client = open();
  std::atomic<int> answered{0};
  const auto count = static_cast<int>(scaled(100, 2000));
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < count; ++i) {
          if (ask(*client, "/t/Upper", "abc", within(60)) == "ABC") ++answered;
          GrpcBlockingStream stream(*client, "/t/Count", within(60));
          (void)stream.write(GrpcPayload::of("100 5000"));
          for (int m = 0; m < (i + t) % 4; ++m) EXPECT_TRUE(stream.read());
        }  // the stream's destructor cancels the call
      });
    }
  }
  EXPECT_EQ(answered, 4 * count);
}

// A real client ends every sample call with a reset: thousands of resets are not an attack.
TEST_F(Grpc, ThousandsOfResetsDoNotBreakTheConnection) {
  const auto client = open();
  GrpcBlockingStream beside(*client, "/t/Echo", within(100));
  for (int i = 0; i < 6000; ++i) {
    GrpcBlockingStream stream(*client, "/t/Count", {});
    ASSERT_TRUE(stream.write(GrpcPayload::of("1000 10")).ok());
    if (i % 16 == 0) {
      ASSERT_TRUE(stream.read());
    }
  }
  ASSERT_TRUE(beside.write(GrpcPayload::of("still here")).ok());
  EXPECT_EQ(text_of(**beside.read()), "still here");
  EXPECT_EQ(server_->figures().connection_count, 1u);
}

TEST_F(Grpc, AWriterIsHeldBackByAMethodThatPauses) {
  class Paused final : public GrpcServerEvents {
   public:
    Paused(std::shared_ptr<GrpcServerCall> call, std::atomic<std::size_t>& count)
        : call_(std::move(call)), count_(count) {
      call_->pause_reading();
    }
    void on_message(Ref<GrpcMessage>) override { ++count_; }
    void on_half_close() override { call_->finish({}); }
    void on_end(const Status&) override {}

   private:
    std::shared_ptr<GrpcServerCall> call_;
    std::atomic<std::size_t>& count_;
  };
  GrpcServerOptions options;
  options.limits.call_window_bytes = 100'000;
  open_server(options);
  std::atomic<std::size_t> count{0};
  GrpcServer server(threads_, options);
  server.add_method("/t/Paused", [&](std::shared_ptr<GrpcServerCall> call) {
    return std::make_shared<Paused>(std::move(call), count);
  });
  address_ = server.listen({"localhost:0"})->front();
  const auto client = open();
  class Quiet final : public GrpcClientEvents {
   public:
    void on_message(Ref<GrpcMessage>) override {}
    void on_room() override { room.add("room"); }
    void on_end(const Status& status) override { end.add(status.to_string()); }
    Events room;
    Events end;
  };
  const auto events = std::make_shared<Quiet>();
  const auto call = client->start("/t/Paused", within(60), events);
  constexpr std::size_t kMessages = 3000;
  for (std::size_t i = 0; i < kMessages; ++i) call->write(GrpcPayload::of(std::string(1000, 'x')));
  call->half_close();
  EXPECT_FALSE(call->has_room());
  EXPECT_EQ(ask(*client, "/t/Paused", "", within(0.05)).substr(0, 17), "DEADLINE_EXCEEDED");
  // The client sent one window, and no more.
  EXPECT_EQ(count, 0u);
  EXPECT_GE(call->queued_bytes(), kMessages * 1005 - 100'000);
  server.stop();
  EXPECT_TRUE(events->end.wait_for(0).starts_with("UNAVAILABLE")) << events->end.wait_for(0);
}

TEST_F(Grpc, APausedMethodContinuesWhereItStopped) {
  class EveryOther final : public GrpcServerEvents {
   public:
    explicit EveryOther(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
    ~EveryOther() override = default;
    void on_message(Ref<GrpcMessage> message) override {
      sum_ += message->bytes().size();
      call_->pause_reading();
      // Another thread resumes it.
      std::thread([call = call_] { call->resume_reading(); }).detach();
    }
    void on_half_close() override {
      call_->write(GrpcPayload::of(format("{}", sum_)));
      call_->finish({});
    }
    void on_end(const Status&) override {}

   private:
    std::shared_ptr<GrpcServerCall> call_;
    std::size_t sum_ = 0;
  };
  GrpcServerOptions options;
  options.limits.call_window_bytes = 65'535;
  GrpcServer server(threads_, options);
  server.add_method("/t/Every", [&](std::shared_ptr<GrpcServerCall> call) {
    return std::make_shared<EveryOther>(std::move(call));
  });
  address_ = server.listen({"localhost:0"})->front();
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Every", within(60));
  std::size_t sum = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(stream.write(GrpcPayload::of(std::string(i * 13, 'x'))).ok());
    sum += i * 13;
  }
  stream.half_close();
  const auto message = stream.read();
  ASSERT_TRUE(message) << stream.status().to_string();
  EXPECT_EQ(text_of(**message), format("{}", sum));
}

TEST_F(Grpc, AMethodGetsLongContentsSeparatelyIfItAsksForThem) {
  class Apart final : public GrpcServerEvents {
   public:
    Apart(std::shared_ptr<GrpcServerCall> call, std::uint32_t field)
        : call_(std::move(call)), field_(field) {}
    std::uint32_t apart_field() const override { return field_; }
    void on_message(Ref<GrpcMessage> message) override {
      std::string said =
          format("{} left of {}", message->bytes().size(), message->received_bytes());
      for (const auto& part : message->take_parts()) {
        const std::string text = text_of(*part.content);
        said +=
            format("; at {} {} {}", part.at, text.size(), text == std::string(text.size(), 'x'));
      }
      call_->write(GrpcPayload::of(std::move(said)));
    }
    void on_half_close() override { call_->finish({}); }
    void on_end(const Status&) override {}

   private:
    const std::shared_ptr<GrpcServerCall> call_;
    const std::uint32_t field_;
  };
  GrpcServer server(threads_, {});
  for (const std::uint32_t field : {0u, 1u, 2u}) {
    server.add_method(format("/t/Apart{}", field), [field](std::shared_ptr<GrpcServerCall> call) {
      return std::make_shared<Apart>(std::move(call), field);
    });
  }
  address_ = server.listen({"localhost:0"})->front();
  const auto client = open();
  // "\x0a" and "\x12" are the tags of fields 1 and 2; the lengths take three bytes.
  std::string message;
  for (const char tag : {'\x0a', '\x12', '\x0a'}) {
    message += tag + std::string("\xc0\x84\x3d") + std::string(1'000'000, 'x');
  }
  EXPECT_EQ(ask(*client, "/t/Apart0", message), "3000012 left of 3000012");
  EXPECT_EQ(ask(*client, "/t/Apart1", message),
            "1000004 left of 3000012; at 0 1000000 true; at 1000004 1000000 true");
  EXPECT_EQ(ask(*client, "/t/Apart2", message), "2000008 left of 3000012; at 1000004 1000000 true");
  EXPECT_EQ(ask(*client, "/t/Apart1", "no fields"), "9 left of 9");
}

// The contents are about as long as those that are read directly into their memory, and longer.
TEST_F(Grpc, LongContentsOfAllMessagesArriveUnchanged) {
  class Echo final : public GrpcServerEvents {
   public:
    explicit Echo(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
    std::uint32_t apart_field() const override { return 1; }
    void on_message(Ref<GrpcMessage> message) override {
      std::string all;
      std::size_t at = 0;
      const std::string left = text_of(*message);
      for (const auto& part : message->take_parts()) {
        all += left.substr(at, part.at - at) + text_of(*part.content);
        at = part.at;
      }
      call_->write(GrpcPayload::of(all + left.substr(at)));
    }
    void on_half_close() override { call_->finish({}); }
    void on_end(const Status&) override {}

   private:
    const std::shared_ptr<GrpcServerCall> call_;
  };
  GrpcServer server(threads_, {});
  server.add_method("/t/Echo", [](std::shared_ptr<GrpcServerCall> call) {
    return std::make_shared<Echo>(std::move(call));
  });
  address_ = server.listen({"localhost:0"})->front();
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Echo", within(60));
  std::mt19937 rng(3);
  const auto text = [&](std::size_t size) {
    std::string made(size, '\0');
    for (char& c : made) c = static_cast<char>(rng());
    return made;
  };
  std::vector<std::string> wanted;
  for (int i = 0; i < 40; ++i) {
    std::string message;
    std::string contents;
    for (std::size_t parts = rng() % 8; parts > 0; --parts) {
      const std::size_t size = 16'384 + rng() % 65'536;  // its length takes three bytes
      const std::string content = text(size);
      message += std::string("\x0a") + static_cast<char>(0x80 | (size & 0x7f)) +
                 static_cast<char>(0x80 | (size >> 7 & 0x7f)) + static_cast<char>(size >> 14);
      message += content;
      contents += content;
    }
    const std::string tail = "\x12\x64" + text(100);
    ASSERT_TRUE(stream.write(GrpcPayload::of(message + tail)).ok());
    wanted.push_back(contents + tail);
  }
  stream.half_close();
  for (const std::string& expected : wanted) {
    const auto message = stream.read();
    ASSERT_TRUE(message) << stream.status().to_string();
    EXPECT_TRUE(text_of(**message) == expected);
  }
}

// One call is not read, while another one on the same connection is.
TEST_F(Grpc, ASlowReaderSlowsOnlyItself) {
  GrpcClientOptions options;
  options.limits.call_window_bytes = 65'535;
  const auto client = open(options);
  GrpcBlockingStream slow(*client, "/t/Count", within(60));
  ASSERT_TRUE(slow.write(GrpcPayload::of("100000 100000")).ok());  // asks for 10 GB
  ASSERT_TRUE(slow.read());
  GrpcBlockingStream quick(*client, "/t/Count", within(60));
  ASSERT_TRUE(quick.write(GrpcPayload::of("500 100000")).ok());
  std::size_t count = 0;
  while (quick.read()) ++count;
  EXPECT_EQ(count, 500u);
  // For the slow call the server sent no more than the client's windows and socket buffers hold.
  EXPECT_LT(server_->figures().bytes_sent, 500u * 100'000u + (std::size_t{32} << 20));
}

// A call waits for room to draw, draws when its own queue is sent, and then waits for room to send.
TEST_F(Grpc, ACallMayWaitForRoomToSendWhileItWaitsForRoomToDraw) {
  constexpr std::size_t kBytesMax = std::size_t{4} << 20;
  class Draws final : public GrpcServerEvents {
   public:
    Draws(std::shared_ptr<GrpcServerCall> call, Events& waits)
        : call_(std::move(call)), waits_(waits) {}
    void on_message(Ref<GrpcMessage>) override {
      call_->write(GrpcPayload::of(std::string(200'000, 'x')));
      on_room();
    }
    void on_room() override {
      if (!has_drawn_) {
        if (!call_->has_room_to_draw()) {
          waits_.add("to draw");
          return;
        }
        has_drawn_ = true;
        call_->hold(kBytesMax);
      }
      if (!call_->has_room()) {
        waits_.add("to send");
        return;
      }
      call_->release(kBytesMax);
      call_->write(GrpcPayload::of("drawn"));
      call_->finish({});
    }
    void on_half_close() override {}
    void on_end(const Status&) override {}

   private:
    const std::shared_ptr<GrpcServerCall> call_;
    Events& waits_;
    bool has_drawn_ = false;
  };
  class Quiet final : public GrpcClientEvents {
   public:
    void on_message(Ref<GrpcMessage>) override {}
    void on_end(const Status& status) override { end.add(status.to_string()); }
    Events end;
  };
  Events waits;
  GrpcServerOptions options;
  options.limits.connection_bytes_max = kBytesMax;
  GrpcServer server(threads_, options);
  add_methods(server);
  server.add_method("/t/Draws", [&](std::shared_ptr<GrpcServerCall> call) {
    return std::make_shared<Draws>(std::move(call), waits);
  });
  address_ = server.listen({"localhost:0"})->front();
  const auto client = open();

  // Another call's message is queued but for a window's bytes: not quite all that the connection
  // may hold.
  const auto unread = std::make_shared<Quiet>();
  const auto other = client->start("/t/Count", within(60), unread);
  other->pause_reading();
  other->write(GrpcPayload::of("1 4300000"));
  const std::size_t window_bytes = GrpcLimits().call_window_bytes;
  ASSERT_TRUE(test::eventually([&] { return server.figures().bytes_sent >= window_bytes; }));

  GrpcBlockingStream stream(*client, "/t/Draws", within(20));
  ASSERT_TRUE(stream.write(GrpcPayload::of("x")).ok());
  EXPECT_EQ(waits.wait_for(0), "to draw");
  EXPECT_EQ(waits.wait_for(1), "to send");
  other->resume_reading();
  EXPECT_EQ(unread->end.wait_for(0), "OK");
  ASSERT_TRUE(stream.read());
  const auto drawn = stream.read();
  ASSERT_TRUE(drawn) << stream.status().to_string();
  EXPECT_EQ(text_of(**drawn), "drawn");
}

TEST_F(Grpc, AMethodThatIgnoresFlowControlIsEndedAtTheBound) {
  GrpcServerOptions server_options;
  server_options.limits.queued_bytes_max = 8 << 20;
  open_server(server_options);
  GrpcClientOptions options;
  options.limits.call_window_bytes = 65'535;
  const auto client = open(options);
  class Stuck final : public GrpcClientEvents {
   public:
    void on_message(Ref<GrpcMessage>) override {
      if (auto call = kept.lock()) call->pause_reading();
    }
    void on_end(const Status& status) override { end.add(status.to_string()); }
    std::weak_ptr<GrpcClientCall> kept;
    Events end;
  };
  const auto events = std::make_shared<Stuck>();
  const auto call = client->start("/t/Flood", within(60), events);
  events->kept = call;
  call->write(GrpcPayload());
  call->half_close();
  const std::string end = events->end.wait_for(0);
  EXPECT_TRUE(end.starts_with("RESOURCE_EXHAUSTED")) << end;
  EXPECT_EQ(ask(*client, "/t/Upper", "a"), "A");
}

TEST_F(Grpc, AMessageBeyondTheBoundIsRefusedAndTheConnectionSurvives) {
  GrpcServerOptions options;
  options.limits.message_bytes_max = 1000;
  open_server(options);
  const auto client = open();
  EXPECT_EQ(ask(*client, "/t/Upper", std::string(1000, 'a')), std::string(1000, 'A'));
  const std::string refusal = ask(*client, "/t/Upper", std::string(1001, 'a'));
  EXPECT_TRUE(refusal.starts_with("RESOURCE_EXHAUSTED: a message of 1001 bytes")) << refusal;
  EXPECT_EQ(server_->figures().connection_count, 1u);

  GrpcClientOptions small;
  small.limits.message_bytes_max = 100;
  const auto other = open(small);
  EXPECT_EQ(ask(*other, "/t/Upper", std::string(200, 'a')).substr(0, 18), "RESOURCE_EXHAUSTED");
  EXPECT_EQ(ask(*other, "/t/Upper", "a"), "A");
}

TEST_F(Grpc, AStopLetsCallsFinishWithinTheGracePeriod) {
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Echo", within(60));
  ASSERT_TRUE(stream.write(GrpcPayload::of("a")).ok());
  ASSERT_TRUE(stream.read());
  std::jthread stopper([&] { server_->stop(std::chrono::seconds(30)); });
  // New calls are refused once the client knows; the old call continues.
  while (ask(*client, "/t/Upper", "x", within(5)) == "X") {
  }
  ASSERT_TRUE(stream.write(GrpcPayload::of("b")).ok());
  const auto message = stream.read();
  ASSERT_TRUE(message) << stream.status().to_string();
  EXPECT_EQ(text_of(**message), "b");
  stream.half_close();
  EXPECT_FALSE(stream.read());
  EXPECT_TRUE(stream.status().ok()) << stream.status().to_string();
  stopper.join();
  EXPECT_EQ(server_->figures().connection_count, 0u);
}

TEST_F(Grpc, AStopWithoutGraceEndsCallsWithUnavailable) {
  const auto client = open();
  GrpcBlockingStream stream(*client, "/t/Never", within(60));
  ASSERT_TRUE(stream.write(GrpcPayload::of("a")).ok());
  ASSERT_TRUE(test::eventually([&] { return server_->figures().call_count > 0; }));
  server_->stop();
  EXPECT_FALSE(stream.read());
  EXPECT_EQ(stream.status().to_string(),
            "UNAVAILABLE: the server is stopping; call again when it is back");
  EXPECT_TRUE(ended_.wait_for(0).starts_with("UNAVAILABLE"));
  EXPECT_EQ(server_->figures().call_count, 0u);
  server_->stop();
}

TEST_F(Grpc, AClientFindsARestartedServer) {
  const auto client = open();
  EXPECT_EQ(ask(*client, "/t/Upper", "a"), "A");
  const std::string address = address_;
  server_.reset();
  EXPECT_EQ(ask(*client, "/t/Upper", "a").substr(0, 11), "UNAVAILABLE");
  std::atomic<bool> has_begun{false};
  std::jthread waiter([&] {
    GrpcCallOptions options = within(30);
    options.is_waiting_for_ready = true;
    has_begun = true;
    EXPECT_EQ(ask(*client, "/t/Upper", "waited", options), "WAITED");
  });
  while (!has_begun) {
  }
  open_server({}, address);
  waiter.join();
  EXPECT_EQ(ask(*client, "/t/Upper", "b"), "B");
}

// HTTP/2's last number is 2^31 - 1.
TEST_F(Grpc, CallsContinueOnAnotherConnectionWhenOneHasNoNumbersLeft) {
  GrpcClientOptions options;
  options.first_call_number = INT32_MAX - 4;
  const auto client = open(options);
  GrpcBlockingStream waits(*client, "/t/Echo", within(60));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(ask(*client, "/t/Upper", "a"), "A") << i;
  ASSERT_TRUE(waits.write(GrpcPayload::of("still here")).ok());
  const auto message = waits.read();
  ASSERT_TRUE(message);
  EXPECT_EQ(text_of(**message), "still here");
  waits.half_close();
  EXPECT_FALSE(waits.read());
  EXPECT_TRUE(waits.status().ok()) << waits.status().to_string();
  EXPECT_TRUE(test::eventually([&] { return server_->figures().connection_count == 1; }))
      << "a connection without numbers ends with its last call";
}

TEST_F(Grpc, AMethodThatReturnsNullRefusesTheCall) {
  GrpcServer server(threads_, {});
  server.add_method("/t/Null", [](const std::shared_ptr<GrpcServerCall>& call) {
    call->finish(not_found("too late"));
    return nullptr;
  });
  address_ = server.listen({"localhost:0"}).value().front();
  const auto client = open();
  EXPECT_EQ(ask(*client, "/t/Null", ""), "INTERNAL: method '/t/Null' refused the call");
}

TEST_F(Grpc, CallsAlternateAmongTheAddressesThatAnswer) {
  GrpcServer second(threads_, {});
  add_methods(second);
  const std::string other = second.listen({"127.0.0.1:0"})->front();
  auto client = GrpcClient::open(threads_, format("ipv4:{},127.0.0.1:1,{}", address_, other), {});
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(test::eventually([&] {  // until both servers were called
    EXPECT_EQ(ask(**client, "/t/Upper", "a"), "A");
    return server_->figures().calls_begun > 0 && second.figures().calls_begun > 0;
  }));
  const auto before = server_->figures().calls_begun;
  const auto before_second = second.figures().calls_begun;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask(**client, "/t/Upper", "a"), "A");
  EXPECT_EQ(server_->figures().calls_begun - before, 10u);
  EXPECT_EQ(second.figures().calls_begun - before_second, 10u);
}

TEST_F(Grpc, AnAddressWithoutAListenerIsUnavailable) {
  const auto client = GrpcClient::open(threads_, "127.0.0.1:1", {}).value();
  const std::string text = ask(*client, "/t/Upper", "a");
  EXPECT_NE(text.find("UNAVAILABLE: no connection to 127.0.0.1:1"), std::string::npos) << text;
  EXPECT_EQ(GrpcClient::open(threads_, "nonsense", {}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(Grpc, AClosedClientEndsItsCallsAndRefusesOthers) {
  auto client = open();
  GrpcBlockingStream stream(*client, "/t/Never", within(60));
  ASSERT_TRUE(stream.write(GrpcPayload::of("a")).ok());
  client->close();
  EXPECT_FALSE(stream.read());
  EXPECT_EQ(stream.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(ask(*client, "/t/Upper", "a").substr(0, 9), "CANCELLED");
}

TEST_F(Grpc, AClientMayBeDestroyedInItsOwnCallback) {
  auto client = open();
  Events done;
  GrpcClient* const raw = client.get();
  const auto held = std::make_shared<std::unique_ptr<GrpcClient>>(std::move(client));
  raw->unary("/t/Upper", GrpcPayload::of("a"), {}, [&done, held](auto response) {
    held->reset();
    done.add(response.status().to_string());
  });
  EXPECT_EQ(done.wait_for(0), "OK");
}

TEST_F(Grpc, AServerWithoutAHelloIsRefused) {
  GrpcClientOptions options;
  options.connect_timeout = std::chrono::milliseconds(20);
  const auto client = GrpcClient::open(threads_, "127.0.0.1:1", options).value();
  ConnectionPair own = make_connection_pair(client->loop(), threads_.loop(1)).value();
  client->adopt(std::move(own.first));
  EXPECT_EQ(ask(*client, "/t/Upper", "a"), "UNAVAILABLE: no hello came in time");
  threads_.loop(1).run_and_wait([&] { own.second.reset(); });
}

TEST_F(Grpc, APeerWithoutAHelloIsDropped) {
  GrpcServerOptions options;
  options.hello_timeout = std::chrono::milliseconds(20);
  open_server(options);
  ConnectionPair pair = make_connection_pair(threads_.loop(0), threads_.loop(1)).value();
  server_->serve(std::move(pair.first));
  EXPECT_TRUE(test::eventually([&] { return server_->figures().connection_count == 0; }));
  threads_.loop(1).run_and_wait([&] { pair.second.reset(); });
}

TEST_F(Grpc, APairWithinTheProcessIsServed) {
  // One client on each loop.
  for (std::size_t i = 0; i < threads_.count(); ++i) {
    const auto client = GrpcClient::open(threads_, "unix:nowhere", {}).value();
    ConnectionPair other = make_connection_pair(client->loop(), threads_.loop(1)).value();
    server_->serve(std::move(other.second));
    client->adopt(std::move(other.first));
    EXPECT_EQ(ask(*client, "/t/Upper", "a"), "A");
  }
}

TEST_F(Grpc, AUnixSocketIsServed) {
  const std::string path =
      format("{}/reverie_grpc_{}", std::filesystem::temp_directory_path().string(), ::getpid());
  open_server({}, "unix:" + path);
  const auto client = open();
  EXPECT_EQ(ask(*client, "/t/Upper", "a"), "A");
}

TEST_F(Grpc, AConnectionBeyondTheBoundIsClosedAtOnce) {
  GrpcServerOptions options;
  options.connection_count_max = 1;
  open_server(options);
  const auto first = open();
  EXPECT_EQ(ask(*first, "/t/Upper", "a"), "A");
  const auto second = open();
  EXPECT_EQ(ask(*second, "/t/Upper", "a").substr(0, 11), "UNAVAILABLE");
  EXPECT_EQ(ask(*first, "/t/Upper", "a"), "A");
}

TEST_F(Grpc, APortInUseIsRefused) {
  GrpcServer second(threads_, {});
  EXPECT_EQ(second.listen({address_}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(second.listen({"localhost"}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Grpc, AnAddressOthersCanReachNeedsASecretOrInsecureAllowed) {
  GrpcServer closed(threads_, {});
  EXPECT_EQ(closed.listen({"0.0.0.0:0"}).status().code(), StatusCode::kFailedPrecondition);
  GrpcServerOptions options;
  options.is_insecure_allowed = true;
  GrpcServer insecure(threads_, options);
  EXPECT_TRUE(insecure.listen({"0.0.0.0:0"}).ok());
  options.token = "secret";
  GrpcServer readable(threads_, options);
  EXPECT_EQ(readable.listen({"0.0.0.0:0"}).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(Grpc, AMissingOrWrongTokenIsRefused) {
  GrpcServerOptions options;
  options.token = "secret";
  open_server(options);
  EXPECT_EQ(ask(*open(), "/t/Upper", "a"),
            "UNAUTHENTICATED: this server asks for a token, and none was sent");
  for (const std::string wrong : {"secres", "secre", "secret1", "Secret"}) {
    GrpcClientOptions client;
    client.token = wrong;
    EXPECT_EQ(ask(*open(client), "/t/Upper", "a"),
              "UNAUTHENTICATED: the token is not this server's");
  }
  GrpcClientOptions client;
  client.token = "secret";
  EXPECT_EQ(ask(*open(client), "/t/Upper", "a"), "A");
  EXPECT_EQ(ask(*open(client), "/t/Info", "").find("secret"), std::string::npos);
}

TEST_F(Grpc, TlsCarriesCallsWithATokenAndNamesTheClient) {
  GrpcServerOptions options;
  options.tls = test::server_tls();
  options.tls->client_authorities = test::tls_text("authority.pem");
  options.token = "secret";
  open_server(options);
  GrpcClientOptions client;
  client.token = "secret";
  client.tls = test::client_tls();
  client.tls->certificate_chain = test::tls_text("client.pem");
  client.tls->private_key = test::tls_text("client_key.pem");
  const auto known = open(client);
  EXPECT_NE(ask(*known, "/t/Info", "").find("peer_name reverie test client\n"), std::string::npos)
      << ask(*known, "/t/Info", "");
  GrpcBlockingStream stream(*known, "/t/Echo", within(60));
  const std::string text = pattern_text(5'000'000);
  ASSERT_TRUE(stream.write(GrpcPayload::of(text)).ok());
  EXPECT_TRUE(text_of(**stream.read()) == text);
  client.tls->certificate_chain.clear();
  client.tls->private_key.clear();
  // The end of the socket may overtake the server's alert.
  const auto refused = [&](std::string_view code) {
    const std::string answer = ask(*open(client), "/t/Upper", "a");
    EXPECT_TRUE(answer.starts_with(code) || answer.starts_with("UNAVAILABLE")) << answer;
  };
  refused("UNAUTHENTICATED");
  client.tls.reset();
  refused("FAILED_PRECONDITION");
}

TEST_F(Grpc, AForkedChildIsRefusedAndLeavesTheParentsSocketsUntouched) {
  auto client = open();
  EXPECT_EQ(ask(*client, "/t/Upper", "a"), "A");
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = ask(*client, "/t/Upper", "a", {});
    const bool is_refused =
        text.starts_with("FAILED_PRECONDITION") &&
        server_->listen({"localhost:0"}).status().code() == StatusCode::kFailedPrecondition;
    client.reset();
    server_.reset();
    threads_.stop();
    ::_exit(is_refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(ask(*client, "/t/Upper", "the parent goes on"), "THE PARENT GOES ON");
  EXPECT_EQ(server_->figures().connection_count, 1u);
}

TEST_F(Grpc, ACallMayOutliveItsServerAndClient) {
  std::shared_ptr<GrpcServerCall> server_call;
  std::shared_ptr<GrpcClientCall> client_call;
  Events begun;
  {
    GrpcServer server(threads_, {});
    server.add_method("/t/Keep", [&](std::shared_ptr<GrpcServerCall> call) {
      server_call = std::move(call);
      begun.add("begun");
      return std::make_shared<test::Never>(test::Never::Ended());
    });
    address_ = server.listen({"localhost:0"})->front();
    const auto client = open();
    client_call = client->unary("/t/Keep", GrpcPayload(), {}, [](auto) {});
    begun.wait_for(0);
  }
  EXPECT_TRUE(server_call->is_over());
  EXPECT_TRUE(client_call->is_over());
  server_call->write(GrpcPayload::of("x"));
  server_call->finish({});
  server_call->resume_reading();
  client_call->cancel();
  EXPECT_FALSE(server_call->has_room());
}

}  // namespace
}  // namespace reverie
