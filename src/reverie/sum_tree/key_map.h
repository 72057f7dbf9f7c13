// KeyMap: maps 64-bit keys to 32-bit values, without ever rehashing everything.
//
//     directory   [ 000 ][ 001 ][ 010 ][ 011 ] ...   by the leading bits of the mixed key
//                    |      \____/
//                    v         v
//     segments    { keys[1024], values[1024] }        open addressing, linear probing
//
// Extendible hashing: a segment that is full splits in two by one more bit, and the directory of
// pointers doubles when a segment needs more bits than it has. So the slowest insert moves a
// thousand entries (and copies some kilobytes of pointers), however many keys there are; a single
// array would stop its store for half a second at 10 million keys. Clients may choose keys: a
// secret of each map goes into the mixing, so that no client can choose keys that all fall into one
// segment, which would double the directory again and again. 12 bytes per place, at 37 to 75 %
// load: about 22 bytes per entry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/sum_tree/slot.h"

namespace reverie {

// Not thread-safe. Values below kNoSlot.
class KeyMap {
 public:
  KeyMap();
  // With a given secret, the same keys in the same order give the same layout.
  explicit KeyMap(std::uint64_t secret);
  KeyMap(KeyMap&&) noexcept = default;
  KeyMap& operator=(KeyMap&&) noexcept = default;

  std::size_t size() const { return size_; }
  std::size_t memory_bytes() const;

  std::optional<Slot> find(std::uint64_t key) const;
  // Gives kNoSlot for a missing key. Prefetches memory for all keys before it compares the first.
  // Requires spans of one size.
  void find(std::span<const std::uint64_t> keys, std::span<Slot> values) const;
  // The place of the key's value, valid until the next insert or erase; null if the key is missing.
  Slot* find_value(std::uint64_t key);

  // False, without effect, if the key exists already. May throw std::bad_alloc, without
  // effect.
  bool insert(std::uint64_t key, Slot value);
  // Returns the value that the key had, if it existed.
  std::optional<Slot> erase(std::uint64_t key);

 private:
  static constexpr std::size_t kPlaces = 1024;
  static constexpr std::size_t kFull = kPlaces * 3 / 4;

  struct Segment {
    explicit Segment(int prefix_bits) : depth(prefix_bits) { values.fill(kNoSlot); }
    int depth;  // leading bits that all keys here share
    std::size_t count = 0;
    std::array<std::uint64_t, kPlaces> keys;
    std::array<Slot, kPlaces> values;  // kNoSlot: free
  };

  // The low bits choose the place in the segment, the leading ones the segment.
  std::uint64_t mix(std::uint64_t key) const { return mix64(key ^ secret_); }
  static std::size_t home(std::uint64_t mixed) { return mixed % kPlaces; }
  std::size_t segment_index(std::uint64_t mixed) const {
    return depth_ == 0 ? 0 : mixed >> (64 - depth_);
  }
  // The key's place, or the free one that ends its run.
  static std::size_t place_of(const Segment& segment, std::uint64_t key, std::uint64_t mixed);
  void split(std::uint64_t mixed);

  std::vector<Segment*> directory_;  // 2^depth_ entries; neighbours may share a segment
  std::vector<std::unique_ptr<Segment>> segments_;
  int depth_ = 0;
  std::size_t size_ = 0;
  std::uint64_t secret_;
};

}  // namespace reverie
