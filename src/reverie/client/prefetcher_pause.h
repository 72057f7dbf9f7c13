// PrefetcherPause: what a store's checkpoints see of a prefetcher.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "reverie/base/mutex.h"
#include "reverie/client/prefetcher.h"
#include "reverie/service/ahead_readers.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Those that may pause a reader of a table of the service; null for remote ones, and if items can
// be drawn several times before they leave: an earlier draw of one that has left cannot be undone.
inline AheadReaders* readers_of(ReplayService& service, std::int64_t max_times_sampled) {
  return max_times_sampled <= 1 ? service.ahead_readers() : nullptr;
}

template <typename T>
class PrefetcherPause final : public AheadReader {
 public:
  // Hands back what was made and not taken, in order, while no make() runs.
  using HandBack = std::function<void(std::deque<T> unused)>;

  // Both are used until detach().
  PrefetcherPause(Prefetcher<T>& prefetcher, HandBack hand_back)
      : prefetcher_(&prefetcher), hand_back_(std::move(hand_back)) {}
  // Has `readers`, if any, pause a prefetcher that was made in one pause, and ends that.
  static std::shared_ptr<PrefetcherPause> start(AheadReaders* readers, Prefetcher<T>& prefetcher,
                                                HandBack hand_back) {
    auto made = std::make_shared<PrefetcherPause>(prefetcher, std::move(hand_back));
    if (readers != nullptr) readers->add(made);
    prefetcher.resume();
    return made;
  }

  void begin_pause() override {
    const MutexLock lock(mutex_);
    if (prefetcher_ != nullptr) prefetcher_->begin_pause();
  }
  bool wait_until_still(TimePoint deadline) override {
    const MutexLock lock(mutex_);
    return prefetcher_ == nullptr || prefetcher_->wait_until_still(deadline);
  }
  void hand_back() override {
    const MutexLock lock(mutex_);
    if (prefetcher_ != nullptr) hand_back_(prefetcher_->take_paused());
  }
  void resume() override {
    const MutexLock lock(mutex_);
    if (prefetcher_ != nullptr) prefetcher_->resume();
  }
  // Call it once the prefetcher is closed: nothing is used from then on.
  void detach() {
    const MutexLock lock(mutex_);
    prefetcher_ = nullptr;
    hand_back_ = nullptr;
  }

 private:
  Mutex mutex_;
  Prefetcher<T>* prefetcher_ REVERIE_GUARDED_BY(mutex_);
  HandBack hand_back_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
