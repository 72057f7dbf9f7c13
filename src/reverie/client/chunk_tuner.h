// ChunkTuner: how many rows the next chunk should hold.
//
// A chunk costs a header of about 112 bytes however many rows it has, so long chunks are cheap per
// row. But memory is freed in whole chunks: rows that no item uses cost memory while a neighbour is
// used, and a chunk sealed half full at an episode's end wastes its other half.
//
// Call a *run* the neighbouring rows that items use, up to the first row that no item uses or to
// the episode's end. With runs of r rows of s bytes and chunks of L rows, a run costs
//
//     h r / L   headers, and about   s L / 2   rows that are not used,
//
// which is minimal for L = sqrt(2 r h / s), as in the economic order quantity. A mean over runs of
// different lengths gives the same L, since both terms are linear in r. So:
// - long episodes with an item over each step: r is the length of the run so far, and chunks grow
//   with its root; 400-byte steps over 1,000 steps: 24 rows, 5 bytes of headers per step;
// - episodes of 15 such steps: 3 rows; the headers and the last chunk's empty rows cost about 16 %;
// - items of 4 rows every 40 steps: 1 row; a run keeps its 4 rows and no more.
// L is at least 1, at most r, 256 rows and 64 KiB.
//
// If chunks are compressed, a row costs its compressed size, and each chunk also a first row that
// has no row before it to resemble, estimated at a tenth of a raw row: h grows, s shrinks, and
// chunks become longer. They have at most 64 rows, since a reader walks through the rows before the
// one it wants, and 512 KiB while they are open; Atari frames over long episodes: 64 rows.
//
// Before the first run has ended, r is estimated: the rows of the episode that can be referred to,
// or 8.
//
// Deterministic: the same steps and items give the same lengths.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reverie {

// Rows are numbered over the life of a column group. Not thread-safe.
class ChunkTuner {
 public:
  // Rows for the next chunk; `referable_rows` are the rows of this episode that items can use.
  std::uint32_t chunk_length(double step_bytes, std::uint64_t referable_rows) const;
  // The same for compressed chunks, with `packed_step_bytes` per row; 0: none so far.
  std::uint32_t packed_chunk_length(double step_bytes, double packed_step_bytes,
                                    std::uint64_t referable_rows) const;

  // An item uses rows [begin, end).
  void use_rows(std::uint64_t begin, std::uint64_t end);
  // Later rows belong to another run.
  void end_episode();

 private:
  // The best length for chunks of `chunk_bytes` and rows of `row_bytes`.
  std::uint32_t best_length(double chunk_bytes, double row_bytes, double rows_max,
                            std::uint64_t referable_rows) const;
  void end_run();

  std::uint64_t used_end_ = 0;  // one past the last row in use
  std::uint64_t run_length_ = 0;
  double mean_run_length_ = 0;  // of ended runs, later ones weigh more; 0: none
};

}  // namespace reverie
