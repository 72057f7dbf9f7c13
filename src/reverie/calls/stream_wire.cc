// Tested in stream_test.cc.
#include "reverie/calls/stream_wire.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

constexpr std::array<std::string_view, 5> kAsks = {"next", "send", "finish", "watch", "close"};

std::string_view name_of(StreamAsk ask) {
  return kAsks[static_cast<std::size_t>(ask)];
}

// What comes before the value of a message.
Payload beginning(const StreamMessage& message) {
  const bool has_number = message.ask == StreamAsk::kNext || message.ask == StreamAsk::kSend ||
                          message.ask == StreamAsk::kFinish;
  const std::size_t count = 2 + (has_number ? 1 : 0) + (message.ask == StreamAsk::kSend ? 1 : 0);
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 2);
  writer.begin(ValueKind::kTuple, count);
  writer.integer(static_cast<std::int64_t>(message.stream));
  writer.text(name_of(message.ask));
  if (has_number) writer.integer(static_cast<std::int64_t>(message.number));
  return payload;
}

// What comes after it: no named arguments.
Payload ending() {
  Payload payload;
  ValueWriter(payload).begin(ValueKind::kDict, 0);
  return payload;
}

Payload beginning_of_answer(bool is_end) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 2);
  writer.integer(is_end ? 1 : 0);
  return payload;
}

// `begin`, then the value, then `end`.
Payload around(const Payload& begin, Payload value, const Payload& end) {
  value.head.insert(value.head.begin(), begin.head.begin(), begin.head.end());
  value.head.insert(value.head.end(), end.head.begin(), end.head.end());
  return value;
}

// The reverse; false if they do not surround a value.
bool strip(const Payload& begin, const Payload& end, Payload& payload) {
  std::vector<std::byte>& head = payload.head;
  if (head.size() <= begin.head.size() + end.head.size() ||
      !std::equal(begin.head.begin(), begin.head.end(), head.begin()) ||
      !std::equal(end.head.rbegin(), end.head.rend(), head.rbegin())) {
    return false;
  }
  head.resize(head.size() - end.head.size());
  head.erase(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(begin.head.size()));
  return true;
}

Result<ValueToken> token_of(ValueReader& reader, ValueKind kind) {
  if (reader.done()) return data_loss("a stream's message is cut short");
  REVERIE_ASSIGN_OR_RETURN(ValueToken token, reader.next());
  if (token.kind == kind && (kind != ValueKind::kInteger || token.integer >= 0)) return token;
  return data_loss("a stream's message has a value of kind {} and number {} where kind {} belongs",
                   static_cast<int>(token.kind), token.integer, static_cast<int>(kind));
}

}  // namespace

Payload encode_stream_message(StreamMessage message) {
  const Payload begin = beginning(message);
  return around(begin, std::move(message.value), ending());
}

Result<StreamMessage> decode_stream_message(Payload payload) {
  StreamMessage message;
  ValueReader reader(payload);
  REVERIE_RETURN_IF_ERROR(token_of(reader, ValueKind::kTuple).status());
  REVERIE_RETURN_IF_ERROR(token_of(reader, ValueKind::kTuple).status());
  REVERIE_ASSIGN_OR_RETURN(const ValueToken stream, token_of(reader, ValueKind::kInteger));
  message.stream = static_cast<std::uint64_t>(stream.integer);
  REVERIE_ASSIGN_OR_RETURN(const ValueToken what, token_of(reader, ValueKind::kText));
  const std::string_view name(reinterpret_cast<const char*>(what.bytes.data()), what.bytes.size());
  const auto ask = std::find(kAsks.begin(), kAsks.end(), name);
  if (ask == kAsks.end()) {
    return data_loss(
        "a stream is asked for something of {} bytes that is not one of 'next', "
        "'send', 'finish', 'watch' and 'close'",
        name.size());
  }
  message.ask = static_cast<StreamAsk>(ask - kAsks.begin());
  if (message.ask != StreamAsk::kWatch && message.ask != StreamAsk::kClose) {
    REVERIE_ASSIGN_OR_RETURN(const ValueToken number, token_of(reader, ValueKind::kInteger));
    message.number = static_cast<std::uint64_t>(number.integer);
  }
  if (message.ask != StreamAsk::kSend) return message;
  message.value = std::move(payload);
  if (!strip(beginning(message), ending(), message.value)) {
    return data_loss("a value that is sent to a stream has other arguments beside it");
  }
  return message;
}

Payload encode_stream_answer(StreamAnswer answer) {
  if (answer.value.head.empty()) ValueWriter(answer.value).none();
  return around(beginning_of_answer(answer.is_end), std::move(answer.value), {});
}

Result<StreamAnswer> decode_stream_answer(Payload payload) {
  StreamAnswer answer;
  answer.value = std::move(payload);
  if (strip(beginning_of_answer(false), {}, answer.value)) return answer;
  answer.is_end = true;
  if (strip(beginning_of_answer(true), {}, answer.value)) return answer;
  return data_loss("a stream's answer is neither a value nor its end");
}

}  // namespace reverie
