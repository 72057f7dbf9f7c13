// EncodedGather: copies rows of encoded chunks into a batch, decoding each column once.
//
//     add     { chunk 7, obs, rows 6..9 -> item 3 }  { chunk 7, next_obs, rows 7..10 -> item 3 }
//     ... finish  sorted by column; one walk over each serves all requests for its rows
//
// Rows go directly from the decoder to their places in the batch; besides, it holds only one
// column's compressed block and one row, in memory that the thread keeps up to kScratchBytesMax. A
// column that is needed completely is decoded in place. A large batch is decoded by several
// threads, each with its own columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/column_decoder.h"
#include "reverie/record/external_files.h"
#include "reverie/record/trajectory.h"

namespace reverie {

// For one batch. Not thread-safe.
class EncodedGather {
 public:
  static constexpr std::size_t kScratchBytesMax = std::size_t{4} << 20;
  // So many bytes of rows are worth a thread.
  static constexpr std::size_t kPartBytes = std::size_t{512} << 10;

  // `files` finds external columns and outlives this; may be null.
  explicit EncodedGather(ExternalFiles* files = nullptr) : files_(files) {}

  // Requests the rows of a piece of an encoded chunk, in a column of fixed size, to be written to
  // `to`; raw rows are copied at once. DATA_LOSS if the chunk has no such rows.
  Status add(const Piece& piece, std::size_t column, std::byte* to);
  // Writes the requested rows. DATA_LOSS, naming the column, if a chunk is damaged or rows are
  // missing in a file; else the error of ExternalFiles.
  Status finish();

 private:
  struct Request {
    const Chunk* chunk;
    std::size_t column;
    std::uint32_t offset;
    std::uint32_t length;
    std::byte* to;
  };

  // The end of the adjacent requests, from `begin` on, for one column of one chunk.
  static std::size_t run_end(std::span<const Request> requests, std::size_t begin);
  static Status serve_all(std::span<const Request> requests);
  static Status serve(std::span<const Request> requests, ColumnDecoder& decoder);

  Status add_external(const Piece& piece, std::size_t column, std::byte* to);

  ExternalFiles* const files_;
  std::vector<Request> requests_;
  std::vector<ExternalRead> external_;
};

}  // namespace reverie
