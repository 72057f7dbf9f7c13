// What members of a group say to each other, by calls of one function each group has.
//
//     PART   up or down a tree: a part of arrays, or gathered values    -> an empty answer: taken
//     ABORT  the round cannot be finished, and why
//     ASK    have you begun this round, and does your program advance?  -> yes or no, seconds
//     SHARE  to the first: where is your memory?  I see it, I do not
//            -> there; all do, or not all
//
// Each names the membership and the round: a user's name, and how often it was used before in this
// membership.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/reduce/share_segment.h"
#include "reverie/rpc/message.h"

namespace reverie {

inline constexpr std::size_t kRoundNameMax = 512;

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
  // Up and down.
  std::uint64_t signature = 0;  // of what is reduced
  std::uint64_t part = 0;       // of ASK: 1 asks for the signature; of SHARE: a ShareStep
  std::vector<std::byte> head;  // of gathered values
  // Set in an abort only.
  Status status;
  std::string lost;  // the member that was lost, or empty
};

// The head alone: the bulk is the caller's to add.
Payload encode(const RoundMessage& message);
Result<RoundMessage> decode_round_message(const Payload& payload);

// The answer to ASK.
struct RoundWord {
  bool has_begun = false;
  std::int64_t still_ms = 0;  // since the program advanced last
  std::string signature;      // of the round, where it was asked for
  // How the round ended there, unless it has a result or is under way: an abort may be lost.
  Status ended;
  std::string lost;
};
Payload encode(const RoundWord& word);
Result<RoundWord> decode_round_word(const Payload& payload);

// What a member tells the first one of shared memory.
enum class ShareStep : std::uint8_t { kAsks = 0, kSees = 1, kDoesNot = 2 };

// The answer to SHARE.
struct ShareWord {
  enum class Kind : std::uint8_t {
    kOffer = 1,   // `offer` is to be looked at
    kShared = 2,  // all members see it: rounds go through it
    kCalls = 3,   // not all do: none goes through it
  };
  Kind kind = Kind::kCalls;
  ShareOffer offer;
};
Payload encode(const ShareWord& word);
Result<ShareWord> decode_share_word(const Payload& payload);

}  // namespace reverie
