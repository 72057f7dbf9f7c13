// Tested in weights_core_test.cc.
#include "reverie/weights/weights_message.h"

#include <cstdint>
#include <limits>

#include "reverie/group/membership.h"
#include "reverie/messages/message_fields.h"

namespace reverie {
namespace {

constexpr std::size_t kHostMax = 256;

constexpr auto kAskFields = [](auto& fields, auto& ask) {
  fields.number(ask.at_least);
  fields.number(ask.run);
  fields.flag(ask.has_version);
  fields.number(ask.version);
  fields.flag(ask.maps);
  fields.flag(ask.waits);
  fields.number(ask.reach, static_cast<std::uint64_t>(WeightsRequest::Reach::kAll));
  fields.text(ask.host, kHostMax);
  fields.text(ask.refused, kGroupNameMax);
};

constexpr auto kAnswerFields = [](auto& fields, auto& answer) {
  fields.number(answer.kind, static_cast<std::uint64_t>(WeightsAnswer::Kind::kElsewhere));
  fields.number(answer.run);
  fields.number(answer.version);
  fields.number(answer.place.pid);
  fields.number(answer.place.fd);
  fields.number(answer.place.nonce[0]);
  fields.number(answer.place.nonce[1]);
  fields.array(answer.head);
  fields.text(answer.peer, kGroupNameMax);
  fields.number(answer.base);
  fields.number(answer.checksum, std::numeric_limits<std::uint32_t>::max());
  fields.array(answer.blocks);
};

}  // namespace

Payload encode(const WeightsRequest& ask) {
  return write_fields(ask, kAskFields);
}

Result<WeightsRequest> decode_weights_request(const Payload& payload) {
  return read_fields<WeightsRequest>(payload, "a request for weights", kAskFields);
}

Payload encode(const WeightsAnswer& answer) {
  return write_fields(answer, kAnswerFields);
}

Result<WeightsAnswer> decode_weights_answer(const Payload& payload) {
  REVERIE_ASSIGN_OR_RETURN(
      WeightsAnswer answer,
      read_fields<WeightsAnswer>(payload, "an answer with weights", kAnswerFields));
  if (answer.place.fd < -1 || answer.place.fd > (1 << 30)) {
    return data_loss("a source of weights names the descriptor {}", answer.place.fd);
  }
  if (payload.bulk.size() > 1) return data_loss("weights came in {} pieces", payload.bulk.size());
  return answer;
}

}  // namespace reverie
