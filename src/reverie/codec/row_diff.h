// RowDiff: encodes rows that resemble the row before by what changed.
//
//     row r-1    . . . . a b . . . . . . . . . c . . . .
//     row r      . . . . A B . . . . . . . . . C . . . .
//     record     [ changed blocks: a bit each ][ changed bytes of each: 64 bits ][ A B C ]
//
// Rows are cut into blocks of 64 bytes; the row before the first is all zeros. A record contains
// the new bytes, not their differences: an object that moves over a picture brings the same bytes
// again and again, which the general compressor after this exploits. Bits count from the lowest;
// bytes after a row's end have no bit.
//
// Decoding is one pass over what changed: a picture of 7,056 bytes of which 100 changed costs 14
// bytes of block bits, some 15 masks and 100 bytes, and with AVX-512 one expand instruction per
// block. So it costs next to nothing to pass through the rows before the one that is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace reverie {

class RowDiff {
 public:
  static constexpr std::size_t kBlockBytes = 64;

  enum class Kernel { kBest, kPortable };

  // Requires row_bytes >= 1.
  explicit RowDiff(std::size_t row_bytes, Kernel kernel = Kernel::kBest);

  // Size of a buffer for one row in apply(): whole blocks.
  std::size_t padded_bytes() const { return block_count_ * kBlockBytes; }
  // The smallest size of a record.
  std::size_t record_bytes_min() const { return bitmap_bytes_; }

  // Appends the record of `row` after `before`, both of row_bytes (null for a row of zeros).
  void append(const std::byte* before, const std::byte* row, std::vector<std::byte>& out) const;

  // Changes `row`, of padded_bytes(), to the next row. Returns the record's end; null, with
  // undefined `row`, if it is malformed. Reads nothing at or after `end`.
  const std::byte* apply(const std::byte* at, const std::byte* end, std::byte* row) const {
    return apply_(*this, at, end, row);
  }

  // --- For the kernels.
  std::size_t block_count() const { return block_count_; }
  std::size_t bitmap_bytes() const { return bitmap_bytes_; }
  // The bits that may be set for the last block.
  std::uint64_t last_mask() const { return last_mask_; }

 private:
  using Apply = const std::byte* (*)(const RowDiff&, const std::byte*, const std::byte*,
                                     std::byte*);

  std::size_t row_bytes_;
  std::size_t block_count_;
  std::size_t bitmap_bytes_;
  std::uint64_t last_mask_;
  Apply apply_;
};

namespace row_diff {

// Null if the processor does not support it.
using Apply = const std::byte* (*)(const RowDiff&, const std::byte*, const std::byte*, std::byte*);
Apply avx512_apply();

}  // namespace row_diff

}  // namespace reverie
