// Decodes single rows of any bytes, in any order: they are refused, or equal the rows that decoding
// the whole column gives.
//
// Input: codec, dtype, rank (mod 4), an extent of two bytes for each dimension, a row count of two
// bytes, eight row indices of a byte (mod the count), and the column's bytes.
#include "reverie/codec/column_decoder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reverie;
  fuzz::Input input(data, size);
  const auto codec = static_cast<CodecId>(input.take<std::uint8_t>());
  const TensorSpec spec = input.take_spec();
  const std::size_t row_count = input.take<std::uint16_t>();
  const auto asked = input.take<std::array<std::uint8_t, 8>>();
  const std::vector<std::byte> bytes(input.rest().begin(), input.rest().end());
  if (has_variable_size(spec.dtype)) return 0;

  static auto* const decoder = new ColumnDecoder;  // reused for all inputs, as each thread does
  const Result<ColumnRows> all = decode_column(codec, spec, row_count, bytes);
  const Status opened = decoder->open(codec, spec, row_count, bytes);
  if (!opened.ok() && all.ok()) std::abort();
  if (!opened.ok() || row_count == 0) return 0;
  for (const std::uint8_t r : asked) {
    const Result<RowSpan> row = decoder->row(r % row_count);
    if (!row.ok()) {
      if (all.ok()) std::abort();
      return 0;
    }
    if (row->size() != decoder->row_bytes()) std::abort();
    if (all.ok() && !std::ranges::equal(*row, (*all)[r % row_count])) std::abort();
  }
  return 0;
}
