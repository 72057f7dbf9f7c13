// An array that grows without moving what it holds: no growth costs more than one segment.
//
// A directory of pointers leads to segments of a few thousand elements. Only the directory is ever
// copied: 20 KB at 10 million elements.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <vector>

namespace reverie {

// Not thread-safe. `T` is a plain value.
template <typename T, std::size_t kSegmentSize = 4096>
class SegmentedArray {
  static_assert(std::has_single_bit(kSegmentSize));

 public:
  // Elements that exist; those beyond the largest one reached are copies of `fill` too.
  std::size_t capacity() const { return segments_.size() * kSegmentSize; }

  // Makes the elements up to `index` exist, the new ones as copies of `fill`.
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

  std::size_t memory_bytes() const {
    return capacity() * sizeof(T) + segments_.capacity() * sizeof(std::unique_ptr<T[]>);
  }

 private:
  std::vector<std::unique_ptr<T[]>> segments_;
};

}  // namespace reverie
