// An all-reduce of arrays as one member sees it: each part goes up its tree and down again.
//
//     part    own [1 2 3]   1st child [4 4 4]   2nd child (not there yet)
//     combined in this order, whichever arrives first, so that each run gives the same bytes
//
// Parts are sent in the order in which no member receives from two others at a time: over links of
// equal rate the time hardly depends on the number of members (benchmarks/cc/forest_bench.cc).
//
// The arrays are in one buffer, in which they are combined and which receives the result. A part
// that came down is forwarded from the memory it was received into.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/group/round.h"
#include "reverie/reduce/reduce_layout.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

class ReduceRound final : public Round {
 public:
  // `buffer` has layout.size_bytes() and was filled by it. A mean divides by the member count.
  ReduceRound(std::shared_ptr<const ReduceLayout> layout, std::shared_ptr<Buffer> buffer,
              std::size_t member, std::size_t member_count);

  // A mean still divides by the member count that was given first.
  void stand_for(std::size_t member, std::size_t member_count) override {
    member_ = member;
    member_count_ = member_count;
  }
  void start(std::vector<RoundPart>& out) override;
  Status take(std::size_t from, bool is_up, std::size_t part, Payload payload,
              std::vector<RoundPart>& out) override;
  void arrived() override { --in_flight_; }
  bool is_done() const override { return parts_left_ == 0 && in_flight_ == 0; }
  std::size_t share_bytes() const override { return layout_->size_bytes(); }
  std::uint64_t signature_hash() const override { return layout_->signature_hash(); }
  const std::string& signature() const override { return layout_->signature(); }

 private:
  struct Part {
    std::size_t combined = 0;  // of the children
    std::array<std::optional<BulkPiece>, 2> held;
    bool is_done = false;
  };

  std::span<std::byte> bytes() { return {buffer_->data(), buffer_->size_bytes()}; }
  void go_up(std::size_t index, std::vector<RoundPart>& out);
  void go_down(std::size_t index, const BulkPiece& result, bool is_own,
               std::vector<RoundPart>& out);

  const std::shared_ptr<const ReduceLayout> layout_;
  const std::shared_ptr<Buffer> buffer_;
  const double divisor_;
  std::size_t member_;
  std::size_t member_count_;
  std::vector<Part> parts_;
  std::size_t parts_left_;
  std::size_t in_flight_ = 0;
};

}  // namespace reverie
