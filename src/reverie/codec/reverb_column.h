// Columns as Reverb's clients encode them, so that the store keeps and returns them unchanged.
//
//     fixed rows     one Snappy block of all rows; with kReverbDelta each row was first replaced by
//                    its difference from the row before, modulo 2^bits
//     varying rows   the length of every element as a varint, then the bytes of every element
//
// Source: observed on dm-reverb 0.14. Differs: malformed bytes are DATA_LOSS, where Reverb returns
// zeros.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/column_codec.h"

namespace reverie {

inline bool is_reverb_codec(CodecId codec) {
  return codec == CodecId::kReverb || codec == CodecId::kReverbDelta;
}

// Whether Reverb's delta encoding applies to such columns: integers, with at least one axis besides
// that of the rows.
bool reverb_delta_applies(const TensorSpec& spec);

// Appends the column. Requires rows that fit `spec`. kReverbDelta is kReverb where delta does not
// apply. RESOURCE_EXHAUSTED for fixed rows of 4 GiB or more in all: a block cannot express that
// size.
Status encode_reverb(CodecId codec, const TensorSpec& spec, std::span<const RowSpan> rows,
                     std::vector<std::byte>& out);

// Rows of fixed size, `row_bytes` each. Announced sizes are checked before `room(size)` is called,
// which returns where to write that many bytes. DATA_LOSS, naming the column.
template <typename Room>
Status decode_reverb_fixed(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                           std::size_t row_bytes, std::span<const std::byte> bytes, Room room);

// Rows of varying size, in the form of kRaw.
Result<ColumnRows> decode_reverb_varying(const TensorSpec& spec, std::size_t element_count,
                                         std::size_t row_count, std::span<const std::byte> bytes);

// Checks without decoding that the bytes are such a column. DATA_LOSS, naming it, if they are
// not.
Status check_reverb(const TensorSpec& spec, std::size_t element_count, std::size_t row_count,
                    std::span<const std::byte> bytes);

// --- The parts of decode_reverb_fixed. The size of all rows in bytes, if `bytes` can be a block
// that decodes to so many.
Result<std::size_t> checked_reverb_bytes(const TensorSpec& spec, std::size_t row_count,
                                         std::size_t row_bytes, std::span<const std::byte> bytes);
// Requires that checked_reverb_bytes returned out.size().
Status decompress_reverb(CodecId codec, const TensorSpec& spec, std::size_t row_bytes,
                         std::span<const std::byte> bytes, std::span<std::byte> out);

template <typename Room>
Status decode_reverb_fixed(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                           std::size_t row_bytes, std::span<const std::byte> bytes, Room room) {
  REVERIE_ASSIGN_OR_RETURN(const std::size_t size,
                           checked_reverb_bytes(spec, row_count, row_bytes, bytes));
  return decompress_reverb(codec, spec, row_bytes, bytes, std::span(room(size), size));
}

}  // namespace reverie
