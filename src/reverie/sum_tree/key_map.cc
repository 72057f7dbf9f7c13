#include "reverie/sum_tree/key_map.h"

#include <algorithm>

namespace reverie {

KeyMap::KeyMap() : KeyMap(random_seed()) {}

KeyMap::KeyMap(std::uint64_t secret) : secret_(secret) {
  segments_.push_back(std::make_unique<Segment>(0));
  directory_.push_back(segments_.back().get());
}

std::size_t KeyMap::memory_bytes() const {
  constexpr std::size_t kPointerBytes = sizeof(void*);  // to a segment, owned or in the directory
  return segments_.size() * (sizeof(Segment) + kPointerBytes) +
         directory_.capacity() * kPointerBytes;
}

std::size_t KeyMap::place_of(const Segment& segment, std::uint64_t key, std::uint64_t mixed) {
  std::size_t place = home(mixed);
  while (segment.values[place] != kNoSlot && segment.keys[place] != key) {
    place = (place + 1) % kPlaces;
  }
  return place;
}

std::optional<Slot> KeyMap::find(std::uint64_t key) const {
  const std::uint64_t mixed = mix(key);
  const Segment& segment = *directory_[segment_index(mixed)];
  const Slot value = segment.values[place_of(segment, key, mixed)];
  if (value == kNoSlot) return std::nullopt;
  return value;
}

void KeyMap::find(std::span<const std::uint64_t> keys, std::span<Slot> values) const {
  for (const std::uint64_t key : keys) {
    const std::uint64_t mixed = mix(key);
    const Segment& segment = *directory_[segment_index(mixed)];
    __builtin_prefetch(&segment.keys[home(mixed)]);
    __builtin_prefetch(&segment.values[home(mixed)]);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) values[i] = find(keys[i]).value_or(kNoSlot);
}

Slot* KeyMap::find_value(std::uint64_t key) {
  const std::uint64_t mixed = mix(key);
  Segment& segment = *directory_[segment_index(mixed)];
  const std::size_t place = place_of(segment, key, mixed);
  return segment.values[place] == kNoSlot ? nullptr : &segment.values[place];
}

bool KeyMap::insert(std::uint64_t key, Slot value) {
  const std::uint64_t mixed = mix(key);
  Segment* segment = directory_[segment_index(mixed)];
  std::size_t place = place_of(*segment, key, mixed);
  if (segment->values[place] != kNoSlot) return false;
  while (segment->count == kFull) {
    split(mixed);
    segment = directory_[segment_index(mixed)];
    place = place_of(*segment, key, mixed);
  }
  segment->keys[place] = key;
  segment->values[place] = value;
  ++segment->count;
  ++size_;
  return true;
}

std::optional<Slot> KeyMap::erase(std::uint64_t key) {
  const std::uint64_t mixed = mix(key);
  Segment& segment = *directory_[segment_index(mixed)];
  std::size_t hole = place_of(segment, key, mixed);
  const Slot value = segment.values[hole];
  if (value == kNoSlot) return std::nullopt;
  // Close the gap: move back each later entry of the run whose home does not lie behind the hole.
  for (std::size_t next = (hole + 1) % kPlaces; segment.values[next] != kNoSlot;
       next = (next + 1) % kPlaces) {
    const std::size_t distance_home = (next - home(mix(segment.keys[next]))) % kPlaces;
    const std::size_t distance_hole = (next - hole) % kPlaces;
    if (distance_home < distance_hole) continue;
    segment.keys[hole] = segment.keys[next];
    segment.values[hole] = segment.values[next];
    hole = next;
  }
  segment.values[hole] = kNoSlot;
  --segment.count;
  --size_;
  return value;
}

void KeyMap::split(std::uint64_t mixed) {
  Segment* const old = directory_[segment_index(mixed)];
  if (old->depth == depth_) {  // one more bit: each entry becomes two neighbours
    std::vector<Segment*> wider(directory_.size() * 2);
    for (std::size_t i = 0; i < wider.size(); ++i) wider[i] = directory_[i / 2];
    directory_ = std::move(wider);
    ++depth_;
  }
  const int bit = old->depth + 1;
  // All memory is allocated before an entry moves: if that fails, the map does not change.
  auto upper = std::make_unique<Segment>(bit);
  if (segments_.size() == segments_.capacity()) segments_.reserve(2 * segments_.size());
  const auto moved =
      std::make_unique<Segment>(*old);  // read from a copy: both halves are laid out afresh
  old->depth = bit;
  old->count = 0;
  old->values.fill(kNoSlot);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    if (moved->values[i] == kNoSlot) continue;
    const std::uint64_t m = mix(moved->keys[i]);
    Segment& half = (m >> (64 - bit)) & 1 ? *upper : *old;
    const std::size_t place = place_of(half, moved->keys[i], m);
    half.keys[place] = moved->keys[i];
    half.values[place] = moved->values[i];
    ++half.count;
  }
  // The entries of the old segment lie side by side; the upper half of them leads to the new one.
  const std::size_t span = std::size_t{1} << (depth_ - bit + 1);
  const std::size_t begin = segment_index(mixed) / span * span;
  for (std::size_t i = begin + span / 2; i < begin + span; ++i) directory_[i] = upper.get();
  segments_.push_back(std::move(upper));
}

}  // namespace reverie
