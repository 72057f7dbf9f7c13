// The walk through a record, shared by kernels that differ in how they patch a block.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "reverie/codec/row_diff.h"

namespace reverie::row_diff {

inline std::uint64_t load_word(const std::byte* at, std::size_t size_bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, size_bytes);
  return word;
}

// `patch(block, mask, bytes)` stores `bytes` at the positions in `mask`. See RowDiff::apply.
template <typename Patch>
[[gnu::always_inline]] inline const std::byte* walk(const RowDiff& diff, const std::byte* at,
                                                    const std::byte* end, std::byte* row,
                                                    Patch patch) {
  const std::size_t bitmap_bytes = diff.bitmap_bytes();
  const std::size_t block_count = diff.block_count();
  if (static_cast<std::size_t>(end - at) < bitmap_bytes) return nullptr;
  const std::byte* const bitmap = at;
  std::size_t changed = 0;
  for (std::size_t i = 0; i < bitmap_bytes; i += 8) {
    const std::size_t left = bitmap_bytes - i;
    changed += static_cast<std::size_t>(
        std::popcount(load_word(bitmap + i, left < 8 ? left : std::size_t{8})));
  }
  const std::byte* mask_at = bitmap + bitmap_bytes;
  if (static_cast<std::size_t>(end - mask_at) / sizeof(std::uint64_t) < changed) return nullptr;
  const std::byte* bytes = mask_at + changed * sizeof(std::uint64_t);
  for (std::size_t i = 0; i < bitmap_bytes; i += 8) {
    const std::size_t left = bitmap_bytes - i;
    std::uint64_t word = load_word(bitmap + i, left < 8 ? left : std::size_t{8});
    for (; word != 0; word &= word - 1) {
      const std::size_t block = i * 8 + static_cast<std::size_t>(std::countr_zero(word));
      if (block >= block_count) return nullptr;
      const std::uint64_t mask = load_word(mask_at, sizeof(std::uint64_t));
      mask_at += sizeof(std::uint64_t);
      if (block + 1 == block_count && (mask & ~diff.last_mask()) != 0) return nullptr;
      const auto count = static_cast<std::size_t>(std::popcount(mask));
      if (static_cast<std::size_t>(end - bytes) < count) return nullptr;
      patch(row + block * RowDiff::kBlockBytes, mask, bytes, count);
      bytes += count;
    }
  }
  return bytes;
}

}  // namespace reverie::row_diff
