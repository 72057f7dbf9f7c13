#include "reverie/learn/return_log.h"

#include "reverie/codec/byte_arrays.h"

namespace reverie {

void ReturnLog::add(const EpisodeRecord& episode) {
  MutexLock lock(mutex_);
  episodes_.push_back(episode);
  // Summed again periodically, so that rounding errors do not accumulate.
  const std::size_t count = episodes_.size();
  if (count > window_ && count % window_ != 0) {
    window_sum_ += episode.episode_return - episodes_[count - window_ - 1].episode_return;
    return;
  }
  window_sum_ = 0;
  for (std::size_t i = count - counted(); i < count; ++i) {
    window_sum_ += episodes_[i].episode_return;
  }
}

void ReturnLog::save(ByteWriter& out) const {
  write_array<EpisodeRecord>(since(0), out);
}

Status ReturnLog::load(ByteReader& in) {
  const std::vector<EpisodeRecord> episodes = read_array<EpisodeRecord>(in);
  REVERIE_RETURN_IF_ERROR(check_done(in, "the episodes"));
  for (const EpisodeRecord& episode : episodes) add(episode);
  return {};
}

std::size_t ReturnLog::count() const {
  MutexLock lock(mutex_);
  return episodes_.size();
}

std::optional<double> ReturnLog::mean() const {
  MutexLock lock(mutex_);
  if (episodes_.empty()) return std::nullopt;
  return window_sum_ / static_cast<double>(counted());
}

std::optional<double> ReturnLog::window_mean() const {
  MutexLock lock(mutex_);
  if (episodes_.size() < window_) return std::nullopt;
  return window_sum_ / static_cast<double>(window_);
}

std::vector<EpisodeRecord> ReturnLog::since(std::size_t first) const {
  MutexLock lock(mutex_);
  first = std::min(first, episodes_.size());
  return {episodes_.begin() + static_cast<std::ptrdiff_t>(first), episodes_.end()};
}

}  // namespace reverie
