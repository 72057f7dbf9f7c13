// The messages between members of an accumulator, sent as calls of one function.
//
//     VOTE     to the first member    my version and model
//     ELECTED  from the first member  who leads; or, without a name: vote in this generation
//     REPORT   to the leader          the samples that I have for the open round; I need the model
//     CALLED   from the leader        so many rounds are to begin
//     GIVE     from the leader        the members that you are to give the model to
//     GAVE     to the leader          the members that I have sent it to, or could not reach
//     STATE    from any member        the model, and to which members you are to pass it on
//
// Each message states the current situation, not a change, and names its generation. So a message
// that arrives twice, late, or out of order does no harm, and is resent until it is answered.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// Identifies a generation: a membership begins one, and a failed round the next.
struct AccumulatorKey {
  std::uint64_t membership = 0;  // 0: none
  std::uint64_t generation = 0;
  friend auto operator<=>(const AccumulatorKey&, const AccumulatorKey&) = default;
};

enum class AccumulatorMessageKind : std::uint8_t {
  kVote = 1,
  kElected = 2,
  kReport = 3,
  kCalled = 4,
  kState = 5,
  kGive = 6,
  kGave = 7,
};

// A member's vote in an election.
struct AccumulatorVote {
  std::string name;
  std::uint64_t version = 0;
  std::uint64_t lineage = 0;
  bool is_still = false;  // its program has stalled
  std::string average;
  std::vector<std::string> signature;  // one entry for each array
};

// One member's model for another member.
struct AccumulatorGift {
  std::string to;
  std::uint64_t number = 0;  // grows with each that the leader asks for; 0: it did not ask
  bool is_lost = false;      // it did not arrive
};

struct AccumulatorMessage {
  AccumulatorMessageKind kind = AccumulatorMessageKind::kVote;
  AccumulatorKey key;
  AccumulatorVote vote;                // kVote, kElected; version and lineage also in kState
  std::uint64_t slot = 0;              // kReport: open slot; kCalled: count; kState: rounds in it
  std::uint64_t samples = 0;           // kReport
  std::uint64_t need = 0;              // kReport: how often the model was requested
  bool has_model = false;              // kReport
  std::vector<AccumulatorGift> gifts;  // kGive, kGave; kState: to pass on
  std::vector<std::byte> value;        // kState: the head of what the program gave
};

// The receiver's answer.
struct AccumulatorAnswer {
  bool is_taken = false;     // if not, it must be resent
  AccumulatorKey key;        // of the receiver
  std::uint64_t called = 0;  // to a kReport: as kCalled
};

// Encodes only the head: the caller adds the bulk.
Payload encode(const AccumulatorMessage& message);
Payload encode(const AccumulatorAnswer& answer);
// DATA_LOSS unless encode() makes such a message.
Result<AccumulatorMessage> decode_accumulator_message(const Payload& payload);
Result<AccumulatorAnswer> decode_accumulator_answer(const Payload& payload);

}  // namespace reverie
