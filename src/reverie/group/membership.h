// Who is in a group: what the broker tells its members, and what they tell the broker.
//
//     member --> broker   WATCH  who I am, the membership that I have
//     broker --> member          the next one, once there is one; then the member asks again
//     member --> broker   LEAVE
// A membership is one epoch of a group. Epochs are numbered upwards; the id, 64 random bits,
// distinguishes epochs to which two brokers, or two runs of one, gave the same number.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// The function that members call on their broker's peer.
inline constexpr char kBrokerFunction[] = "reverie.broker";

inline constexpr std::size_t kGroupNameMax = 256;
inline constexpr std::size_t kMembersMax = 4096;

struct Member {
  std::string name;
  std::uint64_t incarnation = 0;  // random, new for each join
  std::int64_t sort_order = 0;
  friend bool operator==(const Member&, const Member&) = default;
};

struct Membership {
  std::uint64_t epoch = 0;  // 0: none yet, and no members
  std::uint64_t id = 0;
  std::vector<Member> members;  // by sort order, then in the order in which they joined

  std::optional<std::size_t> index_of(std::string_view name) const;
  // The names of members that `other` lacks, or has in another incarnation.
  std::vector<std::string> lost_in(const Membership& other) const;
};

enum class BrokerRequestKind : std::uint8_t { kWatch = 1, kLeave = 2 };

// A member's request to its broker.
struct BrokerRequest {
  BrokerRequestKind ask = BrokerRequestKind::kWatch;
  std::string group;
  Member self;
  Membership known;
  // The broker must answer at once even if `known` is its membership: the member does not know
  // whether the broker has it.
  bool wants_word = false;
};

Payload encode(const BrokerRequest& request);
Payload encode(const Membership& membership);
// DATA_LOSS for a message that encode() does not make.
Result<BrokerRequest> decode_broker_request(const Payload& payload);
Result<Membership> decode_membership(const Payload& payload);

// INVALID_ARGUMENT unless `name` has 1 to kGroupNameMax bytes.
Status check_group_name(std::string_view name);

}  // namespace reverie
