// ReturnLog: the finished episodes of all actors, and the mean of the latest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"

namespace reverie {

struct EpisodeRecord {
  std::uint64_t step = 0;  // environment steps of all actors when it ended
  double episode_return = 0;
  std::uint64_t length = 0;
};

// Thread-safe.
class ReturnLog {
 public:
  // Requires window >= 1.
  explicit ReturnLog(std::size_t window) : window_(window) {}

  void add(const EpisodeRecord& episode);
  // For checkpoints: everything that add() was called with.
  void save(ByteWriter& out) const;
  Status load(ByteReader& in);
  std::size_t count() const;
  // The mean of the last `window` episodes, or of all if there are fewer; none if there are none.
  std::optional<double> mean() const;
  // The mean of the last `window` episodes; none if there are fewer.
  std::optional<double> window_mean() const;
  // Episodes from number `first` on, in the order in which they ended.
  std::vector<EpisodeRecord> since(std::size_t first) const;

 private:
  std::size_t counted() const REVERIE_REQUIRES(mutex_) {
    return std::min(window_, episodes_.size());
  }

  const std::size_t window_;
  mutable Mutex mutex_;
  std::vector<EpisodeRecord> episodes_ REVERIE_GUARDED_BY(mutex_);
  double window_sum_ REVERIE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reverie
