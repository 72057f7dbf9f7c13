// Tested in tests/integration/remote_actors_test.cc.
#include "reverie/learn/actor_messages.h"

#include "reverie/group/fields.h"

namespace reverie {

Payload encode(const ActorOrder& order) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 3);
  write_number(writer, order.steps);
  write_number(writer, order.policy);
  write_number(writer, order.is_over ? 1 : 0);
  return payload;
}

Result<ActorOrder> decode_actor_order(const Payload& payload) {
  FieldReader fields(payload);
  ActorOrder order;
  REVERIE_RETURN_IF_ERROR(fields.begin(3));
  REVERIE_ASSIGN_OR_RETURN(order.steps, fields.number());
  REVERIE_ASSIGN_OR_RETURN(order.policy, fields.number());
  REVERIE_ASSIGN_OR_RETURN(order.is_over, fields.flag());
  REVERIE_RETURN_IF_ERROR(fields.end());
  return order;
}

}  // namespace reverie
