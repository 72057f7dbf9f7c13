// ShardDirectory: remembers which shard has a key, for a bounded number of keys.
//
// A set-associative table: a key has four possible places, one set, newest first; a new key
// replaces the oldest. For a forgotten key the caller asks every shard; the answer is never
// wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace reverie {

// The index of a shard, in the order in which shards were given.
using ShardIndex = std::uint16_t;

// Not thread-safe.
class ShardDirectory {
 public:
  // Room for 4 * 2^set_bits keys, at 12 bytes each, allocated with the first key. Requires 1 <=
  // set_bits <= 32.
  explicit ShardDirectory(unsigned set_bits) : set_bits_(set_bits) {}

  void put(std::uint64_t key, ShardIndex shard);
  std::optional<ShardIndex> find(std::uint64_t key) const;
  void forget(std::uint64_t key);

 private:
  static constexpr std::size_t kWays = 4;
  static constexpr ShardIndex kNone = 0xffff;
  struct Set {
    std::array<std::uint64_t, kWays> keys{};
    std::array<ShardIndex, kWays> shards{kNone, kNone, kNone, kNone};
  };

  std::size_t set_of(std::uint64_t key) const {
    // Fibonacci hashing, since keys may be consecutive numbers.
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> (64 - set_bits_));
  }

  const unsigned set_bits_;
  std::vector<Set> sets_;
};

}  // namespace reverie
