// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/round_message.h"

#include "reverie/group/membership.h"
#include "reverie/messages/message_fields.h"

namespace reverie {
namespace {

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

constexpr auto kOfferFields = [](auto& fields, auto& offer) {
  fields.number(offer.pid);
  fields.number(offer.fd);
  fields.number(offer.nonce[0]);
  fields.number(offer.nonce[1]);
};

constexpr auto kShareAskFields = [](auto& fields, auto& ask) {
  fields.number(ask.step, static_cast<std::uint64_t>(ShareStep::kDoesNot));
  fields.text(ask.host, kHostNameMax);
  kOfferFields(fields, ask.offer);
  fields.number(ask.bytes_max);
};

constexpr auto kShareFields = [](auto& fields, auto& word) {
  fields.number(word.kind, static_cast<std::uint64_t>(ShareWord::Kind::kCalls));
  kOfferFields(fields, word.offer);
  fields.array(word.hosts);
  fields.number(word.bytes_max);
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

Status check_host_name(std::string_view name) {
  if (name.size() <= kHostNameMax) return {};
  return invalid_argument("the name of the host has {} bytes; it may have {}", name.size(),
                          kHostNameMax);
}

std::vector<std::byte> encode(const ShareQuery& ask) {
  return write_fields(ask, kShareAskFields).head;
}

Result<ShareQuery> decode_share_query(std::span<const std::byte> head) {
  Payload payload;
  payload.head.assign(head.begin(), head.end());
  REVERIE_ASSIGN_OR_RETURN(
      ShareQuery ask, read_fields<ShareQuery>(payload, "what a member shares", kShareAskFields));
  if (ask.offer.fd < -1) return data_loss("a member offers descriptor {}", ask.offer.fd);
  return ask;
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
