// An array that grows without moving its elements: no growth costs more than one segment.
//
// A directory of pointers leads to segments of a few thousand elements. Only the directory is ever
// copied: 20 KB at 10 million elements.
//
// freeze() keeps the array's contents at that moment for a reader that does not hold its owner's
// lock: the first write to a segment afterwards copies it, and leaves the old segment to the
// reader. If there is no memory for the copy, the reader loses the contents, and the array is not
// frozen any more. Writes to an array that may be frozen go through write().
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "reverie/sum_tree/frozen_contents.h"

namespace reverie {

// Not thread-safe. `T` is a plain value.
template <typename T, std::size_t kSegmentSize = 4096>
class SegmentedArray {
  static_assert(std::has_single_bit(kSegmentSize));

 public:
  // The contents of an array when it was frozen. Any thread may read() it until thaw().
  class Frozen : public FrozenContents {
   public:
    // Inside read(). Requires an index below the capacity that the array had.
    const T& operator[](std::size_t index) const {
      return segments_[index / kSegmentSize][index % kSegmentSize];
    }

   private:
    friend class SegmentedArray;
    std::vector<const T*> segments_;
    std::vector<std::unique_ptr<T[]>> kept_;  // segments written to since; used by the writer
    std::vector<bool> is_kept_;
  };

  // The number of elements; those beyond the largest one reached are copies of `fill` too.
  std::size_t capacity() const { return segments_.size() * kSegmentSize; }

  // Grows to include `index`; new elements are copies of `fill`.
  void reach(std::size_t index, const T& fill) {
    while (index >= capacity()) {
      auto segment = std::make_unique_for_overwrite<T[]>(kSegmentSize);
      std::fill_n(segment.get(), kSegmentSize, fill);
      segments_.push_back(std::move(segment));
    }
  }

  // Require index < capacity().
  T& operator[](std::size_t index) { return segments_[index / kSegmentSize][index % kSegmentSize]; }
  const T& operator[](std::size_t index) const {
    return segments_[index / kSegmentSize][index % kSegmentSize];
  }

  // The element, for writing. Requires index < capacity().
  T& write(std::size_t index) {
    if (frozen_) [[unlikely]] {
      keep(index / kSegmentSize);
    }
    return (*this)[index];
  }

  // Only one at a time: call thaw() after the last read, before the next freeze.
  std::shared_ptr<const Frozen> freeze() {
    frozen_ = std::make_shared<Frozen>();
    frozen_->segments_.reserve(segments_.size());
    for (const auto& segment : segments_) frozen_->segments_.push_back(segment.get());
    frozen_->kept_.reserve(segments_.size());
    frozen_->is_kept_.resize(segments_.size());
    return frozen_;
  }
  void thaw() { frozen_.reset(); }

  std::size_t memory_bytes() const {
    return capacity() * sizeof(T) + segments_.capacity() * sizeof(std::unique_ptr<T[]>);
  }

 private:
  void keep(std::size_t index) {
    if (index >= frozen_->is_kept_.size() || frozen_->is_kept_[index]) return;
    std::unique_ptr<T[]> copy;
    try {
      copy = std::make_unique_for_overwrite<T[]>(kSegmentSize);
      std::copy_n(segments_[index].get(), kSegmentSize, copy.get());
    } catch (const std::bad_alloc&) {
      frozen_->give_up();
      frozen_.reset();
      return;
    }
    std::swap(copy, segments_[index]);
    frozen_->kept_.push_back(std::move(copy));
    frozen_->is_kept_[index] = true;
  }

  std::vector<std::unique_ptr<T[]>> segments_;
  std::shared_ptr<Frozen> frozen_;
};

}  // namespace reverie
