#include "reverie/group/reduce_round.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reverie/reduce/topology.h"

namespace reverie {
ReduceRound::ReduceRound(std::shared_ptr<const ReduceLayout> layout, std::shared_ptr<Buffer> buffer,
                         std::size_t member, std::size_t member_count)
    : layout_(std::move(layout)),
      buffer_(std::move(buffer)),
      divisor_(static_cast<double>(member_count)),
      member_(member),
      member_count_(member_count),
      parts_(layout_->part_count()),
      parts_left_(parts_.size()) {}

void ReduceRound::start(std::vector<RoundPart>& out) {
  // By the places that this member has in the trees. The trees are rotations of each other, so at
  // any time all members send from the same place, and each receives from one other member.
  for (std::size_t first = 0; first < parts_.size(); first += member_count_) {
    for (std::size_t place = member_count_; place-- > 0;) {
      const std::size_t part = first + (member_ + member_count_ - place) % member_count_;
      if (part >= parts_.size()) continue;
      if (place_in_tree(member_, part, member_count_).child_count == 0) go_up(part, out);
    }
  }
}

Status ReduceRound::take(std::size_t from, bool is_up, std::size_t part, Payload payload,
                         std::vector<RoundPart>& out) {
  if (part >= parts_.size()) {
    return data_loss("part {} of a round was sent, which has {}", part, parts_.size());
  }
  const std::span<std::byte> mine = layout_->part(part, bytes());
  if (payload.bulk.size() > 1 || payload.bulk_bytes() != mine.size()) {
    return data_loss("part {} of a round came with {} bytes; it has {}", part, payload.bulk_bytes(),
                     mine.size());
  }
  BulkPiece piece = payload.bulk.empty() ? BulkPiece{} : std::move(payload.bulk.front());
  const TreePlace place = place_in_tree(member_, part, member_count_);
  Part& state = parts_[part];
  if (!is_up) {
    if (place.parent != from || state.combined != place.child_count || state.is_done) {
      return data_loss("part {} of a round came down from a member that is not the parent", part);
    }
    if (!piece.bytes.empty()) std::memcpy(mine.data(), piece.bytes.data(), piece.bytes.size());
    go_down(part, piece, /*is_own=*/false, out);
    return {};
  }
  const auto children = place.children();
  const auto child = static_cast<std::size_t>(std::find(children.begin(), children.end(), from) -
                                              children.begin());
  if (child == children.size() || child < state.combined || state.held[child]) {
    return data_loss("part {} of a round came up from a member that is not a child, or twice",
                     part);
  }
  state.held[child] = std::move(piece);
  while (state.combined < children.size() && state.held[state.combined]) {
    layout_->combine_part(part, bytes(), state.held[state.combined]->bytes);
    state.held[state.combined].reset();
    ++state.combined;
  }
  if (state.combined == children.size()) go_up(part, out);
  return {};
}

void ReduceRound::go_up(std::size_t index, std::vector<RoundPart>& out) {
  const std::span<std::byte> mine = layout_->part(index, bytes());
  const TreePlace place = place_in_tree(member_, index, member_count_);
  if (place.parent) {
    // The parent has received all of it before the result overwrites it.
    out.push_back({*place.parent, true, index, {BulkPiece{mine, buffer_}}, {}, false});
    return;
  }
  layout_->finish_part(index, bytes(), divisor_);
  const bool is_copied = mine.size() <= kCopiedResultMax;
  go_down(index, is_copied ? kept_copy(mine) : BulkPiece{mine, buffer_}, !is_copied, out);
}

void ReduceRound::go_down(std::size_t index, const BulkPiece& result, bool is_own,
                          std::vector<RoundPart>& out) {
  parts_[index].is_done = true;
  --parts_left_;
  const TreePlace place = place_in_tree(member_, index, member_count_);
  for (const std::size_t child : place.children()) {
    if (is_own) ++in_flight_;
    out.push_back({child, false, index, {result}, {}, is_own});
  }
}

}  // namespace reverie
