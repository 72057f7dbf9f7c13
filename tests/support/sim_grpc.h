// gRPC calls over sim::Network, for tests of the code above them: the streams of clients and
// servers get the faults of a seed's network, on one thread.
//
//     CallWorld::start ---> SimCallClient == frames on one stream ==> SimCallServer ---> GrpcMethod
//
// Instead of HTTP/2 there are frames of our own, each [ call | kind | size | content ]. The
// contract of a call is kept: events come one at a time and never from within a method of the call,
// a receiver that pauses holds its sender back, and the calls of a lost connection end with
// UNAVAILABLE.
// UNAVAILABLE.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/adapters/reverb/call_world.h"
#include "reverie/base/check.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/sim/network.h"
#include "tests/support/fake_grpc_call.h"

namespace reverie {

enum class CallFrameKind : std::uint8_t {
  kBegin,      // the path, and the metadata as lines
  kMessage,    // from either side
  kHalfClose,  // from the client
  kReset,      // from the client
  kEnd,        // from the server: a code and a text
  kCredit,     // from either side: the number of bytes that the receiver has passed on
};

struct CallFrame {
  std::uint64_t call = 0;
  CallFrameKind kind = CallFrameKind::kMessage;
  std::string content;
};

inline std::vector<std::byte> encode(const CallFrame& frame) {
  const std::uint64_t size = frame.content.size();
  std::vector<std::byte> bytes(17 + frame.content.size());
  std::memcpy(bytes.data(), &frame.call, 8);
  bytes[8] = static_cast<std::byte>(frame.kind);
  std::memcpy(bytes.data() + 9, &size, 8);
  std::memcpy(bytes.data() + 17, frame.content.data(), frame.content.size());
  return bytes;
}

class CallFrameReader {
 public:
  // The frames that are complete with these bytes.
  std::vector<CallFrame> feed(std::span<const std::byte> bytes) {
    held_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::vector<CallFrame> frames;
    std::size_t at = 0;
    while (held_.size() - at >= 17) {
      std::uint64_t size = 0;
      std::memcpy(&size, held_.data() + at + 9, 8);
      if (held_.size() - at - 17 < size) break;
      CallFrame& frame = frames.emplace_back();
      std::memcpy(&frame.call, held_.data() + at, 8);
      frame.kind = static_cast<CallFrameKind>(held_[at + 8]);
      frame.content = held_.substr(at + 17, size);
      at += 17 + size;
    }
    held_.erase(0, at);
    return frames;
  }

 private:
  std::string held_;
};

// The common part of both ends of a call: queues and flow control.
class SimCall {
 public:
  static constexpr std::size_t kWindowBytes = 4096;
  static constexpr std::size_t kRoomBytes = 2048;

  SimCall(sim::Network& network, sim::NodeId node, std::uint64_t number)
      : network_(network), node_(node), number_(number) {}
  virtual ~SimCall() = default;

  void queue(const std::string& message) {
    if (is_over_) return;
    queued_bytes_ += message.size();
    queue_.push_back(message);
    send_queued();
  }
  // Sets the connection's end; 0 when it is lost.
  void set_end(sim::EndId end) { end_ = end; }
  void send_queued() {
    while (end_ != 0 && !queue_.empty() && window_ > 0) {
      window_ -= static_cast<std::int64_t>(queue_.front().size());
      queued_bytes_ -= queue_.front().size();
      send(CallFrameKind::kMessage, std::move(queue_.front()));
      queue_.pop_front();
    }
    if (queue_.empty()) on_all_sent();
    if (is_room_awaited_ && has_room_now()) {
      is_room_awaited_ = false;
      later([this] { events().on_room(); });
    }
  }
  void send(CallFrameKind kind, std::string content) {
    if (end_ != 0) network_.send(end_, encode({number_, kind, std::move(content)}));
  }
  void take(CallFrame frame) {
    if (is_over_) return;
    if (frame.kind == CallFrameKind::kCredit) {
      window_ += std::stoll(frame.content);
      send_queued();
    } else if (frame.kind == CallFrameKind::kMessage || frame.kind == CallFrameKind::kHalfClose) {
      received_.push_back(std::move(frame));
      hand_on();
    }
  }
  void pause() { is_paused_ = true; }
  void resume() {
    if (std::exchange(is_paused_, false)) later([this] { hand_on(); });
  }
  bool asks_for_room() const {
    const bool has_room = has_room_now();
    if (!has_room) is_room_awaited_ = true;
    return has_room;
  }
  // Queues the last event; messages that wait are dropped.
  void end(const Status& why) {
    if (std::exchange(is_over_, true)) return;
    queue_.clear();
    received_.clear();
    network_.at(node_, network_.now(node_), [self = shared(), why, this] {
      (void)self;
      const std::shared_ptr<GrpcCallEvents> told = std::exchange(events_, nullptr);
      if (told) told->on_end(why);
    });
  }
  // For a killed node: no further event is delivered.
  void drop() {
    is_over_ = true;
    end_ = 0;
    queue_.clear();
    received_.clear();
    events_ = nullptr;
  }
  bool is_over_now() const { return is_over_; }
  std::size_t queued() const { return queued_bytes_; }
  void set_events(std::shared_ptr<GrpcCallEvents> events) { events_ = std::move(events); }
  std::uint64_t number() const { return number_; }

 protected:
  virtual std::shared_ptr<void> shared() = 0;
  virtual void on_all_sent() {}
  sim::Network& network() { return network_; }

 private:
  bool has_room_now() const { return queued_bytes_ < kRoomBytes; }
  GrpcCallEvents& events() { return *events_; }
  void later(std::function<void()> run) {
    network_.at(node_, network_.now(node_), [self = shared(), this, run = std::move(run)] {
      (void)self;
      if (!is_over_ && events_) run();
    });
  }
  void hand_on() {
    while (!is_over_ && !is_paused_ && !is_handing_on_ && events_ && !received_.empty()) {
      const CallFrame frame = std::move(received_.front());
      received_.pop_front();
      const std::shared_ptr<void> self = shared();
      const std::shared_ptr<GrpcCallEvents> told = events_;
      is_handing_on_ = true;
      if (frame.kind == CallFrameKind::kHalfClose) {
        told->on_half_close();
      } else {
        told->on_message(grpc_message(frame.content));
        send(CallFrameKind::kCredit, std::to_string(frame.content.size()));
      }
      is_handing_on_ = false;
    }
  }

  sim::Network& network_;
  const sim::NodeId node_;
  const std::uint64_t number_;
  sim::EndId end_ = 0;
  std::shared_ptr<GrpcCallEvents> events_;
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  std::deque<CallFrame> received_;
  std::int64_t window_ = kWindowBytes;
  bool is_paused_ = false;
  bool is_handing_on_ = false;
  bool is_over_ = false;
  mutable bool is_room_awaited_ = false;
};

// The calls of a node, including those whose end has not been delivered yet: a call and its
// listener hold each other until then, and a killed process must hold none of them.
class SimCalls {
 public:
  SimCalls() = default;
  SimCalls(const SimCalls&) = delete;
  SimCalls& operator=(const SimCalls&) = delete;
  ~SimCalls() {
    for (const std::weak_ptr<SimCall>& call : calls_) {
      if (const std::shared_ptr<SimCall> held = call.lock()) held->drop();
    }
  }

  void add(const std::shared_ptr<SimCall>& call) {
    std::erase_if(calls_, [](const auto& known) { return known.expired(); });
    calls_.push_back(call);
  }

 private:
  std::vector<std::weak_ptr<SimCall>> calls_;
};

// --- The server.

class SimServerCall final : public GrpcServerCall,
                            public SimCall,
                            public std::enable_shared_from_this<SimServerCall> {
 public:
  SimServerCall(sim::Network& network, sim::NodeId node, std::uint64_t number, GrpcCallInfo info)
      : SimCall(network, node, number), info_(std::move(info)) {}

  const GrpcCallInfo& info() const override { return info_; }
  void write(GrpcPayload message) override {
    if (!finished_) queue(message.flat());
  }
  void finish(const Status& status) override {
    if (finished_) return;
    finished_ = status;
    pause();
    send_queued();
  }
  void abort(const Status& why) override {
    if (is_over_now()) return;
    finished_ = why;
    send_end(why);
    end(why);
  }
  void pause_reading() override { pause(); }
  void resume_reading() override {
    if (!finished_) resume();
  }
  std::size_t queued_bytes() const override { return queued(); }
  bool has_room() const override { return asks_for_room(); }
  bool is_over() const override { return finished_.has_value() || is_over_now(); }
  bool has_room_to_draw() const override { return asks_for_room(); }
  void hold(std::size_t) override {}
  std::size_t reserve_up_to(std::size_t count, std::size_t) override { return count; }
  void release(std::size_t) override {}

 protected:
  std::shared_ptr<void> shared() override { return shared_from_this(); }
  void on_all_sent() override {
    if (!finished_ || is_over_now()) return;
    send_end(*finished_);
    end({});
  }

 private:
  void send_end(const Status& status) {
    send(CallFrameKind::kEnd,
         std::to_string(static_cast<int>(status.code())) + " " + status.message());
  }

  const GrpcCallInfo info_;
  std::optional<Status> finished_;
};

class SimCallServer : public sim::Node {
 public:
  SimCallServer(sim::Network& network, sim::NodeId node, std::map<std::string, GrpcMethod> methods)
      : network_(network), node_(node), methods_(std::move(methods)) {}

  void on_connected(sim::EndId) override {}
  void on_accepted(sim::EndId end, const std::string&) override { connections_[end]; }
  void on_bytes(sim::EndId end, std::span<const std::byte> bytes) override {
    const auto place = connections_.find(end);
    if (place == connections_.end()) return;
    for (CallFrame& frame : place->second.reader.feed(bytes)) take(end, std::move(frame));
  }
  void on_closed(sim::EndId end) override {
    const auto place = connections_.find(end);
    if (place == connections_.end()) return;
    const Connection connection = std::move(place->second);
    connections_.erase(place);
    for (const auto& [number, call] : connection.calls) {
      call->set_end(0);
      call->end(unavailable("the connection was lost"));
    }
  }

 private:
  struct Connection {
    CallFrameReader reader;
    std::map<std::uint64_t, std::shared_ptr<SimServerCall>> calls;
  };

  void take(sim::EndId end, CallFrame frame) {
    Connection& connection = connections_[end];
    if (frame.kind == CallFrameKind::kBegin) return begin(end, connection, frame);
    const auto place = connection.calls.find(frame.call);
    if (place == connection.calls.end()) return;
    const std::shared_ptr<SimServerCall> call = place->second;
    if (frame.kind == CallFrameKind::kReset) {
      connection.calls.erase(place);
      call->end(cancelled("the caller has cancelled the call"));
    } else {
      call->take(std::move(frame));
    }
  }

  void begin(sim::EndId end, Connection& connection, const CallFrame& frame) {
    GrpcCallInfo info;
    std::size_t at = frame.content.find('\n');
    info.path = frame.content.substr(0, at);
    while (at != std::string::npos) {
      const std::size_t equals = frame.content.find('=', at);
      const std::size_t next = frame.content.find('\n', equals);
      info.metadata.emplace_back(frame.content.substr(at + 1, equals - at - 1),
                                 frame.content.substr(equals + 1, next - equals - 1));
      at = next;
    }
    const auto method = methods_.find(info.path);
    REVERIE_CHECK(method != methods_.end());
    const auto call = std::make_shared<SimServerCall>(network_, node_, frame.call, std::move(info));
    connection.calls[frame.call] = call;
    all_.add(call);
    call->set_end(end);
    call->set_events(method->second(call));
    call->send_queued();
  }

  sim::Network& network_;
  const sim::NodeId node_;
  std::map<std::string, GrpcMethod> methods_;
  std::map<sim::EndId, Connection> connections_;
  SimCalls all_;
};

// --- The client.

class SimClientCall final : public GrpcClientCall,
                            public SimCall,
                            public std::enable_shared_from_this<SimClientCall> {
 public:
  using SimCall::SimCall;

  void write(GrpcPayload message) override { queue(message.flat()); }
  void half_close() override { send(CallFrameKind::kHalfClose, {}); }
  void cancel() override {
    if (is_over_now()) return;
    send(CallFrameKind::kReset, {});
    end(cancelled("the call was cancelled"));
  }
  void pause_reading() override { pause(); }
  void resume_reading() override { resume(); }
  std::size_t queued_bytes() const override { return queued(); }
  bool has_room() const override { return asks_for_room(); }
  bool is_over() const override { return is_over_now(); }

  std::string head;  // the frame that begins the call, kept until there is a connection

 protected:
  std::shared_ptr<void> shared() override { return shared_from_this(); }
};

// One connection to a server, which is made again after it was lost.
class SimCallClient : public sim::Node, public CallWorld {
 public:
  SimCallClient(sim::Network& network, sim::NodeId node, std::string address)
      : network_(network), node_(node), address_(std::move(address)) {}

  // --- CallWorld
  std::shared_ptr<GrpcClientCall> start(std::string_view path, GrpcCallOptions options,
                                        std::shared_ptr<GrpcClientEvents> events) override {
    const auto call = std::make_shared<SimClientCall>(network_, node_, ++last_number_);
    call->set_events(std::move(events));
    call->head = path;
    for (const auto& [name, value] : options.metadata) call->head += "\n" + name + "=" + value;
    calls_[call->number()] = call;
    all_.add(call);
    if (is_up_) {
      begin(*call);
    } else {
      connect();
      if (options.ready_time != Duration::max()) {
        network_.at(node_, now() + options.ready_time, [call] {
          if (!call->head.empty()) call->end(unavailable("no server answers"));
        });
      }
    }
    return call;
  }
  void post(std::function<void()> work) override { network_.at(node_, now(), std::move(work)); }
  std::uint64_t schedule(TimePoint when, std::function<void()> run) override {
    const std::uint64_t timer = ++last_timer_;
    timers_[timer] = std::move(run);
    network_.at(node_, when, [this, timer] {
      const auto place = timers_.find(timer);
      if (place == timers_.end()) return;
      const std::function<void()> due = std::move(place->second);
      timers_.erase(place);
      due();
    });
    return timer;
  }
  void cancel(std::uint64_t timer, TimePoint) override { timers_.erase(timer); }
  TimePoint now() const override { return network_.now(node_); }

  // --- sim::Node
  void on_connected(sim::EndId end) override {
    if (end != end_) return;
    is_up_ = true;
    const auto calls = calls_;
    for (const auto& [number, call] : calls) {
      if (!call->is_over()) begin(*call);
    }
  }
  void on_accepted(sim::EndId, const std::string&) override {}
  void on_bytes(sim::EndId end, std::span<const std::byte> bytes) override {
    if (end != end_) return;
    for (CallFrame& frame : reader_.feed(bytes)) {
      const auto place = calls_.find(frame.call);
      if (place == calls_.end()) continue;
      const std::shared_ptr<SimClientCall> call = place->second;
      if (frame.kind == CallFrameKind::kEnd) {
        const std::size_t space = frame.content.find(' ');
        calls_.erase(place);
        call->end(Status(static_cast<StatusCode>(std::stoi(frame.content)),
                         frame.content.substr(space + 1)));
      } else {
        call->take(std::move(frame));
      }
    }
    std::erase_if(calls_, [](const auto& entry) { return entry.second->is_over(); });
  }
  void on_closed(sim::EndId end) override {
    if (end != end_) return;
    end_ = 0;
    is_up_ = false;
    reader_ = {};
    // Calls that were not begun wait for the next connection.
    for (auto place = calls_.begin(); place != calls_.end();) {
      const std::shared_ptr<SimClientCall> call = place->second;
      const bool is_begun = call->head.empty();
      place = is_begun || call->is_over() ? calls_.erase(place) : std::next(place);
      if (!is_begun) continue;
      call->set_end(0);
      call->end(unavailable("the connection was lost"));
    }
    const Duration pause(
        static_cast<std::int64_t>(10'000'000 + network_.random().below(90'000'000)));
    network_.at(node_, now() + pause, [this] {
      if (!calls_.empty()) connect();
    });
  }
  // What a client does that waited too long for a sign of life: it abandons the connection here,
  // while what is in transit may still arrive at the server.
  void abandon() {
    if (end_ == 0) return;
    const sim::EndId end = end_;
    if (is_up_) network_.close(end);
    on_closed(end);
  }

 private:
  void connect() {
    if (end_ == 0) end_ = network_.connect(node_, address_);
  }
  void begin(SimClientCall& call) {
    call.set_end(end_);
    call.send(CallFrameKind::kBegin, std::exchange(call.head, {}));
    call.send_queued();
  }

  sim::Network& network_;
  const sim::NodeId node_;
  const std::string address_;
  sim::EndId end_ = 0;
  bool is_up_ = false;
  CallFrameReader reader_;
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, std::shared_ptr<SimClientCall>> calls_;
  SimCalls all_;
  std::uint64_t last_timer_ = 0;
  std::map<std::uint64_t, std::function<void()>> timers_;
};

}  // namespace reverie
