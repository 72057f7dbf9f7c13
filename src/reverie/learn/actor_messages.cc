// Tested in tests/integration/remote_actors_test.cc.
#include "reverie/learn/actor_messages.h"

#include "reverie/messages/message_fields.h"

namespace reverie {
namespace {

constexpr auto kOrderFields = [](auto& fields, auto& order) {
  fields.number(order.steps);
  fields.number(order.policy);
  fields.flag(order.is_over);
};

}  // namespace

Payload encode(const ActorOrder& order) {
  return write_fields(order, kOrderFields);
}

Result<ActorOrder> decode_actor_order(const Payload& payload) {
  return read_fields<ActorOrder>(payload, "an order to an actor", kOrderFields);
}

}  // namespace reverie
