#include "reverie/client/chunk_tuner.h"

#include <algorithm>
#include <cmath>

namespace reverie {
namespace {

constexpr double kHeaderBytes = 112;  // the Chunk, and what the heap adds to it and its storage
constexpr double kFirstRunLength = 8;
constexpr double kRowsMax = 256;
constexpr double kBytesMax = 64 * 1024;
constexpr double kNewRunWeight = 1.0 / 8;

}  // namespace

std::uint32_t ChunkTuner::chunk_length(double step_bytes, std::uint64_t referable_rows) const {
  const double run = mean_run_length_ > 0
                         ? mean_run_length_
                         : std::max(kFirstRunLength, static_cast<double>(referable_rows));
  const double expected = std::max(run, static_cast<double>(run_length_));
  const double s = std::max(step_bytes, 1.0);
  const double best = std::round(std::sqrt(2 * expected * kHeaderBytes / s));
  const double bound = std::min({std::ceil(expected), kRowsMax, std::floor(kBytesMax / s)});
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
