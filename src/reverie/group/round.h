// One round as one member sees it: the parts that it takes and sends.
//
//     start(), take(part), arrived()   -->  Round  -->  parts to send, is_done()
//
// Two kinds: ReduceRound (reduce_round.h) for arrays, GatherRound (gather_round.h) for any values.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// Results up to this size are copied before they are sent, so that no member waits until they have
// arrived.
inline constexpr std::size_t kCopiedResultMax = std::size_t{32} << 10;

// Bytes for another member.
struct RoundPart {
  std::size_t to = 0;  // the member's index
  bool is_up = false;
  std::size_t part = 0;
  std::vector<BulkPiece> bulk;
  std::vector<std::byte> head;  // precedes the bulk, in the message's head
  // Whether the round is done only once the other member has received it all, since the bytes then
  // become the caller's.
  bool must_arrive = false;
};

// Not thread-safe.
class Round {
 public:
  virtual ~Round() = default;
  Round() = default;
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  // Before start(): it takes part as `member` of `member_count`, for all members of its host.
  virtual void stand_for(std::size_t member, std::size_t member_count) {
    (void)member;
    (void)member_count;
  }
  virtual void start(std::vector<RoundPart>& out) = 0;
  // A part from the member with index `from`. DATA_LOSS for a part that no member sends; nothing
  // changes then.
  virtual Status take(std::size_t from, bool is_up, std::size_t part, Payload payload,
                      std::vector<RoundPart>& out) = 0;
  // A part that must arrive has arrived.
  virtual void arrived() = 0;
  virtual bool is_done() const = 0;

  // Bytes that go through shared memory where the members share some; 0 for what is always sent.
  virtual std::size_t share_bytes() const { return 0; }

  // Equal on all members that may meet in a round.
  virtual std::uint64_t signature_hash() const = 0;
  virtual const std::string& signature() const = 0;
};

}  // namespace reverie
