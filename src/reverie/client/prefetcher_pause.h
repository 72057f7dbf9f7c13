// PrefetcherPause: what a store's checkpoints see of a prefetcher.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "reverie/base/mutex.h"
#include "reverie/client/prefetcher.h"
#include "reverie/service/ahead_readers.h"

namespace reverie {

template <typename T>
class PrefetcherPause final : public AheadReader {
 public:
  // Hands back what was made and not taken, in order, while no make() runs.
  using HandBack = std::function<void(std::deque<T> unused)>;

  // Both are used until detach().
  PrefetcherPause(Prefetcher<T>& prefetcher, HandBack hand_back)
      : prefetcher_(&prefetcher), hand_back_(std::move(hand_back)) {}

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
