// The one source of randomness: xoshiro256++ (Blackman & Vigna 2019), seeded through SplitMix64.
//
// With one thread the same seed gives the same draws on every machine. Without a seed the state
// comes from the system's random device; seed() then tells what to log so as to repeat the run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace reverie {

// One step of SplitMix64: also a good mixer of 64-bit keys.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Not thread-safe.
class Random {
 public:
  explicit Random(std::uint64_t seed);
  // Seeded by the value; without one by the system.
  explicit Random(std::optional<std::uint64_t> seed);

  std::uint64_t seed() const { return seed_; }

  std::uint64_t next() {
    const std::uint64_t result = rotl(s_[0] + s_[3], 23) + s_[0];
    const std::uint64_t t = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= t;
    s_[3] = rotl(s_[3], 45);
    return result;
  }

  // Uniform in [0, 1), 53 random bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  void uniform(std::span<double> out) {
    for (double& x : out) x = uniform();
  }

  // Uniform in [0, bound), with negligible bias (2^-64 * bound). Requires bound > 0.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

  std::uint64_t seed_;
  std::uint64_t s_[4];
};

// A seed from the system's random device.
std::uint64_t random_seed();

}  // namespace reverie
