// Who is in a group: what the broker tells its members, and what they tell the broker.
//
//     member --> broker   WATCH  who I am, the membership that I have
//     broker --> member          the next one, once there is one; then the member asks again
//     member --> broker   LEAVE
//
// A membership is one epoch of a group: the epochs of a group are numbered upwards, and the id, 64
// random bits, tells apart those that two brokers, or two runs of one, gave the same number.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/rpc/message.h"

namespace reverie {

// The function that members call on their broker's peer.
inline constexpr char kBrokerFunction[] = "reverie.broker";

inline constexpr std::size_t kGroupNameMax = 256;
inline constexpr std::size_t kMembersMax = 4096;

struct Member {
  std::string name;
  std::uint64_t incarnation = 0;  // random: one joining of one process
  std::int64_t sort_order = 0;
  friend bool operator==(const Member&, const Member&) = default;
};

struct Membership {
  std::uint64_t epoch = 0;  // 0: none yet, and no members
  std::uint64_t id = 0;
  std::vector<Member> members;  // by sort order, then in the order in which they joined

  std::optional<std::size_t> index_of(std::string_view name) const;
  // Names of those that this one has and `other` has not, or has in another incarnation.
  std::vector<std::string> lost_in(const Membership& other) const;
};

enum class BrokerAsk : std::uint8_t { kWatch = 1, kLeave = 2 };

// What a member asks its broker.
struct BrokerRequest {
  BrokerAsk ask = BrokerAsk::kWatch;
  std::string group;
  Member who;
  Membership known;
  // The broker is to answer at once if `known` is what it has: the member does not know whether the
  // broker has it.
  bool wants_word = false;
};

Payload encode(const BrokerRequest& request);
Payload encode(const Membership& membership);
// DATA_LOSS for anything else than what encode() makes.
Result<BrokerRequest> decode_broker_request(const Payload& payload);
Result<Membership> decode_membership(const Payload& payload);

// INVALID_ARGUMENT unless `name` has 1 to kGroupNameMax bytes.
Status check_group_name(std::string_view name);

}  // namespace reverie
