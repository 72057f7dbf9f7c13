#include "reverie/service/ahead_readers.h"

#include <algorithm>
#include <chrono>

#include "reverie/base/log.h"

namespace reverie {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);

}  // namespace

void AheadReaders::add(const std::shared_ptr<AheadReader>& reader) {
  const MutexLock lock(mutex_);
  std::erase_if(readers_, [](const auto& known) { return known.expired(); });
  readers_.push_back(reader);
  for (std::size_t i = 0; i < pauses_; ++i) reader->begin_pause();
}

std::vector<std::shared_ptr<AheadReader>> AheadReaders::alive() {
  std::vector<std::shared_ptr<AheadReader>> found;
  for (const std::weak_ptr<AheadReader>& known : readers_) {
    if (std::shared_ptr<AheadReader> reader = known.lock()) found.push_back(std::move(reader));
  }
  return found;
}

std::vector<std::shared_ptr<AheadReader>> AheadReaders::begin_pause() {
  const MutexLock lock(mutex_);
  ++pauses_;
  std::vector<std::shared_ptr<AheadReader>> paused = alive();
  for (const auto& reader : paused) reader->begin_pause();
  return paused;
}

void AheadReaders::pause_for(const std::function<void()>& freeze) {
  const std::vector<std::shared_ptr<AheadReader>> paused = begin_pause();
  const TimePoint deadline = Clock::system().now() + kPatience;
  const auto late = std::ranges::count_if(
      paused, [&](const auto& reader) { return !reader->hand_back_by(deadline); });
  if (late > 0) {
    log_warning(
        "{} of {} datasets did not stop drawing within 2 s: the checkpoint counts what they have "
        "drawn ahead as used",
        late, paused.size());
  }
  freeze();
  const MutexLock lock(mutex_);
  --pauses_;
  for (const auto& reader : alive()) reader->resume();
}

}  // namespace reverie
