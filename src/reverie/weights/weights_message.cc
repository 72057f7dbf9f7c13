// Tested in weights_core_test.cc.
#include "reverie/weights/weights_message.h"

#include <cstring>
#include <limits>
#include <span>

#include "reverie/group/fields.h"
#include "reverie/group/membership.h"

namespace reverie {
namespace {

constexpr std::size_t kHostMax = 256;

}  // namespace

Payload encode(const WeightsAsk& ask) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 8);
  write_number(writer, ask.at_least);
  write_number(writer, ask.has_version ? 1 : 0);
  write_number(writer, ask.version);
  write_number(writer, ask.maps ? 1 : 0);
  write_number(writer, ask.waits ? 1 : 0);
  write_number(writer, ask.is_reachable ? 1 : 0);
  writer.text(ask.host);
  writer.text(ask.refused);
  return payload;
}

Result<WeightsAsk> decode_weights_ask(const Payload& payload) {
  FieldReader fields(payload);
  WeightsAsk ask;
  REVERIE_RETURN_IF_ERROR(fields.begin(8));
  REVERIE_ASSIGN_OR_RETURN(ask.at_least, fields.number());
  REVERIE_ASSIGN_OR_RETURN(ask.has_version, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(ask.version, fields.number());
  REVERIE_ASSIGN_OR_RETURN(ask.maps, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(ask.waits, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(ask.is_reachable, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(ask.host, fields.text(kHostMax));
  REVERIE_ASSIGN_OR_RETURN(ask.refused, fields.text(kGroupNameMax));
  REVERIE_RETURN_IF_ERROR(fields.end());
  return ask;
}

Payload encode(const WeightsAnswer& answer) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 11);
  write_number(writer, static_cast<std::uint64_t>(answer.kind));
  write_number(writer, answer.version);
  writer.integer(answer.place.pid);
  writer.integer(answer.place.fd);
  write_number(writer, answer.place.nonce[0]);
  write_number(writer, answer.place.nonce[1]);
  writer.bytes(answer.head);
  writer.text(answer.peer);
  write_number(writer, answer.base);
  write_number(writer, answer.checksum);
  writer.bytes(std::as_bytes(std::span(answer.blocks)));
  return payload;
}

Result<WeightsAnswer> decode_weights_answer(const Payload& payload) {
  FieldReader fields(payload);
  WeightsAnswer answer;
  REVERIE_RETURN_IF_ERROR(fields.begin(11));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t kind,
                           fields.size(static_cast<std::size_t>(WeightsAnswer::Kind::kElsewhere)));
  answer.kind = static_cast<WeightsAnswer::Kind>(kind);
  REVERIE_ASSIGN_OR_RETURN(answer.version, fields.number());
  REVERIE_ASSIGN_OR_RETURN(answer.place.pid, fields.integer());
  REVERIE_ASSIGN_OR_RETURN(answer.place.fd, fields.integer());
  REVERIE_ASSIGN_OR_RETURN(answer.place.nonce[0], fields.number());
  REVERIE_ASSIGN_OR_RETURN(answer.place.nonce[1], fields.number());
  REVERIE_ASSIGN_OR_RETURN(const auto head, fields.bytes());
  answer.head.assign(head.begin(), head.end());
  REVERIE_ASSIGN_OR_RETURN(answer.peer, fields.text(kGroupNameMax));
  REVERIE_ASSIGN_OR_RETURN(answer.base, fields.number());
  REVERIE_ASSIGN_OR_RETURN(const std::size_t checksum,
                           fields.size(std::numeric_limits<std::uint32_t>::max()));
  answer.checksum = static_cast<std::uint32_t>(checksum);
  REVERIE_ASSIGN_OR_RETURN(const auto blocks, fields.bytes());
  REVERIE_RETURN_IF_ERROR(fields.end());
  if (answer.place.fd < -1 || answer.place.fd > (1 << 30)) {
    return data_loss("a source of weights names the descriptor {}", answer.place.fd);
  }
  if (blocks.size() % sizeof(std::uint32_t) != 0) {
    return data_loss("a source of weights names blocks in {} bytes", blocks.size());
  }
  if (payload.bulk.size() > 1) return data_loss("weights came in {} pieces", payload.bulk.size());
  answer.blocks.resize(blocks.size() / sizeof(std::uint32_t));
  if (!blocks.empty()) std::memcpy(answer.blocks.data(), blocks.data(), blocks.size());
  return answer;
}

}  // namespace reverie
