// ColumnDecoder: decodes single rows of an encoded column, without decoding the rest.
//
//     open  --> the block is decompressed once, into memory that the decoder keeps
//     row(r) -> the rows up to r are walked; only r is returned
//
// With the row filter, the cost to walk a row is what changed in it. So reading five frames from
// the middle of forty costs five copies and some twenty short records, not forty frames.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "reverie/base/status.h"
#include "reverie/codec/column_codec.h"
#include "reverie/codec/row_diff.h"

namespace reverie {

// For rows of fixed size, with any codec. Not thread-safe; meant to be reused.
class ColumnDecoder {
 public:
  // Begins with a column; `bytes` outlives the rows. DATA_LOSS, naming the column, for bytes that
  // cannot be a column; damage further on may show only in row().
  Status open(CodecId codec, const TensorSpec& spec, std::size_t row_count,
              std::span<const std::byte> bytes);

  // Writes all rows of a column to `out`: the same as with open() and row(), with one copy less
  // where the codec allows it. Requires out.size() == row_count * row_bytes.
  Status decode_all(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                    std::span<const std::byte> bytes, std::span<std::byte> out);

  // Row r, valid until the next call. Cheapest in ascending order; an earlier row than before
  // starts over. DATA_LOSS when the bytes before its end are damaged. Requires r < row_count.
  Result<RowSpan> row(std::size_t r);

  // Whether all bytes were used; ask after the last row.
  bool is_at_end() const { return !diff_ || at_ == end_; }
  std::size_t row_bytes() const { return row_bytes_; }

  // Memory kept for the next column.
  std::size_t memory_bytes() const {
    return plain_.size_bytes + planes_.size_bytes + row_.size_bytes;
  }

 private:
  // Grows; is never zeroed.
  struct Scratch {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size_bytes = 0;
    std::span<std::byte> take(std::size_t wanted);
  };

  Status open_compressed(CodecId codec, const TensorSpec& spec, std::size_t row_count,
                         std::span<const std::byte> bytes);
  void rewind();

  std::string_view name_;
  std::size_t row_bytes_ = 0;
  const std::byte* rows_ = nullptr;  // the rows, if they are contiguous

  // Otherwise rows are records.
  std::optional<RowDiff> diff_;
  const std::byte* begin_ = nullptr;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
  std::size_t rows_read_ = 0;  // rows walked; the last one is in row_

  Scratch plain_;
  Scratch planes_;
  Scratch row_;
};

}  // namespace reverie
