// The messages that members of a group exchange, by calls of one function per group.
//
// - PART, up or down a tree: a part of arrays, or gathered values. An empty answer: accepted.
// - ABORT: the round cannot be finished, and why.
// - ASK: have you begun this round, and does your program advance? The answer: yes or no, seconds.
// - SHARE, to the first member: my host; where my host's memory is; I can map it, or not. The
//   answers: make your host's memory; it is there; all can map theirs, or not all.
//
// Each message names the membership and the round: its name, and how often that was used before in
// this membership.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/reduce/share_segment.h"
#include "reverie/tensor/payload.h"

namespace reverie {

inline constexpr std::size_t kRoundNameMax = 512;
inline constexpr std::size_t kHostNameMax = 512;
// A longer signature is sent up to there.
inline constexpr std::size_t kSignatureTextMax = std::size_t{64} << 10;

struct RoundKey {
  std::string name;
  std::uint64_t count = 0;
  friend auto operator<=>(const RoundKey&, const RoundKey&) = default;
};

enum class RoundMessageKind : std::uint8_t { kUp = 0, kDown = 1, kAbort = 2, kAsk = 3, kShare = 4 };

struct RoundMessage {
  RoundMessageKind kind = RoundMessageKind::kUp;
  std::uint64_t membership = 0;
  RoundKey round;
  // Parts up and down a tree.
  std::uint64_t signature = 0;  // of what is reduced
  std::uint64_t part = 0;       // of ASK: 1 asks for the signature
  std::vector<std::byte> head;  // of gathered values; of SHARE: a ShareQuery
  // Set in an abort only.
  Status status;
  std::string lost;  // the member that was lost, or empty
};

// The head alone: the caller adds the bulk.
Payload encode(const RoundMessage& message);
Result<RoundMessage> decode_round_message(const Payload& payload);

// The answer to ASK.
struct RoundWord {
  bool has_begun = false;
  std::int64_t still_ms = 0;  // since the program advanced last
  std::string signature;      // of the round, where it was asked for
  // How the round ended there, unless it has a result or is in progress: an abort may be lost.
  Status ended;
  std::string lost;
};
Payload encode(const RoundWord& word);
Result<RoundWord> decode_round_word(const Payload& payload);

// INVALID_ARGUMENT for more than kHostNameMax bytes.
Status check_host_name(std::string_view name);

// A member's message about shared memory to the first member.
enum class ShareStep : std::uint8_t {
  kAsks = 0,     // it is on `host`
  kLeads = 1,    // `offer` is the memory of its host
  kSees = 2,     // it has mapped the memory of its host, or is alone on it
  kDoesNot = 3,  // it has no memory to share, or cannot map it
};
struct ShareQuery {
  ShareStep step = ShareStep::kAsks;
  std::string host;
  ShareOffer offer;
  std::uint64_t bytes_max = 0;  // of an array in the memory that it offers
};
std::vector<std::byte> encode(const ShareQuery& ask);
Result<ShareQuery> decode_share_query(std::span<const std::byte> head);

// The answer to SHARE.
struct ShareWord {
  enum class Kind : std::uint8_t {
    kLead = 1,    // the member must make the memory of its host, unless it is alone on it
    kOffer = 2,   // the member must try to map `offer`
    kShared = 3,  // all members have mapped theirs: rounds go through it
    kCalls = 4,   // not all have: rounds go over calls
  };
  Kind kind = Kind::kCalls;
  ShareOffer offer;
  std::vector<std::uint32_t> hosts;  // of kLead and kOffer: Hosts::numbers()
  std::uint64_t bytes_max = 0;       // of kShared: of an array that goes through it
};
Payload encode(const ShareWord& word);
Result<ShareWord> decode_share_word(const Payload& payload);

}  // namespace reverie
