// Tested in stream_test.cc.
#include "reverie/calls/stream_core.h"

#include "reverie/base/check.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

Payload nothing() {
  Payload payload;
  ValueWriter(payload).none();
  return payload;
}

Payload end_without_result() {
  return encode_stream_answer({.is_end = true});
}

}  // namespace

void StreamCore::want(std::uint64_t number, InboundId request, Answers& answers) {
  if (is_closed_ || number < next_) {
    answers.push_back({request, end_without_result()});
    return;
  }
  wanted_[number] = request;
  over(answers);
}

void StreamCore::send(std::uint64_t number, Payload value, InboundId request, Answers& answers) {
  if (is_over() || number < taken_) {
    answers.push_back({request, nothing()});  // it is not read, and must not block the caller
    return;
  }
  sent_[number] = {std::move(value), request};
}

void StreamCore::finish(std::uint64_t count, InboundId request, Answers& answers) {
  if (!count_) count_ = count;
  answers.push_back({request, nothing()});
}

void StreamCore::close(Answers& answers) {
  is_closed_ = true;
  over(answers);
}

void StreamCore::put(Payload value, Answers& answers) {
  REVERIE_CHECK(has_room());
  const auto place = wanted_.find(next_++);
  answers.push_back({place->second, encode_stream_answer({.value = std::move(value)})});
  wanted_.erase(place);
}

void StreamCore::end(Payload result, Answers& answers) {
  if (is_over()) return;
  end_ = {std::move(result), std::nullopt};
  over(answers);
}

void StreamCore::fail(RemoteError error, Answers& answers) {
  if (is_over()) return;
  end_ = {{}, std::move(error)};
  over(answers);
}

std::optional<Payload> StreamCore::take(Answers& answers) {
  const auto place = sent_.find(taken_);
  if (place == sent_.end()) return std::nullopt;
  ++taken_;
  std::optional<Payload> value(std::move(place->second.first));
  answers.push_back({place->second.second, nothing()});  // there is room for another one
  sent_.erase(place);
  return value;
}

// Answers what will get no value, once the stream is over. The end goes to the call that waits for
// the next value, when there is one.
void StreamCore::over(Answers& answers) {
  if (!is_over()) return;
  for (auto& [number, value] : sent_) answers.push_back({value.second, nothing()});
  sent_.clear();
  const auto place = wanted_.find(next_);
  if (end_ && !has_told_end_ && place != wanted_.end()) {
    has_told_end_ = true;
    if (end_->error) {
      answers.push_back({place->second, {}, std::move(end_->error)});
    } else {
      answers.push_back({place->second, encode_stream_answer({true, std::move(end_->result)})});
    }
    wanted_.erase(place);
  }
  if (!is_closed_ && !has_told_end_) return;
  for (const auto& [number, request] : wanted_) {
    answers.push_back({request, end_without_result()});
  }
  wanted_.clear();
}

}  // namespace reverie
