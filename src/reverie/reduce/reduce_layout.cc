// Tested in src/reverie/group/reduce_round_test.cc.
#include "reverie/reduce/reduce_layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reverie/base/random.h"

namespace reverie {
namespace {

constexpr std::size_t kAlignment = 64;

constexpr std::size_t aligned(std::size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

std::string_view line_of(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

std::uint64_t text_hash(std::string_view text) {
  std::uint64_t hash = mix64(text.size());
  while (!text.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(text.size(), sizeof(word));
    std::memcpy(&word, text.data(), size);
    hash = mix64(hash ^ word);
    text.remove_prefix(size);
  }
  return hash;
}

Result<ReduceLayout> ReduceLayout::make(ReduceOp op, std::span<const ReduceLeaf> leaves,
                                        std::size_t member_count) {
  ReduceLayout layout;
  layout.op_ = op;
  layout.signature_ = reduce_op_name(op);
  for (const ReduceLeaf& leaf : leaves) {
    const std::string context = leaf.name.empty() ? "the array" : format("'{}'", leaf.name);
    REVERIE_RETURN_IF_ERROR(check_reducible(op, leaf.dtype).with_context(context));
    const std::optional<std::size_t> count = checked_element_count(leaf.shape);
    if (!count || *count * dtype_size_bytes(leaf.dtype) != leaf.bytes.size()) {
      return invalid_argument("{} has {} bytes; {} of {} have another number", context,
                              leaf.bytes.size(), shape_text(leaf.shape), dtype_name(leaf.dtype));
    }
    layout.pieces_.push_back({leaf.name, leaf.dtype, leaf.shape, *count, layout.size_bytes_});
    layout.size_bytes_ += aligned(*count * dtype_size_bytes(combining_dtype(leaf.dtype)));
    layout.signature_ += format("\n{}{}{} {}", leaf.name, leaf.name.empty() ? "" : " ",
                                dtype_name(leaf.dtype), shape_text(leaf.shape));
  }
  layout.signature_hash_ = text_hash(layout.signature_);
  // As many parts for one tree as for another, so that no member sends more than the others.
  const std::size_t of_tree = layout.size_bytes_ / std::max<std::size_t>(member_count, 1);
  const std::size_t parts_of_tree = of_tree / kPartBytesMax + 1;
  const std::size_t even = aligned(of_tree / parts_of_tree + 1);
  layout.part_bytes_ = std::clamp(even, kPartBytesMin, kPartBytesMax);
  layout.part_count_ =
      std::max<std::size_t>(1, (layout.size_bytes_ + layout.part_bytes_ - 1) / layout.part_bytes_);
  return layout;
}

std::span<std::byte> ReduceLayout::part(std::size_t index, std::span<std::byte> buffer) const {
  const std::size_t begin = index * part_bytes_;
  return buffer.subspan(begin, std::min(part_bytes_, size_bytes_ - begin));
}

void ReduceLayout::load(std::span<const ReduceLeaf> leaves, std::span<std::byte> buffer) const {
  for (std::size_t i = 0; i < pieces_.size(); ++i) load_scaled(i, leaves[i].bytes, 1, buffer);
}

void ReduceLayout::load_scaled(std::size_t index, std::span<const std::byte> from,
                               std::uint64_t factor, std::span<std::byte> buffer) const {
  const Piece& piece = pieces_[index];
  const DType dtype = combining_dtype(piece.dtype);
  std::byte* const to = buffer.data() + piece.offset;
  if (factor == 1 || dtype != piece.dtype) {
    widen(piece.dtype, from.data(), to, piece.count);
    if (factor != 1) scale(dtype, to, to, piece.count, factor);
  } else {
    scale(dtype, to, from.data(), piece.count, factor);
  }
  const std::size_t end = piece.offset + piece.count * dtype_size_bytes(dtype);
  std::fill(buffer.begin() + static_cast<std::ptrdiff_t>(end),
            buffer.begin() + static_cast<std::ptrdiff_t>(aligned(end)), std::byte{0});
}

void ReduceLayout::unload(std::size_t piece, std::span<const std::byte> buffer,
                          std::byte* to) const {
  const Piece& chosen = pieces_[piece];
  narrow(chosen.dtype, buffer.data() + chosen.offset, to, chosen.count);
}

std::pair<std::size_t, std::size_t> ReduceLayout::part_range(std::size_t index) const {
  const std::size_t begin = std::min(index * part_bytes_, size_bytes_);
  return {begin, std::min(begin + part_bytes_, size_bytes_)};
}

// visit(combining dtype, offset behind `begin`, elements) for each piece that lies in the range.
template <typename Visit>
void ReduceLayout::visit_range(std::size_t begin, std::size_t end, Visit visit) const {
  auto piece = std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& before) {
    return before.offset + before.count * dtype_size_bytes(combining_dtype(before.dtype)) <= begin;
  });
  for (; piece != pieces_.end() && piece->offset < end; ++piece) {
    const DType dtype = combining_dtype(piece->dtype);
    const std::size_t element = dtype_size_bytes(dtype);
    const std::size_t from = std::max(begin, piece->offset);
    const std::size_t to = std::min(end, piece->offset + piece->count * element);
    if (from < to) visit(dtype, from - begin, (to - from) / element);
  }
}

void ReduceLayout::combine_range(std::size_t begin, std::size_t end, std::byte* into,
                                 const std::byte* from) const {
  visit_range(begin, end, [&](DType dtype, std::size_t offset, std::size_t count) {
    combine(op_, dtype, into + offset, from + offset, count);
  });
}

void ReduceLayout::finish_range(std::size_t begin, std::size_t end, std::byte* into,
                                double divisor) const {
  if (op_ != ReduceOp::kMean) return;
  visit_range(begin, end, [&](DType dtype, std::size_t offset, std::size_t count) {
    finish_mean(dtype, into + offset, count, divisor);
  });
}

void ReduceLayout::combine_part(std::size_t index, std::span<std::byte> buffer,
                                std::span<const std::byte> from) const {
  const auto [begin, end] = part_range(index);
  combine_range(begin, end, buffer.data() + begin, from.data());
}

void ReduceLayout::finish_part(std::size_t index, std::span<std::byte> buffer,
                               double divisor) const {
  const auto [begin, end] = part_range(index);
  finish_range(begin, end, buffer.data() + begin, divisor);
}

std::string signature_difference(std::string_view mine, std::string_view theirs,
                                 std::string_view their_name) {
  while (!mine.empty() || !theirs.empty()) {
    const std::string_view here = line_of(mine);
    const std::string_view there = line_of(theirs);
    if (here != there) {
      return format("'{}' here, '{}' on '{}'", here.empty() ? "nothing" : here,
                    there.empty() ? "nothing" : there, their_name);
    }
  }
  return {};
}

}  // namespace reverie
