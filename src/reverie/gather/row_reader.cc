// Tested in tests/python/history_test.py and tests/integration/corrupt_items_test.cc.
#include "reverie/gather/row_reader.h"

namespace reverie {

Result<RowSpan> RowReader::row(const Chunk& chunk, std::size_t column, std::uint32_t row) {
  if (chunk.is_raw_for_good() || raw_.try_emplace(&chunk, chunk).first->second) {
    return chunk.row_bytes(column, row);
  }
  if (row >= chunk.rows()) {
    return data_loss("column '{}' was referred to at row {} of a chunk of {} rows",
                     chunk.schema().column(column).name, row, chunk.rows());
  }
  auto found = decoded_.find({&chunk, column});
  if (found == decoded_.end()) {
    REVERIE_ASSIGN_OR_RETURN(
        ColumnRows rows,
        decode_column(chunk.encoded_column(column).codec, chunk.schema().column(column),
                      chunk.rows(), chunk.encoded_bytes(column)));
    found = decoded_.emplace(std::pair(&chunk, column), std::move(rows)).first;
  }
  return found->second[row];
}

}  // namespace reverie
