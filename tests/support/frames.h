// Images like those of a game: a constant background and a few moving sprites.
#pragma once

#include <cstddef>
#include <vector>

namespace reverie::testing {

// Frame `f` of `side` x `side` bytes. Requires side >= 16.
inline std::vector<std::byte> frame(std::size_t f, std::size_t side) {
  constexpr std::size_t kSprite = 6;
  std::vector<std::byte> pixels(side * side);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::byte>(i / side / 8 * 16);
  }
  for (std::size_t sprite = 0; sprite < 3; ++sprite) {
    const std::size_t x = (f * (sprite + 1) + 13 * sprite) % (side - kSprite);
    const std::size_t y = (f / (sprite + 1) + 11 * sprite) % (side - kSprite);
    for (std::size_t i = 0; i < kSprite * kSprite; ++i) {
      pixels[(y + i / kSprite) * side + x + i % kSprite] = static_cast<std::byte>(200 + i % 7);
    }
  }
  return pixels;
}

}  // namespace reverie::testing
