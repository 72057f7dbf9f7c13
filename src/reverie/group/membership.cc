// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/membership.h"

#include <algorithm>

#include "reverie/group/fields.h"

namespace reverie {
namespace {

void write(ValueWriter& writer, const Member& member) {
  writer.begin(ValueKind::kTuple, 3);
  writer.text(member.name);
  write_number(writer, member.incarnation);
  writer.integer(member.sort_order);
}

void write(ValueWriter& writer, const Membership& membership) {
  writer.begin(ValueKind::kTuple, 3);
  write_number(writer, membership.epoch);
  write_number(writer, membership.id);
  writer.begin(ValueKind::kList, membership.members.size());
  for (const Member& member : membership.members) write(writer, member);
}

Result<Member> read_member(FieldReader& fields) {
  Member member;
  REVERIE_RETURN_IF_ERROR(fields.begin(3));
  REVERIE_ASSIGN_OR_RETURN(member.name, fields.text(kGroupNameMax));
  REVERIE_ASSIGN_OR_RETURN(member.incarnation, fields.number());
  REVERIE_ASSIGN_OR_RETURN(member.sort_order, fields.integer());
  return member;
}

Result<Membership> read_membership(FieldReader& fields) {
  Membership membership;
  REVERIE_RETURN_IF_ERROR(fields.begin(3));
  REVERIE_ASSIGN_OR_RETURN(membership.epoch, fields.number());
  REVERIE_ASSIGN_OR_RETURN(membership.id, fields.number());
  REVERIE_ASSIGN_OR_RETURN(const std::size_t count, fields.list(kMembersMax));
  for (std::size_t i = 0; i < count; ++i) {
    REVERIE_ASSIGN_OR_RETURN(Member member, read_member(fields));
    if (membership.index_of(member.name)) {
      return data_loss("a membership has '{}' twice", member.name);
    }
    membership.members.push_back(std::move(member));
  }
  if ((membership.epoch == 0) != membership.members.empty()) {
    return data_loss("a membership of epoch {} has {} members", membership.epoch, count);
  }
  return membership;
}

}  // namespace

std::optional<std::size_t> Membership::index_of(std::string_view name) const {
  const auto place = std::find_if(members.begin(), members.end(),
                                  [&](const Member& member) { return member.name == name; });
  if (place == members.end()) return std::nullopt;
  return static_cast<std::size_t>(place - members.begin());
}

std::vector<std::string> Membership::lost_in(const Membership& other) const {
  std::vector<std::string> lost;
  for (const Member& member : members) {
    const auto index = other.index_of(member.name);
    if (!index || other.members[*index].incarnation != member.incarnation) {
      lost.push_back(member.name);
    }
  }
  return lost;
}

Payload encode(const BrokerRequest& request) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 5);
  write_number(writer, static_cast<std::uint64_t>(request.ask));
  writer.text(request.group);
  write(writer, request.self);
  write(writer, request.known);
  write_number(writer, request.wants_word ? 1 : 0);
  return payload;
}

Payload encode(const Membership& membership) {
  Payload payload;
  ValueWriter writer(payload);
  write(writer, membership);
  return payload;
}

Result<BrokerRequest> decode_broker_request(const Payload& payload) {
  FieldReader fields(payload);
  BrokerRequest request;
  REVERIE_RETURN_IF_ERROR(fields.begin(5));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t ask, fields.size(2));
  request.ask = static_cast<BrokerRequestKind>(ask);
  REVERIE_ASSIGN_OR_RETURN(request.group, fields.text(kGroupNameMax));
  REVERIE_ASSIGN_OR_RETURN(request.self, read_member(fields));
  REVERIE_ASSIGN_OR_RETURN(request.known, read_membership(fields));
  REVERIE_ASSIGN_OR_RETURN(request.wants_word, fields.flag());
  REVERIE_RETURN_IF_ERROR(fields.end());
  if (ask == 0) return data_loss("a member's request to its broker is unknown");
  return request;
}

Result<Membership> decode_membership(const Payload& payload) {
  FieldReader fields(payload);
  REVERIE_ASSIGN_OR_RETURN(Membership membership, read_membership(fields));
  REVERIE_RETURN_IF_ERROR(fields.end());
  return membership;
}

Status check_group_name(std::string_view name) {
  if (name.empty() || name.size() > kGroupNameMax) {
    return invalid_argument("the name of a group has {} bytes; it must have 1 to {}", name.size(),
                            kGroupNameMax);
  }
  return {};
}

}  // namespace reverie
