#include "reverie/codec/column_decoder.h"

#include <cstring>

#include "reverie/codec/compressed_column.h"
#include "reverie/codec/reverb_column.h"

namespace reverie {

std::span<std::byte> ColumnDecoder::Scratch::take(std::size_t wanted) {
  if (wanted > size_bytes) {
    bytes.reset();
    bytes.reset(new std::byte[wanted]);  // not zeroed, as make_unique would
    size_bytes = wanted;
  }
  return {bytes.get(), wanted};
}

Status ColumnDecoder::open(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                           std::span<const std::byte> bytes) {
  diff_.reset();
  rows_ = nullptr;
  name_ = spec.name;
  REVERIE_ASSIGN_OR_RETURN(const std::size_t element_count, checked_elements(spec));
  REVERIE_CHECK(!has_variable_size(spec.dtype));
  row_bytes_ = element_count * dtype_size_bytes(spec.dtype);
  if (codec == CodecId::kLz4 || codec == CodecId::kZstd) {
    return open_compressed(codec, spec, row_count, bytes);
  }
  if (is_reverb_codec(codec)) {
    return decode_reverb_fixed(codec, spec, row_count, row_bytes_, bytes, [&](std::size_t size) {
      const std::span<std::byte> room = plain_.take(size);
      rows_ = room.data();
      return room.data();
    });
  }
  REVERIE_ASSIGN_OR_RETURN(const ColumnRows rows, decode_column(codec, spec, row_count, bytes));
  rows_ = bytes.data();
  return {};
}

Status ColumnDecoder::decode_all(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                                 std::span<const std::byte> bytes, std::span<std::byte> out) {
  if (is_reverb_codec(codec) && row_count > 0) {
    REVERIE_CHECK(!has_variable_size(spec.dtype));
    return decode_reverb_fixed(codec, spec, row_count, out.size() / row_count, bytes,
                               [out](std::size_t size) {
                                 REVERIE_CHECK(size == out.size());
                                 return out.data();
                               });
  }
  REVERIE_RETURN_IF_ERROR(open(codec, spec, row_count, bytes));
  if (row_bytes_ == 0) return {};
  if (!diff_) {
    std::memcpy(out.data(), rows_, out.size());
    return {};
  }
  for (std::size_t r = 0; r < row_count; ++r) {
    REVERIE_ASSIGN_OR_RETURN(const RowSpan decoded, row(r));
    std::memcpy(out.data() + r * row_bytes_, decoded.data(), row_bytes_);
  }
  return {};
}

Status ColumnDecoder::open_compressed(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                                      std::span<const std::byte> bytes) {
  REVERIE_ASSIGN_OR_RETURN(const CompressedColumn column, parse_compressed(codec, spec, bytes));
  const bool are_records = column.filter == Filter::kRowDiff;
  const PlaneShape planes = plane_shape(spec.dtype, row_count, row_bytes_);
  // Divided, not multiplied: the product of two untrusted numbers may overflow.
  bool fits = false;
  if (are_records) {
    fits = row_bytes_ > 0 && row_count > 0 &&
           column.plain_bytes / RowDiff(row_bytes_).record_bytes_min() >= row_count &&
           row_count <= (bytes.size() * kExpansionMax + kExpansionMax) / row_bytes_;
  } else if (row_bytes_ == 0) {
    fits = column.plain_bytes == 0 && column.filter == Filter::kNone;
  } else {
    fits = column.plain_bytes % row_bytes_ == 0 && column.plain_bytes / row_bytes_ == row_count &&
           (column.filter == Filter::kNone || planes.element_bytes > 0);
  }
  if (!fits) {
    return data_loss("column '{}' has {} bytes, which are not the {} rows of {} bytes announced",
                     spec.name, bytes.size(), row_count, row_bytes_);
  }
  const std::byte* plain = column.block.data();
  if (!column.is_stored) {
    const std::span<std::byte> room = plain_.take(column.plain_bytes);
    REVERIE_RETURN_IF_ERROR(decompress(codec, spec, column, room));
    plain = room.data();
  }
  if (are_records) {
    diff_.emplace(row_bytes_);
    begin_ = plain;
    end_ = plain + column.plain_bytes;
    row_.take(diff_->padded_bytes());
    rewind();
    return {};
  }
  rows_ = plain;
  if (column.filter == Filter::kPlanes) {
    const std::span<std::byte> room = planes_.take(column.plain_bytes);
    if (!room.empty()) from_planes(planes, plain, room.data());
    rows_ = room.data();
  }
  return {};
}

void ColumnDecoder::rewind() {
  at_ = begin_;
  rows_read_ = 0;
  std::memset(row_.bytes.get(), 0, diff_->padded_bytes());
}

Result<RowSpan> ColumnDecoder::row(std::size_t r) {
  if (!diff_) return RowSpan(row_bytes_ == 0 ? nullptr : rows_ + r * row_bytes_, row_bytes_);
  if (r + 1 < rows_read_) rewind();
  while (rows_read_ <= r) {
    at_ = diff_->apply(at_, end_, row_.bytes.get());
    if (at_ == nullptr) {
      end_ = nullptr;
      begin_ = nullptr;
      return data_loss("row {} of column '{}' is damaged", rows_read_, name_);
    }
    ++rows_read_;
  }
  return RowSpan(row_.bytes.get(), row_bytes_);
}

}  // namespace reverie
