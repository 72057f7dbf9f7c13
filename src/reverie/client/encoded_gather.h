// EncodedGather: rows of encoded chunks on their way into a batch, each column decoded once.
//
//     add     { chunk 7, obs, rows 6..9 -> item 3 }  { chunk 7, next_obs, rows 7..10 -> item 3 }
//     ... finish  sorted by column; one walk over each serves all requests for its rows
//
// Rows go straight from the decoder to their places in the batch: what is held beside is one
// column's compressed block and one row, in memory that the thread keeps up to kScratchBytesMax. A
// column that is wanted whole is decoded where it goes. A batch of many bytes is decoded by several
// threads, each with columns of its own.
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
  // Bytes of rows that are worth a thread.
  static constexpr std::size_t kPartBytes = std::size_t{512} << 10;

  // `files`, where external columns are, outlives it; null for none.
  explicit EncodedGather(ExternalFiles* files = nullptr) : files_(files) {}

  // Asks for the rows of a piece of an encoded chunk, in a column of fixed rows, at `to`; raw ones
  // are copied at once. DATA_LOSS when the chunk has no such rows.
  Status add(const Piece& piece, std::size_t column, std::byte* to);
  // Writes what was asked for. DATA_LOSS, naming the column, when a chunk is damaged or its rows
  // are not in its file; otherwise what ExternalFiles says.
  Status finish();

 private:
  struct Request {
    const Chunk* chunk;
    std::size_t column;
    std::uint32_t offset;
    std::uint32_t length;
    std::byte* to;
  };

  // Requests that are next to each other and for one column of one chunk, and which come behind.
  static std::size_t run_end(std::span<const Request> requests, std::size_t begin);
  static Status serve_all(std::span<const Request> requests);
  static Status serve(std::span<const Request> requests, ColumnDecoder& decoder);

  Status add_external(const Piece& piece, std::size_t column, std::byte* to);

  ExternalFiles* const files_;
  std::vector<Request> requests_;
  std::vector<ExternalRead> external_;
};

}  // namespace reverie
