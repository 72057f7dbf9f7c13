// Random numbers in batches: four xoshiro256++ side by side, one per vector lane.
//
// Seeded from a Random, so that the same seed gives the same numbers on every processor. One
// generator alone is a chain of dependent steps; four keep a vector unit busy.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "reverie/base/random.h"

namespace reverie {

// Not thread-safe.
class RandomLanes {
 public:
  static constexpr std::size_t kLanes = 4;

  explicit RandomLanes(Random& seeds) {
    for (auto& word : words_) {
      for (std::uint64_t& lane : word) lane = seeds.next();
    }
  }

  // Word w of the state of generator l.
  std::uint64_t (&words())[4][kLanes] { return words_; }
  const std::uint64_t (&words() const)[4][kLanes] { return words_; }

  // Uniform in [0, scale), 52 random bits each. Requires count to be a multiple of kLanes,
  // scale > 0.
  void fill(double scale, double* out, std::size_t count) {
    for (std::size_t i = 0; i < count; i += kLanes) {
      for (std::size_t l = 0; l < kLanes; ++l) out[i + l] = unit(next(l)) * scale;
    }
  }

 private:
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

  std::uint64_t next(std::size_t l) {
    auto& [s0, s1, s2, s3] = words_;
    const std::uint64_t result = rotl(s0[l] + s3[l], 23) + s0[l];
    const std::uint64_t t = s1[l] << 17;
    s2[l] ^= s0[l];
    s3[l] ^= s1[l];
    s1[l] ^= s2[l];
    s0[l] ^= s3[l];
    s2[l] ^= t;
    s3[l] = rotl(s3[l], 45);
    return result;
  }

  // Takes the upper 52 bits as the fraction of a number in [1, 2), and subtracts 1.
  static double unit(std::uint64_t random) {
    return std::bit_cast<double>((random >> 12) | 0x3ff0000000000000u) - 1.0;
  }

  std::uint64_t words_[4][kLanes];
};

}  // namespace reverie
