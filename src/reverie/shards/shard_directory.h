// ShardDirectory: which shard holds a key, for as many keys as there is room.
//
// A set-associative table: a key's four places lie in one set, the newest first, and the oldest is
// forgotten for a new one. What was forgotten costs its asker a question to every shard, never a
// wrong answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace reverie {

// Counted as the shards were given.
using ShardIndex = std::uint16_t;

// Not thread-safe.
class ShardDirectory {
 public:
  // Room for 4 * 2^set_bits keys, at 12 bytes each, taken with the first. Requires 1 <= set_bits
  // <= 32.
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
    // Fibonacci hashing: keys may be counted up by who chose them.
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> (64 - set_bits_));
  }

  const unsigned set_bits_;
  std::vector<Set> sets_;
};

}  // namespace reverie
