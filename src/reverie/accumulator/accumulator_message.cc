// Tested in tests/sim/accumulator_sim_test.cc.
#include "reverie/accumulator/accumulator_message.h"

#include "reverie/group/membership.h"
#include "reverie/messages/message_fields.h"

namespace reverie {
namespace {

constexpr std::size_t kAverageMax = 64;
constexpr std::size_t kArraysMax = std::size_t{1} << 20;
constexpr std::size_t kArrayTextMax = 4096;
constexpr std::size_t kSamplesMax = std::size_t{1} << 50;

constexpr auto kGiftFields = [](auto& fields, auto& gift) {
  fields.text(gift.to, kGroupNameMax);
  fields.number(gift.number);
  fields.flag(gift.is_lost);
};

constexpr auto kMessageFields = [](auto& fields, auto& message) {
  fields.number(message.kind, 7);
  fields.number(message.key.membership);
  fields.number(message.key.generation);
  fields.text(message.vote.name, kGroupNameMax);
  fields.number(message.vote.version);
  fields.number(message.vote.lineage);
  fields.flag(message.vote.is_still);
  fields.text(message.vote.average, kAverageMax);
  fields.texts(message.vote.signature, kArraysMax, kArrayTextMax);
  fields.number(message.slot);
  fields.number(message.samples, kSamplesMax);
  fields.number(message.need);
  fields.flag(message.has_model);
  fields.entries(message.gifts, kGiftFields);
  fields.array(message.value);
};

constexpr auto kAccumulatorAnswerFields = [](auto& fields, auto& answer) {
  fields.flag(answer.is_taken);
  fields.number(answer.key.membership);
  fields.number(answer.key.generation);
  fields.number(answer.called);
};

}  // namespace

Payload encode(const AccumulatorMessage& message) {
  return write_fields(message, kMessageFields);
}

Result<AccumulatorMessage> decode_accumulator_message(const Payload& payload) {
  REVERIE_ASSIGN_OR_RETURN(
      AccumulatorMessage message,
      read_fields<AccumulatorMessage>(payload, "an accumulator's message", kMessageFields));
  if (message.kind == AccumulatorMessageKind{}) {
    return data_loss("a message of an accumulator has no kind");
  }
  return message;
}

Payload encode(const AccumulatorAnswer& answer) {
  return write_fields(answer, kAccumulatorAnswerFields);
}

Result<AccumulatorAnswer> decode_accumulator_answer(const Payload& payload) {
  return read_fields<AccumulatorAnswer>(payload, "an accumulator's answer",
                                        kAccumulatorAnswerFields);
}

}  // namespace reverie
