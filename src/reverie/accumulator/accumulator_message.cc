// Tested in tests/sim/accumulator_sim_test.cc.
#include "reverie/accumulator/accumulator_message.h"

#include "reverie/group/fields.h"
#include "reverie/group/membership.h"

namespace reverie {
namespace {

constexpr std::size_t kAverageMax = 64;
constexpr std::size_t kArraysMax = std::size_t{1} << 20;
constexpr std::size_t kArrayTextMax = 4096;
constexpr std::size_t kSamplesMax = std::size_t{1} << 50;

}  // namespace

Payload encode(const AccumulatorMessage& message) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 13);
  write_number(writer, static_cast<std::uint64_t>(message.says));
  write_number(writer, message.key.membership);
  write_number(writer, message.key.generation);
  writer.text(message.vote.name);
  write_number(writer, message.vote.version);
  write_number(writer, message.vote.lineage);
  write_number(writer, message.vote.is_still ? 1 : 0);
  writer.text(message.vote.average);
  writer.begin(ValueKind::kList, message.vote.signature.size());
  for (const std::string& array : message.vote.signature) {
    writer.text(std::string_view(array).substr(0, kArrayTextMax));
  }
  write_number(writer, message.slot);
  write_number(writer, message.samples);
  write_number(writer, message.need);
  writer.bytes(message.value);
  return payload;
}

Result<AccumulatorMessage> decode_accumulator_message(const Payload& payload) {
  FieldReader fields(payload);
  AccumulatorMessage message;
  REVERIE_RETURN_IF_ERROR(fields.begin(13));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t says, fields.size(5));
  if (says == 0) return data_loss("a message of an accumulator has no kind");
  message.says = static_cast<AccumulatorSays>(says);
  REVERIE_ASSIGN_OR_RETURN(message.key.membership, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.key.generation, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.vote.name, fields.text(kGroupNameMax));
  REVERIE_ASSIGN_OR_RETURN(message.vote.version, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.vote.lineage, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.vote.is_still, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(message.vote.average, fields.text(kAverageMax));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t arrays, fields.list(kArraysMax));
  for (std::size_t i = 0; i < arrays; ++i) {
    REVERIE_ASSIGN_OR_RETURN(std::string array, fields.text(kArrayTextMax));
    message.vote.signature.push_back(std::move(array));
  }
  REVERIE_ASSIGN_OR_RETURN(message.slot, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.samples, fields.size(kSamplesMax));
  REVERIE_ASSIGN_OR_RETURN(message.need, fields.number());
  REVERIE_ASSIGN_OR_RETURN(const auto value, fields.bytes());
  message.value.assign(value.begin(), value.end());
  REVERIE_RETURN_IF_ERROR(fields.end());
  return message;
}

Payload encode(const AccumulatorAnswer& answer) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 3);
  write_number(writer, answer.is_taken ? 1 : 0);
  write_number(writer, answer.key.membership);
  write_number(writer, answer.key.generation);
  return payload;
}

Result<AccumulatorAnswer> decode_accumulator_answer(const Payload& payload) {
  FieldReader fields(payload);
  AccumulatorAnswer answer;
  REVERIE_RETURN_IF_ERROR(fields.begin(3));
  REVERIE_ASSIGN_OR_RETURN(answer.is_taken, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(answer.key.membership, fields.number());
  REVERIE_ASSIGN_OR_RETURN(answer.key.generation, fields.number());
  REVERIE_RETURN_IF_ERROR(fields.end());
  return answer;
}

}  // namespace reverie
