#include "reverie/codec/row_diff.h"

#include <algorithm>
#include <array>

#include "reverie/base/check.h"
#include "reverie/codec/row_diff_walk.h"

namespace reverie {
namespace {

constexpr std::array<std::byte, RowDiff::kBlockBytes> kZeros{};

const std::byte* portable_apply(const RowDiff& diff, const std::byte* at, const std::byte* end,
                                std::byte* row) {
  return row_diff::walk(
      diff, at, end, row,
      [](std::byte* block, std::uint64_t mask, const std::byte* bytes, std::size_t) {
        for (; mask != 0; block += 8, mask >>= 8) {
          const auto part = static_cast<std::uint8_t>(mask);
          if (part == 0xff) {  // what moves changes whole stretches
            std::memcpy(block, bytes, 8);
            bytes += 8;
            continue;
          }
          for (std::uint8_t bits = part; bits != 0; bits &= static_cast<std::uint8_t>(bits - 1)) {
            block[std::countr_zero(bits)] = *bytes++;
          }
        }
      });
}

// Bit i is set where byte i of the word is not zero.
std::uint64_t nonzero_bytes(std::uint64_t word) {
  constexpr std::uint64_t kLow = 0x7f7f7f7f7f7f7f7f;
  const std::uint64_t high = (((word & kLow) + kLow) | word) & ~kLow;
  return ((high >> 7) * 0x0102040810204080u) >> 56;
}

// Which of the first `size` bytes differ.
std::uint64_t changed_bytes(const std::byte* a, const std::byte* b, std::size_t size) {
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < size; i += 8) {
    const std::size_t n = std::min<std::size_t>(8, size - i);
    mask |= nonzero_bytes(row_diff::load_word(a + i, n) ^ row_diff::load_word(b + i, n)) << i;
  }
  return mask;
}

}  // namespace

RowDiff::RowDiff(std::size_t row_bytes, Kernel kernel)
    : row_bytes_(row_bytes),
      block_count_((row_bytes - 1) / kBlockBytes + 1),
      bitmap_bytes_((block_count_ + 7) / 8),
      last_mask_(~std::uint64_t{0} >> (block_count_ * kBlockBytes - row_bytes)),
      apply_(&portable_apply) {
  REVERIE_CHECK(row_bytes > 0);
  if (const row_diff::Apply best = row_diff::avx512_apply(); best && kernel == Kernel::kBest) {
    apply_ = best;
  }
}

void RowDiff::append(const std::byte* before, const std::byte* row,
                     std::vector<std::byte>& out) const {
  const std::size_t begin = out.size();
  // As long as the record can be, so that nothing grows inside the loop.
  out.resize(begin + bitmap_bytes_ + block_count_ * sizeof(std::uint64_t) + row_bytes_);
  std::byte* const bitmap = out.data() + begin;
  std::fill_n(bitmap, bitmap_bytes_, std::byte{0});
  std::byte* mask_at = bitmap + bitmap_bytes_;
  for (std::size_t block = 0; block < block_count_; ++block) {
    const std::size_t offset = block * kBlockBytes;
    const std::size_t size = std::min(kBlockBytes, row_bytes_ - offset);
    const std::byte* const old = before ? before + offset : kZeros.data();
    if (std::memcmp(old, row + offset, size) == 0) continue;
    bitmap[block / 8] |= static_cast<std::byte>(1u << (block % 8));
    const std::uint64_t mask = changed_bytes(old, row + offset, size);
    std::memcpy(mask_at, &mask, sizeof(mask));
    mask_at += sizeof(mask);
  }
  std::byte* to = mask_at;
  const std::byte* masks = bitmap + bitmap_bytes_;
  for (std::size_t block = 0; block < block_count_; ++block) {
    if ((bitmap[block / 8] & static_cast<std::byte>(1u << (block % 8))) == std::byte{0}) continue;
    std::uint64_t mask = row_diff::load_word(masks, sizeof(mask));
    masks += sizeof(mask);
    for (; mask != 0; mask &= mask - 1) *to++ = row[block * kBlockBytes + std::countr_zero(mask)];
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
}

}  // namespace reverie
