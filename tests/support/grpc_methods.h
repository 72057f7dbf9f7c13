// Methods over plain text for tests of gRPC, one for each way in which a call can go.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "reverie/grpc/grpc_server.h"

namespace reverie::test {

inline std::string text_of(const GrpcMessage& message) {
  return {reinterpret_cast<const char*>(message.bytes().data()), message.bytes().size()};
}

// Bytes without short repetitions, so that a misplaced piece is noticed.
inline std::string pattern_text(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + (i >> 11u) * 13);
  return text;
}

// Sends back what it receives, and only reads while there is room to write.
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
  const std::shared_ptr<GrpcServerCall> call_;
};

// Bounds, because fuzzed requests ask for more memory than there is.
inline constexpr std::size_t kSizeMax = std::size_t{64} << 20;
inline constexpr std::size_t kCountMax = 10'000'000;

// "COUNT SIZE": sends COUNT messages of SIZE bytes, each when there is room for it.
class Count final : public GrpcServerEvents {
 public:
  explicit Count(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
  void on_message(Ref<GrpcMessage> message) override {
    const std::string text = text_of(*message);
    const std::size_t space = std::min(text.find(' '), text.size());
    std::from_chars(text.data(), text.data() + space, left_);
    std::size_t size = 0;
    if (space < text.size()) {
      std::from_chars(text.data() + space + 1, text.data() + text.size(), size);
    }
    if (size > kSizeMax || left_ > kCountMax) {
      left_ = 0;
      call_->finish(invalid_argument("'{}' is more than a test asks for", text));
      return;
    }
    message_ = std::make_shared<const std::string>(pattern_text(size));
    on_room();
  }
  void on_room() override {
    while (left_ > 0 && call_->has_room()) {
      GrpcPayload payload;
      payload.append(std::as_bytes(std::span(*message_)), message_);
      call_->write(std::move(payload));
      --left_;
    }
    if (left_ == 0) call_->finish({});
  }
  void on_half_close() override {}
  void on_end(const Status&) override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;
  std::size_t left_ = 0;
  std::shared_ptr<const std::string> message_;
};

// Counts the messages and their bytes, and answers with both at the end.
class Sum final : public GrpcServerEvents {
 public:
  explicit Sum(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
  void on_message(Ref<GrpcMessage> message) override {
    ++count_;
    bytes_ += message->bytes().size();
  }
  void on_half_close() override {
    call_->write(GrpcPayload::of(format("{} {}", count_, bytes_)));
    call_->finish({});
  }
  void on_end(const Status&) override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

// Writes messages of 1 MiB without waiting for room, until the call is cancelled.
class Flood final : public GrpcServerEvents {
 public:
  explicit Flood(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
  void on_message(Ref<GrpcMessage>) override {
    const auto mib = std::make_shared<const std::string>(std::size_t{1} << 20, 'f');
    for (int i = 0; i < 1024; ++i) {
      GrpcPayload payload;
      payload.append(std::as_bytes(std::span(*mib)), mib);
      call_->write(std::move(payload));
    }
  }
  void on_half_close() override {}
  void on_end(const Status&) override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;
};

// Receives messages and never answers; prints how the call ended.
class Never final : public GrpcServerEvents {
 public:
  using Ended = std::function<void(const Status&)>;
  explicit Never(Ended ended) : ended_(std::move(ended)) {}
  void on_message(Ref<GrpcMessage>) override {}
  void on_half_close() override {}
  void on_end(const Status& why) override {
    if (ended_) ended_(why);
  }

 private:
  const Ended ended_;
};

// Everything that the caller's headers contained, one line each.
inline std::string info_text(const GrpcCallInfo& info) {
  std::string text = format("path {}\nlocal {}\npeer_name {}\ndeadline {}\n", info.path,
                            info.is_peer_local, info.peer_name, info.deadline != TimePoint::max());
  for (const auto& [name, value] : info.metadata) text += format("{}: {}\n", name, value);
  return text;
}

class Info final : public GrpcServerEvents {
 public:
  explicit Info(std::shared_ptr<GrpcServerCall> call)
      : call_(std::move(call)), text_(info_text(call_->info())) {}
  void on_message(Ref<GrpcMessage>) override {}
  void on_half_close() override {
    call_->write(GrpcPayload::of(text_));
    call_->finish({});
  }
  void on_end(const Status&) override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;
  const std::string text_;
};

inline void add_methods(GrpcServer& server, const Never::Ended& ended = {}) {
  using Call = std::shared_ptr<GrpcServerCall>;
  server.add_method("/t/Echo", [](Call call) { return std::make_shared<Echo>(std::move(call)); });
  server.add_method("/t/Count", [](Call call) { return std::make_shared<Count>(std::move(call)); });
  server.add_method("/t/Sum", [](Call call) { return std::make_shared<Sum>(std::move(call)); });
  server.add_method("/t/Flood", [](Call call) { return std::make_shared<Flood>(std::move(call)); });
  server.add_method("/t/Never", [ended](const Call&) { return std::make_shared<Never>(ended); });
  server.add_unary("/t/Upper", [](const Call&, Ref<GrpcMessage> request, GrpcUnaryReply reply) {
    std::string text = text_of(*request);
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    reply(GrpcPayload::of(std::move(text)));
  });
  server.add_method("/t/Info", [](Call call) { return std::make_shared<Info>(std::move(call)); });
  // "CODE TEXT": ends with that status, or with INTERNAL if there is no such code.
  server.add_unary("/t/Fail", [](const Call&, Ref<GrpcMessage> request, GrpcUnaryReply reply) {
    const std::string text = text_of(*request);
    const std::size_t space = std::min(text.find(' '), text.size());
    int code = 0;
    std::from_chars(text.data(), text.data() + space, code);
    if (code < 1 || code > 16) code = static_cast<int>(StatusCode::kInternal);
    reply(Status(static_cast<StatusCode>(code), text.substr(std::min(space + 1, text.size()))));
  });
}

}  // namespace reverie::test
