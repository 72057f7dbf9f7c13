// Decodes any bytes as a column of any type and shape: they are refused, or give rows that survive
// encoding and decoding; raw rows point into the bytes.
//
// Input: codec, dtype, rank (mod 4), an extent of two bytes for each dimension, a row count of two
// bytes, and the column's bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "reverie/codec/column_codec.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reverie;
  fuzz::Input input(data, size);
  const auto codec = static_cast<CodecId>(input.take<std::uint8_t>());
  const TensorSpec spec = input.take_spec();
  const std::size_t row_count = input.take<std::uint16_t>();
  const std::vector<std::byte> bytes(input.rest().begin(), input.rest().end());

  const Result<ColumnRows> decoded = decode_column(codec, spec, row_count, bytes);
  if (!decoded.ok()) return 0;
  std::vector<RowSpan> rows;
  for (std::size_t r = 0; r < row_count; ++r) {
    const RowSpan row = (*decoded)[r];
    if (codec == CodecId::kRaw && !row.empty() &&
        (row.data() < bytes.data() || row.data() + row.size() > bytes.data() + bytes.size())) {
      std::abort();
    }
    rows.push_back(row);
  }
  std::vector<std::byte> again;
  if (!encode_column(codec, spec, rows, again).ok()) std::abort();
  // Only the raw form is unique; for the other codecs the rows must be equal.
  if (codec == CodecId::kRaw) {
    if (again != bytes) std::abort();
    return 0;
  }
  const Result<ColumnRows> twice = decode_column(codec, spec, row_count, again);
  if (!twice.ok()) std::abort();
  for (std::size_t r = 0; r < row_count; ++r) {
    if (!std::ranges::equal((*twice)[r], rows[r])) std::abort();
  }
  return 0;
}
