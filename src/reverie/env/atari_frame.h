// The Atari preprocessing of published agents: the last two screens, pooled and scaled down.
//
//     palette indices a, b [210, 160] --grey levels--> max(a, b) --bilinear--> [84, 84]
//
// Source: Mnih et al. 2015 (DQN), "Methods: Preprocessing"; moolib's paper, table 2. Differs: it
// asks the emulator for palette indices, which cost a fifteenth of its grey screen, and computes
// only what changed since the last picture, in blocks of some pixels of a row: the result is the
// same function of the screens, byte for byte. It keeps only one copy of a screen, to detect
// changes, so that those of many environments fit in the second-level cache.
//
// Bilinear, exactly: row y of the small picture is at s = (y + 1/2) H / h - 1/2 of the H rows of
// the screen, between rows floor(s) and floor(s) + 1 (clamped to the screen), with weights 2048 - w
// and w, where w = floor(2048 (s - floor(s)) + 1/2); columns likewise. A pixel is (sum of weight *
// weight * grey + 2^21) >> 22.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"

namespace reverie {

// The grey level of each palette index, learnt from screens as they come.
class AtariPalette {
 public:
  AtariPalette() { grey_.fill(kUnknown); }
  static constexpr std::uint16_t kUnknown = 0x100;

  // Learns the grey levels of `indices`. Requires equal sizes.
  void learn(std::span<const std::uint8_t> indices, std::span<const std::uint8_t> grey);
  // kUnknown for an index that no screen had so far.
  std::uint16_t operator[](std::uint8_t index) const { return grey_[index]; }

 private:
  std::array<std::uint16_t, 256> grey_;
};

// Not thread-safe.
class AtariFrames {
 public:
  // Scales screens of `height` x `width` to `small_height` x `small_width`. INVALID_ARGUMENT if an
  // extent is 0 or above 4096.
  static Result<AtariFrames> make(std::size_t height, std::size_t width, std::size_t small_height,
                                  std::size_t small_width);

  std::size_t screen_bytes() const { return height_ * width_; }
  AtariPalette& palette() { return palette_; }

  // Takes one of the last two screens, 0 and then 1, in palette indices. False if it contains an
  // index that the palette does not know: learn it, and take the screen again. Requires
  // screen_bytes() indices, which must not change until push().
  bool take(std::size_t which, std::span<const std::uint8_t> indices);
  // Makes the picture from both screens, or only from the first. Requires that they were taken
  // since the last push().
  void push(bool pools);

  // The latest picture: [small_height, small_width].
  std::span<const std::uint8_t> picture() const { return small_; }

 private:
  // For one row or column of the small picture: the two of the screen that it is between.
  struct Tap {
    std::size_t at[2];
    std::uint32_t weight[2];
  };

  AtariFrames() = default;
  static std::vector<Tap> taps(std::size_t from, std::size_t to);
  // Which blocks of a row changed: bit i stands for pixels [i * block_pixels_, ...).
  using Blocks = std::uint64_t;
  // A run of pixels.
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  Run pixels_of(std::size_t block) const;
  template <bool kPools>
  void resize_blocks(std::size_t y, Blocks blocks, std::uint8_t* out);
  template <bool kPools>
  void push_all();

  std::size_t height_ = 0;
  std::size_t width_ = 0;
  std::size_t small_height_ = 0;
  std::size_t small_width_ = 0;
  std::vector<Tap> rows_;
  std::vector<Tap> columns_;
  std::size_t block_pixels_ = 0;
  std::vector<Run> block_columns_;     // by block: columns of the small picture that it affects
  std::vector<std::uint8_t> is_used_;  // rows of the screen that affect the small picture
  AtariPalette palette_;
  std::array<const std::uint8_t*, 2> taken_{};  // the two screens, until the push
  std::vector<std::uint8_t> last_;              // the last screen of the last picture
  bool has_last_ = false;
  std::vector<Blocks> moved_;  // by row: where the two screens differ
  std::vector<Blocks> dirty_;  // by row: what may differ in the next picture
  std::vector<std::uint32_t> line_;
  std::vector<std::uint8_t> small_;  // the small picture of the last push
};

}  // namespace reverie
