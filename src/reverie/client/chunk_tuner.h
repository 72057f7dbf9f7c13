// ChunkTuner: how many rows the next chunk should hold.
//
// A chunk costs a header of about 112 bytes however many rows it has, so long chunks are cheap a
// row. But memory lives by whole chunks: rows that no item uses cost their bytes as long as a
// neighbour is used, and a chunk that an episode's end seals half full wastes its other half.
//
// Call a *run* the neighbouring rows that items use, up to the first row that none uses or to the
// episode's end. With runs of r rows of s bytes and chunks of L rows, a run costs
//
//     h r / L   headers, and about   s L / 2   rows that are not used,
//
// which is least for L = sqrt(2 r h / s), the rule of economic lots. A mean over runs of many
// lengths gives the same L, for both terms are linear in r. So:
// - long episodes with an item over each step: r is the length of the run so far, and chunks grow
//   with its root; 400-byte steps over 1,000 steps: 24 rows, 5 bytes of headers a step;
// - episodes of 15 such steps: 3 rows; the headers and the last chunk's empty rows cost about 16 %;
// - items of 4 rows every 40 steps: 1 row; a run keeps its 4 rows and no more.
// L is at least 1, at most r, 256 rows and 64 KiB.
//
// Where chunks are compressed, a row costs what is left of it, and each chunk a first row that has
// none before it to resemble, taken for a tenth of a raw one: h grows, s shrinks, and chunks become
// longer. They are at most 64 rows, for a reader walks those before the one it wants, and 512 KiB
// while they are open; Atari frames over long episodes: 64.
//
// Before the first run has ended, r is taken for
// what may still become of the rows: those of the episode that can be referred to, or 8.
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
  // The same where chunks are compressed, to `packed_step_bytes` a row; 0 where none was so far.
  std::uint32_t packed_chunk_length(double step_bytes, double packed_step_bytes,
                                    std::uint64_t referable_rows) const;

  // An item uses rows [begin, end).
  void use_rows(std::uint64_t begin, std::uint64_t end);
  // Rows that come later belong to another run.
  void end_episode();

 private:
  // The best length for chunks of `chunk_bytes` and rows of `row_bytes`.
  std::uint32_t best_length(double chunk_bytes, double row_bytes, double rows_max,
                            std::uint64_t referable_rows) const;
  void end_run();

  std::uint64_t used_end_ = 0;  // one past the last row in use
  std::uint64_t run_length_ = 0;
  double mean_run_length_ = 0;  // of the runs that ended, the late ones weigh more; 0 before
};

}  // namespace reverie
