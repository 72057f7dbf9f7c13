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

void AheadReaders::end_pause() {
  const MutexLock lock(mutex_);
  --pauses_;
  for (const auto& reader : alive()) reader->resume();
}

void AheadReaders::pause_for(const std::function<void()>& freeze) {
  struct Pause {
    explicit Pause(AheadReaders& paused) : all(paused), readers(paused.begin_pause()) {}
    ~Pause() { all.end_pause(); }
    AheadReaders& all;
    std::vector<std::shared_ptr<AheadReader>> readers;
  };
  Pause pause(*this);
  // All are still before one hands back, so that none draws what another one returns.
  const TimePoint deadline = Clock::system().now() + kPatience;
  const std::size_t late = std::erase_if(
      pause.readers, [&](const auto& reader) { return !reader->wait_until_still(deadline); });
  for (const auto& reader : pause.readers) reader->hand_back();
  if (late > 0) {
    log_warning(
        "{} of {} datasets did not stop drawing within 2 s: the checkpoint counts what they have "
        "drawn ahead as used",
        late, late + pause.readers.size());
  }
  freeze();
}

}  // namespace reverie
