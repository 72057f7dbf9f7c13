// Encodes a column's rows as self-contained bytes, and decodes them.
//
//     kRaw, rows of fixed size    [ row 0 ][ row 1 ] ...
//     kRaw, rows of varying size  [ size of row 0 ][ size of row 1 ] ... [ row 0 ][ row 1 ] ...
//     kLz4, kZstd                 filtered and compressed: codec/compressed_column.h
//     kReverb, kReverbDelta       as Reverb's clients send them: codec/reverb_column.h
//     kExternal                   where the rows are: codec/external_column.h
//
// Sizes are 32-bit and little-endian. A row of varying size is its elements in the form of
// TensorView; no bytes if the writer left the cell unset.
//
// Decoded bytes come from files and the network: every length is checked against the bytes that are
// there before memory is allocated or a row is returned.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/codec.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

using RowSpan = std::span<const std::byte>;

// Whether the rows are contiguous, as those of a chunk are.
bool are_together(std::span<const RowSpan> rows);

// The rows of one decoded column. Move-only.
class ColumnRows {
 public:
  // Rows of one size, back to back.
  ColumnRows(const std::byte* begin, std::size_t row_bytes)
      : begin_(begin), row_bytes_(row_bytes) {}
  // Row r ends at `ends[r]` and begins where the one before it ends.
  ColumnRows(const std::byte* begin, std::vector<std::size_t> ends)
      : begin_(begin), ends_(std::move(ends)) {}
  ColumnRows(ColumnRows&&) = default;
  ColumnRows& operator=(ColumnRows&&) = default;

  // Takes over the rows' bytes, if these were not given to decode_column.
  void own(std::vector<std::byte> bytes) { own_ = std::move(bytes); }

  // Requires r < the number of decoded rows.
  RowSpan operator[](std::size_t r) const {
    if (ends_.empty()) return {begin_ + r * row_bytes_, row_bytes_};
    const std::size_t at = r == 0 ? 0 : ends_[r - 1];
    return {begin_ + at, ends_[r] - at};
  }

 private:
  const std::byte* begin_;
  std::size_t row_bytes_ = 0;
  std::vector<std::size_t> ends_;
  std::vector<std::byte> own_;
};

// Appends the rows to `out`. Requires rows that fit `spec`, and not kExternal. RESOURCE_EXHAUSTED
// if a row of varying size has 4 GiB or more, or if the column is larger than its codec takes: for
// kLz4 and kZstd about 1 GB, or 2 GB if rows vary in size; for kReverb and kReverbDelta 4 GiB.
Status encode_column(CodecId codec, const TensorSpec& spec, std::span<const RowSpan> rows,
                     std::vector<std::byte>& out);

// Decodes `row_count` rows. Neither `bytes` nor `spec` needs to be trusted. The result views
// `bytes`, or owns the decompressed bytes. DATA_LOSS, naming the column, if encode_column does not
// write such bytes. FAILED_PRECONDITION for kExternal, whose rows are elsewhere.
Result<ColumnRows> decode_column(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                                 std::span<const std::byte> bytes);

// Checks such bytes without decoding them: lengths, headers, and whether a Snappy block is
// complete. DATA_LOSS, naming the column, for bytes that decode_column would surely refuse.
Status check_column(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                    std::span<const std::byte> bytes);

// The columns of a chunk together may decode to this many bytes, or this many times their size.
// Frames that hardly change compress a hundredfold, but chunks of this size do not.
inline constexpr std::size_t kUnfoldedBytesMax = std::size_t{128} << 20;
inline constexpr std::size_t kUnfoldedRatioMax = 8;
inline bool may_unfold_to(std::size_t plain_bytes, std::size_t encoded_bytes) {
  return plain_bytes <= kUnfoldedBytesMax || plain_bytes / kUnfoldedRatioMax <= encoded_bytes;
}

// The element count of one row. DATA_LOSS, naming the column, for an impossible dtype or shape.
Result<std::size_t> checked_elements(const TensorSpec& spec);

}  // namespace reverie
