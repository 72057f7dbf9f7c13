// What the members of an accumulator say to each other, by calls of one function.
//
//     VOTE     to the first member    my version and model
//     ELECTED  from the first member  who leads; or, without a name: vote in this generation
//     REPORT   to the leader          the samples that I have for the open round; I need the model
//     CALLED   from the leader        so many rounds are to begin
//     STATE    from the leader        the model
//
// Each says how things stand, not what has changed, and names its generation. So one that comes
// twice, late, or in another order does no harm, and is sent until it is answered.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/rpc/message.h"

namespace reverie {

// Rounds belong to one run of them: a membership has one, and another after a round that failed.
struct AccumulatorKey {
  std::uint64_t membership = 0;  // 0: none
  std::uint64_t generation = 0;
  friend auto operator<=>(const AccumulatorKey&, const AccumulatorKey&) = default;
};

enum class AccumulatorSays : std::uint8_t {
  kVote = 1,
  kElected = 2,
  kReport = 3,
  kCalled = 4,
  kState = 5,
};

// A member as it stands for election.
struct AccumulatorVote {
  std::string name;
  std::uint64_t version = 0;
  std::uint64_t lineage = 0;
  bool is_still = false;  // its program has not advanced for a while
  std::string average;
  std::vector<std::string> signature;  // one entry for each array
};

struct AccumulatorMessage {
  AccumulatorSays says = AccumulatorSays::kVote;
  AccumulatorKey key;
  AccumulatorVote vote;    // kVote, kElected; version and lineage also in kState
  std::uint64_t slot = 0;  // kReport: the open one; kCalled: how many; kState: how many are in it
  std::uint64_t samples = 0;     // kReport
  std::uint64_t need = 0;        // kReport: how often the model was asked for
  std::vector<std::byte> value;  // kState: the head of what the program gave
};

// What the receiver says.
struct AccumulatorAnswer {
  bool is_taken = false;  // if not, it is to be sent again
  AccumulatorKey key;     // of the receiver
};

// The head alone: the bulk is the caller's to add.
Payload encode(const AccumulatorMessage& message);
Payload encode(const AccumulatorAnswer& answer);
// DATA_LOSS for anything else than what encode() makes.
Result<AccumulatorMessage> decode_accumulator_message(const Payload& payload);
Result<AccumulatorAnswer> decode_accumulator_answer(const Payload& payload);

}  // namespace reverie
