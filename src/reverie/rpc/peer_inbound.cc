// The part of PeerCore that handles what arrives on an open link: calls, answers, cancellations.
//
// Tested in tests/sim/peers_sim_test.cc and peer_test.cc.
#include <utility>

#include "reverie/rpc/peer_core.h"
#include "reverie/rpc/remote_error.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

// After this many received frames an acknowledgement is sent, if no other frame has carried it.
constexpr std::size_t kUnacknowledgedMax = 64;
constexpr std::size_t kUnacknowledgedBytesMax = std::size_t{1} << 20;

}  // namespace

void PeerCore::on_message(std::uint64_t key, Frame frame, TimePoint now) {
  Session& session = sessions_.at(key);
  answer_bytes_ -= session.acknowledge(frame.header.received);
  if (frame.header.kind == FrameKind::kAck) return;
  if (frame.header.kind == FrameKind::kBye) {
    end_session(key, unavailable("'{}' has closed", session.peer_name), CallResult::Kind::kFailed,
                now);
    return;
  }
  if (!session.receive(frame.header.sequence)) return;
  session.unacknowledged_bytes += frame.message.size_bytes();
  switch (frame.header.kind) {
    case FrameKind::kCall:
      on_call(key, std::move(frame), now);
      break;
    case FrameKind::kAnswer:
    case FrameKind::kError:
      on_answer(key, std::move(frame));
      break;
    case FrameKind::kCancel:
      if (end_request(session, frame.header.call)) {
        effects_.withdraw({key, frame.header.call});
      }
      break;
    case FrameKind::kArgumentsCopied:
      session.take_back(FrameKind::kCall, frame.header.call);
      break;
    case FrameKind::kAnswerCopied:
      session.take_back(FrameKind::kAnswer, frame.header.call);
      break;
    case FrameKind::kFind:
      on_find(key, frame, now);
      break;
    case FrameKind::kFound:
      on_found(key, frame, now);
      break;
    default:
      break;  // of the handshake: not expected here, ignored
  }
  // What was done may have ended the session.
  const auto still = sessions_.find(key);
  if (still == sessions_.end() || still->second.link == 0) return;
  if (still->second.unacknowledged >= kUnacknowledgedMax ||
      still->second.unacknowledged_bytes >= kUnacknowledgedBytesMax) {
    acknowledge(still->second, now);
  }
}

void PeerCore::on_call(std::uint64_t key, Frame frame, TimePoint now) {
  Session& session = sessions_.at(key);
  mark(key, session, frame);
  const std::uint64_t call = frame.header.call;
  std::string& function = frame.message.name;
  if (function == kPingFunction) {
    enqueue_answer(session, call, std::move(frame.message.payload), now);
    return;
  }
  if (function == kListFunction) {
    Payload payload;
    ValueWriter writer(payload);
    writer.begin(ValueKind::kList, functions_.size());
    for (const std::string& name : functions_) writer.text(name);
    enqueue_answer(session, call, std::move(payload), now);
    return;
  }
  if (function == kDeviceFunction ? !serves_devices_ : !functions_.contains(function)) {
    const Status why = not_found("peer '{}' has no function '{}'", options_.name, function);
    return enqueue_error(session, call, why, now);
  }
  const std::size_t size = frame.message.size_bytes();
  if (session.running.size() >= options_.calls_max ||
      (request_bytes_ > 0 && request_bytes_ + size > options_.held_bytes_max)) {
    const Status why = resource_exhausted(
        "peer '{}' has {} calls of '{}' to answer, and {} bytes of arguments of all peers; the "
        "bounds are {} calls and {} bytes",
        options_.name, session.running.size(), session.peer_name, request_bytes_,
        options_.calls_max, options_.held_bytes_max);
    return enqueue_error(session, call, why, now);
  }
  // Only the first call of a number is served: the answer would end all of them.
  if (!session.running.emplace(call, size).second) return;
  ++request_count_;
  request_bytes_ += size;
  effects_.deliver({{key, call}, session.peer_name, function, std::move(frame.message)});
}

void PeerCore::on_answer(std::uint64_t key, Frame frame) {
  mark(key, sessions_.at(key), frame);
  const auto place = calls_.find(frame.header.call);
  // Cancelled, timed out, or of another session: no caller waits for it.
  if (place == calls_.end() || place->second.session != key) return;
  CallResult result;
  if (frame.header.kind == FrameKind::kAnswer) {
    result.kind = CallResult::Kind::kAnswer;
    result.payload = std::move(frame.message.payload);
  } else {
    RemoteError error = decode_error(frame.message.payload);
    result.kind = CallResult::Kind::kRemoteError;
    result.status = Status(error.code, std::move(error.text));
    result.error_type = std::move(error.type);
    result.traceback = std::move(error.traceback);
  }
  finish(frame.header.call, std::move(result));
}

}  // namespace reverie
