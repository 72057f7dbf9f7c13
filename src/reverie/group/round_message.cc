// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/round_message.h"

#include <limits>

#include "reverie/group/fields.h"
#include "reverie/group/membership.h"

namespace reverie {
namespace {

constexpr std::size_t kTextMax = std::size_t{64} << 10;

bool is_code(std::size_t code) {
  return code > 0 && code <= 16 && code != 2 && code != 10;
}

}  // namespace

Payload encode(const RoundMessage& message) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 10);
  write_number(writer, static_cast<std::uint64_t>(message.kind));
  write_number(writer, message.membership);
  writer.text(message.round.name);
  write_number(writer, message.round.count);
  write_number(writer, message.signature);
  write_number(writer, message.part);
  writer.bytes(message.head);
  write_number(writer, static_cast<std::uint64_t>(message.status.code()));
  writer.text(std::string_view(message.status.message()).substr(0, kTextMax));
  writer.text(message.lost);
  return payload;
}

Result<RoundMessage> decode_round_message(const Payload& payload) {
  FieldReader fields(payload);
  RoundMessage message;
  REVERIE_RETURN_IF_ERROR(fields.begin(10));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t kind, fields.size(4));
  message.kind = static_cast<RoundMessageKind>(kind);
  REVERIE_ASSIGN_OR_RETURN(message.membership, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.round.name, fields.text(kRoundNameMax));
  REVERIE_ASSIGN_OR_RETURN(message.round.count, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.signature, fields.number());
  REVERIE_ASSIGN_OR_RETURN(message.part, fields.number());
  REVERIE_ASSIGN_OR_RETURN(const auto head, fields.bytes());
  message.head.assign(head.begin(), head.end());
  REVERIE_ASSIGN_OR_RETURN(const std::size_t code, fields.size(16));
  REVERIE_ASSIGN_OR_RETURN(std::string text, fields.text(kTextMax));
  REVERIE_ASSIGN_OR_RETURN(message.lost, fields.text(kGroupNameMax));
  REVERIE_RETURN_IF_ERROR(fields.end());
  if (message.kind == RoundMessageKind::kAbort) {
    if (!is_code(code)) return data_loss("a round ends with the code {}, which is unknown", code);
    message.status = Status(static_cast<StatusCode>(code), std::move(text));
  }
  return message;
}

Payload encode(const RoundWord& word) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 6);
  write_number(writer, word.has_begun ? 1 : 0);
  writer.integer(word.still_ms);
  writer.text(std::string_view(word.signature).substr(0, kTextMax));
  write_number(writer, static_cast<std::uint64_t>(word.ended.code()));
  writer.text(std::string_view(word.ended.message()).substr(0, kTextMax));
  writer.text(word.lost);
  return payload;
}

Result<RoundWord> decode_round_word(const Payload& payload) {
  FieldReader fields(payload);
  RoundWord word;
  REVERIE_RETURN_IF_ERROR(fields.begin(6));
  REVERIE_ASSIGN_OR_RETURN(word.has_begun, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(word.still_ms, fields.integer());
  REVERIE_ASSIGN_OR_RETURN(word.signature, fields.text(kTextMax));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t code, fields.size(16));
  REVERIE_ASSIGN_OR_RETURN(std::string text, fields.text(kTextMax));
  REVERIE_ASSIGN_OR_RETURN(word.lost, fields.text(kGroupNameMax));
  REVERIE_RETURN_IF_ERROR(fields.end());
  if (code != 0) {
    if (!is_code(code)) return data_loss("a round ended with the code {}, which is unknown", code);
    word.ended = Status(static_cast<StatusCode>(code), std::move(text));
  }
  return word;
}

Payload encode(const ShareWord& word) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 5);
  write_number(writer, static_cast<std::uint64_t>(word.kind));
  writer.integer(word.offer.pid);
  writer.integer(word.offer.fd);
  write_number(writer, word.offer.nonce[0]);
  write_number(writer, word.offer.nonce[1]);
  return payload;
}

Result<ShareWord> decode_share_word(const Payload& payload) {
  FieldReader fields(payload);
  ShareWord word;
  REVERIE_RETURN_IF_ERROR(fields.begin(5));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t kind, fields.size(3));
  word.kind = static_cast<ShareWord::Kind>(kind);
  REVERIE_ASSIGN_OR_RETURN(word.offer.pid, fields.integer());
  REVERIE_ASSIGN_OR_RETURN(const std::int64_t fd, fields.integer());
  REVERIE_ASSIGN_OR_RETURN(word.offer.nonce[0], fields.number());
  REVERIE_ASSIGN_OR_RETURN(word.offer.nonce[1], fields.number());
  REVERIE_RETURN_IF_ERROR(fields.end());
  if (kind == 0 || fd < -1 || fd > std::numeric_limits<int>::max()) {
    return data_loss("a member says of shared memory what no member says");
  }
  word.offer.fd = static_cast<int>(fd);
  return word;
}

}  // namespace reverie
