#include "reverie/client/chunk_tuner.h"

#include <algorithm>
#include <cmath>

#include "reverie/tensor/block_memory.h"

namespace reverie {
namespace {

constexpr double kHeaderBytes = 112;  // the Chunk, and what the heap adds to it and its storage
constexpr double kFirstRunLength = 8;
constexpr double kRowsMax = 256;
constexpr double kBytesMax = 64 * 1024;
constexpr double kPackedRowsMax = 64;
constexpr double kPackedBytesMax = 512 * 1024;
constexpr double kPackedGuess = 1.0 / 16;    // of a row's bytes, before a chunk was packed
constexpr double kFirstRowShare = 1.0 / 10;  // of a row's bytes, which a chunk's first one costs
constexpr double kNewRunWeight = 1.0 / 8;

}  // namespace

std::uint32_t ChunkTuner::chunk_length(double step_bytes, std::uint64_t referable_rows) const {
  const double s = std::max(step_bytes, 1.0);
  const std::uint32_t best =
      best_length(kHeaderBytes, s, std::min(kRowsMax, std::floor(kBytesMax / s)), referable_rows);
  // As many rows as fit into the allocated block: the rest of it would be wasted.
  const auto block =
      static_cast<double>(block_bytes(static_cast<std::size_t>(std::ceil(best * s))));
  const auto fitting = std::min<double>(kRowsMax, std::floor(block / s));
  return std::max(
      best, static_cast<std::uint32_t>(std::min(fitting, static_cast<double>(referable_rows))));
}

std::uint32_t ChunkTuner::packed_chunk_length(double step_bytes, double packed_step_bytes,
                                              std::uint64_t referable_rows) const {
  const double s = std::max(step_bytes, 1.0);
  const double packed = packed_step_bytes > 0 ? packed_step_bytes : s * kPackedGuess;
  return best_length(kHeaderBytes + s * kFirstRowShare, std::max(packed, 1.0),
                     std::min(kPackedRowsMax, std::floor(kPackedBytesMax / s)), referable_rows);
}

std::uint32_t ChunkTuner::best_length(double chunk_bytes, double row_bytes, double rows_max,
                                      std::uint64_t referable_rows) const {
  const double run = mean_run_length_ > 0
                         ? mean_run_length_
                         : std::max(kFirstRunLength, static_cast<double>(referable_rows));
  const double expected = std::max(run, static_cast<double>(run_length_));
  const double best = std::round(std::sqrt(2 * expected * chunk_bytes / row_bytes));
  const double bound = std::min(std::ceil(expected), rows_max);
  return static_cast<std::uint32_t>(std::max(1.0, std::min(best, bound)));
}

void ChunkTuner::use_rows(std::uint64_t begin, std::uint64_t end) {
  if (end <= used_end_) return;
  if (begin > used_end_) end_run();
  run_length_ += end - std::max(begin, used_end_);
  used_end_ = end;
}

void ChunkTuner::end_episode() {
  end_run();
}

void ChunkTuner::end_run() {
  if (run_length_ == 0) return;
  const auto length = static_cast<double>(run_length_);
  mean_run_length_ = mean_run_length_ == 0
                         ? length
                         : mean_run_length_ + kNewRunWeight * (length - mean_run_length_);
  run_length_ = 0;
}

}  // namespace reverie
