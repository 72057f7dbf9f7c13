#include "reverie/env/atari_frame.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace reverie {
namespace {

constexpr std::uint32_t kOne = 2048;  // a weight of 1
constexpr std::size_t kExtentMax = 4096;
constexpr std::size_t kBlockPixels = 16;

// A full block by two words, without a call.
bool are_equal(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
  if (size != kBlockPixels) return std::memcmp(a, b, size) == 0;
  std::uint64_t of_a[2];
  std::uint64_t of_b[2];
  static_assert(sizeof(of_a) == kBlockPixels);
  std::memcpy(of_a, a, sizeof(of_a));
  std::memcpy(of_b, b, sizeof(of_b));
  return ((of_a[0] ^ of_b[0]) | (of_a[1] ^ of_b[1])) == 0;
}

}  // namespace

void AtariPalette::learn(std::span<const std::uint8_t> indices,
                         std::span<const std::uint8_t> grey) {
  REVERIE_CHECK(indices.size() == grey.size());
  for (std::size_t i = 0; i < indices.size(); ++i) grey_[indices[i]] = grey[i];
}

Result<AtariFrames> AtariFrames::make(std::size_t height, std::size_t width,
                                      std::size_t small_height, std::size_t small_width) {
  for (const std::size_t extent : {height, width, small_height, small_width}) {
    if (extent < 1 || extent > kExtentMax) {
      return invalid_argument("a screen of {} x {}, made {} x {}: each must be between 1 and {}",
                              height, width, small_height, small_width, kExtentMax);
    }
  }
  AtariFrames frames;
  frames.height_ = height;
  frames.width_ = width;
  frames.small_height_ = small_height;
  frames.small_width_ = small_width;
  frames.rows_ = taps(height, small_height);
  frames.columns_ = taps(width, small_width);
  frames.is_used_.resize(height);
  for (const Tap& tap : frames.rows_) {
    frames.is_used_[tap.at[0]] = 1;
    frames.is_used_[tap.at[1]] = 1;
  }
  for (Screen& screen : frames.screens_) {
    screen.indices.resize(height * width);
    screen.grey.resize(height * width);
  }
  frames.pooled_.resize(height * width);
  frames.block_pixels_ = std::max(kBlockPixels, (width + 63) / 64);
  const std::size_t block_count = (width + frames.block_pixels_ - 1) / frames.block_pixels_;
  frames.all_blocks_ = ~Blocks{0} >> (64 - block_count);
  frames.dirty_.assign(height, frames.all_blocks_);
  for (std::size_t block = 0; block < block_count; ++block) {
    const Run pixels = frames.pixels_of(block);
    Run columns{small_width, 0};
    for (std::size_t x = 0; x < small_width; ++x) {
      const Tap& tap = frames.columns_[x];
      if (tap.at[1] < pixels.begin || tap.at[0] >= pixels.end) continue;
      columns.begin = std::min(columns.begin, x);
      columns.end = x + 1;
    }
    frames.block_columns_.push_back(columns);
  }
  frames.line_.resize(width);
  frames.small_.resize(small_height * small_width);
  return frames;
}

std::vector<AtariFrames::Tap> AtariFrames::taps(std::size_t from, std::size_t to) {
  std::vector<Tap> taps(to);
  for (std::size_t i = 0; i < to; ++i) {
    const double place =
        (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5;
    const double below = std::floor(place);
    const auto weight = static_cast<std::uint32_t>(std::floor(kOne * (place - below) + 0.5));
    const auto clamped = [from](double at) {
      return static_cast<std::size_t>(std::clamp(at, 0.0, static_cast<double>(from - 1)));
    };
    taps[i] = {{clamped(below), clamped(below + 1)}, {kOne - weight, weight}};
  }
  return taps;
}

AtariFrames::Run AtariFrames::pixels_of(std::size_t block) const {
  const std::size_t begin = block * block_pixels_;
  return {begin, std::min(begin + block_pixels_, width_)};
}

bool AtariFrames::take(std::size_t which, std::span<const std::uint8_t> indices) {
  REVERIE_CHECK(which < 2 && indices.size() == screen_bytes());
  Screen& screen = screens_[which];
  const bool has_last = screen.is_known;
  std::uint32_t seen = 0;
  for (std::size_t y = 0; y < height_; ++y) {
    const std::size_t at = y * width_;
    const std::uint8_t* const from = indices.data() + at;
    std::uint8_t* const last = screen.indices.data() + at;
    if (is_used_[y] == 0) continue;
    if (has_last && std::memcmp(from, last, width_) == 0) continue;
    std::uint8_t* const grey = screen.grey.data() + at;
    for (std::size_t block = 0; block < block_columns_.size(); ++block) {
      const Run run = pixels_of(block);
      const std::size_t size = run.end - run.begin;
      if (has_last && are_equal(from + run.begin, last + run.begin, size)) continue;
      dirty_[y] |= Blocks{1} << block;
      for (std::size_t x = run.begin; x < run.end; ++x) {
        const std::uint32_t level = palette_[from[x]];
        seen |= level;
        grey[x] = static_cast<std::uint8_t>(level);
      }
      std::memcpy(last + run.begin, from + run.begin, size);
    }
  }
  // With a colour unknown all is to be looked at again.
  screen.is_known = (seen & AtariPalette::kUnknown) == 0;
  return screen.is_known;
}

void AtariFrames::pool_blocks(std::size_t y, Blocks blocks) {
  const std::uint8_t* const a = screens_[0].grey.data() + y * width_;
  const std::uint8_t* const b = screens_[1].grey.data() + y * width_;
  std::uint8_t* const out = pooled_.data() + y * width_;
  for (; blocks != 0; blocks &= blocks - 1) {
    const Run run = pixels_of(static_cast<std::size_t>(std::countr_zero(blocks)));
    for (std::size_t x = run.begin; x < run.end; ++x) out[x] = std::max(a[x], b[x]);
  }
}

void AtariFrames::resize_blocks(std::size_t y, Blocks blocks, std::uint8_t* out) {
  const Tap& row = rows_[y];
  const std::uint8_t* const from = has_pooled_ ? pooled_.data() : screens_[0].grey.data();
  const std::uint8_t* const above = from + row.at[0] * width_;
  const std::uint8_t* const below = from + row.at[1] * width_;
  std::uint32_t* const line = line_.data();
  for (; blocks != 0; blocks &= blocks - 1) {
    const Run run = block_columns_[static_cast<std::size_t>(std::countr_zero(blocks))];
    if (run.begin >= run.end) continue;
    for (std::size_t x = columns_[run.begin].at[0]; x <= columns_[run.end - 1].at[1]; ++x) {
      line[x] = row.weight[0] * above[x] + row.weight[1] * below[x];
    }
    for (std::size_t x = run.begin; x < run.end; ++x) {
      const Tap& column = columns_[x];
      const std::uint32_t sum =
          column.weight[0] * line[column.at[0]] + column.weight[1] * line[column.at[1]];
      out[x] = static_cast<std::uint8_t>((sum + (1u << 21)) >> 22);
    }
  }
}

void AtariFrames::push(bool pools) {
  REVERIE_CHECK(screens_[0].is_known && (!pools || screens_[1].is_known));
  if (pools != has_pooled_) std::fill(dirty_.begin(), dirty_.end(), all_blocks_);
  has_pooled_ = pools;
  for (std::size_t y = 0; pools && y < height_; ++y) {
    if (is_used_[y] != 0 && dirty_[y] != 0) pool_blocks(y, dirty_[y]);
  }
  for (std::size_t y = 0; y < small_height_; ++y) {
    const Blocks blocks = dirty_[rows_[y].at[0]] | dirty_[rows_[y].at[1]];
    if (blocks != 0) resize_blocks(y, blocks, small_.data() + y * small_width_);
  }
  std::fill(dirty_.begin(), dirty_.end(), Blocks{0});
}

}  // namespace reverie
