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
  bool hand_back_by(TimePoint deadline) override {
    const MutexLock lock(mutex_);
    if (prefetcher_ == nullptr) return true;
    std::optional<std::deque<T>> unused = prefetcher_->take_paused(deadline);
    if (!unused) return false;
    hand_back_(*std::move(unused));
    return true;
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
