#include "reverie/base/random.h"

#include <random>

namespace reverie {

Random::Random(std::uint64_t seed) : seed_(seed) {
  // SplitMix64 from the seed on: never all zero.
  std::uint64_t x = seed;
  for (std::uint64_t& word : s_) {
    word = mix64(x);
    x += 0x9e3779b97f4a7c15u;
  }
}

Random::Random(std::optional<std::uint64_t> seed) : Random(seed ? *seed : random_seed()) {}

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace reverie
