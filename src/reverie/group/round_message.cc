// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/round_message.h"

#include "reverie/group/membership.h"
#include "reverie/messages/message_fields.h"

namespace reverie {
namespace {

constexpr std::size_t kSignatureTextMax = std::size_t{64} << 10;

constexpr auto kRoundFields = [](auto& fields, auto& message) {
  fields.number(message.kind, static_cast<std::uint64_t>(RoundMessageKind::kShare));
  fields.number(message.membership);
  fields.text(message.round.name, kRoundNameMax);
  fields.number(message.round.count);
  fields.number(message.signature);
  fields.number(message.part);
  fields.array(message.head);
  fields.status(message.status);
  fields.text(message.lost, kGroupNameMax);
};

constexpr auto kRoundWordFields = [](auto& fields, auto& word) {
  fields.flag(word.has_begun);
  fields.number(word.still_ms);
  fields.text(word.signature, kSignatureTextMax);
  fields.status(word.ended);
  fields.text(word.lost, kGroupNameMax);
};

constexpr auto kShareFields = [](auto& fields, auto& word) {
  fields.number(word.kind, 3);
  fields.number(word.offer.pid);
  fields.number(word.offer.fd);
  fields.number(word.offer.nonce[0]);
  fields.number(word.offer.nonce[1]);
};

}  // namespace

Payload encode(const RoundMessage& message) {
  return write_fields(message, kRoundFields);
}

Result<RoundMessage> decode_round_message(const Payload& payload) {
  REVERIE_ASSIGN_OR_RETURN(RoundMessage message,
                           read_fields<RoundMessage>(payload, "a group's message", kRoundFields));
  if (message.kind == RoundMessageKind::kAbort && message.status.ok()) {
    return data_loss("a round ends without a reason");
  }
  return message;
}

Payload encode(const RoundWord& word) {
  return write_fields(word, kRoundWordFields);
}

Result<RoundWord> decode_round_word(const Payload& payload) {
  return read_fields<RoundWord>(payload, "a group's answer", kRoundWordFields);
}

Payload encode(const ShareWord& word) {
  return write_fields(word, kShareFields);
}

Result<ShareWord> decode_share_word(const Payload& payload) {
  REVERIE_ASSIGN_OR_RETURN(ShareWord word,
                           read_fields<ShareWord>(payload, "a group's share", kShareFields));
  if (word.kind == ShareWord::Kind{} || word.offer.fd < -1) {
    return data_loss("a member's message about shared memory is invalid");
  }
  return word;
}

}  // namespace reverie
