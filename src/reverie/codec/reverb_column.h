// Columns as Reverb's clients encode them, so that what they send is kept and handed on as it is.
//
//     fixed rows     one Snappy block of all rows; with kReverbDelta each row was first replaced by
//                    its difference to the row before, modulo 2^bits
//     varying rows   the length of every element as a varint, then the bytes of every element
//
// Source: observed on dm-reverb 0.14. Differs: malformed bytes are DATA_LOSS, where Reverb hands
// out zeros.
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

// Whether Reverb's delta encoding touches columns of this kind: whole numbers, at least one axis
// beside that of the rows.
bool reverb_delta_applies(const TensorSpec& spec);

// Appends the column. Requires rows that fit `spec`. kReverbDelta is kReverb where delta does not
// apply. RESOURCE_EXHAUSTED when the rows have 4 GiB or more: a block cannot say so.
Status encode_reverb(CodecId codec, const TensorSpec& spec, std::span<const RowSpan> rows,
                     std::vector<std::byte>& out);

// Rows of fixed size, `row_bytes` each. Announced sizes are checked before `room(size)` is asked
// for memory, which returns where that many bytes may be written. DATA_LOSS, naming the column.
template <typename Room>
Status decode_reverb_fixed(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                           std::size_t row_bytes, std::span<const std::byte> bytes, Room room);

// Rows of varying size, in the form of kRaw.
Result<ColumnRows> decode_reverb_varying(const TensorSpec& spec, std::size_t element_count,
                                         std::size_t row_count, std::span<const std::byte> bytes);

// Whether the bytes are such a column, without decoding it. DATA_LOSS, naming it, when they are
// not.
Status check_reverb(const TensorSpec& spec, std::size_t element_count, std::size_t row_count,
                    std::span<const std::byte> bytes);

// --- The parts of decode_reverb_fixed.
// The number of bytes of all rows, if `bytes` may be a block that decodes to it.
Result<std::size_t> checked_reverb_bytes(const TensorSpec& spec, std::size_t row_count,
                                         std::size_t row_bytes, std::span<const std::byte> bytes);
// Requires that checked_reverb_bytes gave out.size().
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
