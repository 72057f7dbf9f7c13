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

// Compares a full block as two words, without a call.
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
  frames.last_.resize(height * width);
  frames.block_pixels_ = std::max(kBlockPixels, (width + 63) / 64);
  const std::size_t block_count = (width + frames.block_pixels_ - 1) / frames.block_pixels_;
  frames.moved_.assign(height, 0);
  frames.dirty_.assign(height, 0);
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
  REVERIE_CHECK(which == 0 || taken_[0] != nullptr);
  // The first screen is compared with the last one of the previous picture, the second with the
  // first.
  const std::uint8_t* const before = which == 0 ? last_.data() : taken_[0];
  const bool has_before = which == 1 || has_last_;
  std::vector<Blocks>& changed = which == 0 ? dirty_ : moved_;
  std::uint32_t seen = 0;
  for (std::size_t y = 0; y < height_; ++y) {
    if (is_used_[y] == 0) continue;
    const std::uint8_t* const from = indices.data() + y * width_;
    const std::uint8_t* const old = before + y * width_;
    if (has_before && std::memcmp(from, old, width_) == 0) continue;
    for (std::size_t block = 0; block < block_columns_.size(); ++block) {
      const Run run = pixels_of(block);
      if (has_before && are_equal(from + run.begin, old + run.begin, run.end - run.begin)) continue;
      changed[y] |= Blocks{1} << block;
      for (std::size_t x = run.begin; x < run.end; ++x) seen |= palette_[from[x]];
    }
  }
  const bool is_known = (seen & AtariPalette::kUnknown) == 0;
  taken_[which] = is_known ? indices.data() : nullptr;
  return is_known;
}

template <bool kPools>
void AtariFrames::resize_blocks(std::size_t y, Blocks blocks, std::uint8_t* out) {
  const Tap& row = rows_[y];
  const auto grey = [&](std::size_t i, std::size_t x) -> std::uint32_t {
    const std::size_t at = row.at[i] * width_ + x;
    const std::uint32_t first = palette_[taken_[0][at]];
    if constexpr (!kPools) return first;
    return std::max<std::uint32_t>(first, palette_[taken_[1][at]]);
  };
  std::uint32_t* const line = line_.data();
  for (; blocks != 0; blocks &= blocks - 1) {
    const Run run = block_columns_[static_cast<std::size_t>(std::countr_zero(blocks))];
    if (run.begin >= run.end) continue;
    for (std::size_t x = columns_[run.begin].at[0]; x <= columns_[run.end - 1].at[1]; ++x) {
      line[x] = row.weight[0] * grey(0, x) + row.weight[1] * grey(1, x);
    }
    for (std::size_t x = run.begin; x < run.end; ++x) {
      const Tap& column = columns_[x];
      const std::uint32_t sum =
          column.weight[0] * line[column.at[0]] + column.weight[1] * line[column.at[1]];
      out[x] = static_cast<std::uint8_t>((sum + (1u << 21)) >> 22);
    }
  }
}

template <bool kPools>
void AtariFrames::push_all() {
  for (std::size_t y = 0; y < small_height_; ++y) {
    const Blocks blocks = dirty_[rows_[y].at[0]] | dirty_[rows_[y].at[1]];
    if (blocks != 0) resize_blocks<kPools>(y, blocks, small_.data() + y * small_width_);
  }
}

void AtariFrames::push(bool pools) {
  REVERIE_CHECK(taken_[0] != nullptr && (!pools || taken_[1] != nullptr));
  for (std::size_t y = 0; pools && y < height_; ++y) dirty_[y] |= moved_[y];
  pools ? push_all<true>() : push_all<false>();
  // Where the two screens differ the picture shows both. The next picture will not, whatever
  // changes.
  const std::uint8_t* const newest = taken_[pools ? 1 : 0];
  for (std::size_t y = 0; y < height_; ++y) {
    if (dirty_[y] != 0) std::memcpy(last_.data() + y * width_, newest + y * width_, width_);
    dirty_[y] = pools ? moved_[y] : 0;
    moved_[y] = 0;
  }
  has_last_ = true;
  taken_ = {};
}

}  // namespace reverie
