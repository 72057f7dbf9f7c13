// UnsyncedWindow: whether a power cut would lose changes of more time than a journal promises.
//
//     on the disk | span | span | span ...      a span: the changes of a sixteenth of the bound
//                 ^ oldest           ^ newest   full: newest - oldest >= bound
//
// Times are those of the changes, so this reads no clock. A span ends once all of its changes are
// on the disk, so the oldest change is taken to be older than it is by less than a span.
//
// Tested in unsynced_window_test.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "reverie/base/clock.h"

namespace reverie::checkpoint {

// Not thread-safe.
class UnsyncedWindow {
 public:
  explicit UnsyncedWindow(Duration bound) : bound_(bound) {}

  // A change was made whose first record has this number, greater than those before.
  void add(std::uint64_t record, TimePoint made) {
    newest_ = std::max(newest_, made);
    last_record_ = record;
    const bool begins_span =
        spans_.empty() ||
        (made - spans_.back().oldest >= bound_ / kSpansOfBound && spans_.size() < kSpansMax);
    if (begins_span) spans_.push_back({record, made});
  }
  // All records up to this one, the last of a change, are on the disk, or gone.
  void sync(std::uint64_t record) {
    while (!spans_.empty()) {
      const std::uint64_t last = spans_.size() > 1 ? spans_[1].first_record - 1 : last_record_;
      if (last > record) return;
      spans_.pop_front();
    }
  }
  bool is_full() const { return !spans_.empty() && newest_ - spans_.front().oldest >= bound_; }

 private:
  static constexpr int kSpansOfBound = 16;
  // A full window needs no more of them.
  static constexpr std::size_t kSpansMax = std::size_t{4} * kSpansOfBound;

  struct Span {
    std::uint64_t first_record = 0;
    TimePoint oldest;
  };

  Duration bound_;
  TimePoint newest_;
  std::uint64_t last_record_ = 0;
  std::deque<Span> spans_;
};

}  // namespace reverie::checkpoint
