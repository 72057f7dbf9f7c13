#include "reverie/env/atari_frame.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using Picture = std::vector<std::uint8_t>;

// Any palette works; this one differs from the identity.
std::uint8_t grey_of(std::uint8_t index) {
  return static_cast<std::uint8_t>(255 - index);
}

// The definition in the header, computed pixel by pixel.
Picture resized(const Picture& grey, int height, int width, int small_height, int small_width) {
  const auto tap = [](int i, int from, int to) {
    const double place = (i + 0.5) * from / to - 0.5;
    const auto weight =
        static_cast<std::int64_t>(std::floor(2048 * (place - std::floor(place)) + 0.5));
    const auto at = [&](double value) { return std::clamp(static_cast<int>(value), 0, from - 1); };
    return std::tuple(at(std::floor(place)), at(std::floor(place) + 1), 2048 - weight, weight);
  };
  Picture out;
  for (int y = 0; y < small_height; ++y) {
    for (int x = 0; x < small_width; ++x) {
      const auto [y0, y1, v0, v1] = tap(y, height, small_height);
      const auto [x0, x1, w0, w1] = tap(x, width, small_width);
      const auto pixel = [&](int row, int column) {
        return static_cast<std::int64_t>(grey[static_cast<std::size_t>(row * width + column)]);
      };
      const std::int64_t sum = v0 * (w0 * pixel(y0, x0) + w1 * pixel(y0, x1)) +
                               v1 * (w0 * pixel(y1, x0) + w1 * pixel(y1, x1));
      out.push_back(static_cast<std::uint8_t>((sum + (1 << 21)) >> 22));
    }
  }
  return out;
}

TEST(AtariFrames, EachImageMatchesTheReferenceHoweverFewRowsChanged) {
  constexpr int kWidth = 75;  // four blocks of 16 pixels and one of 11
  Random random(3);
  AtariFrames frames = AtariFrames::make(21, kWidth, 8, 30).value();
  for (int index = 0; index < 256; ++index) {
    const std::uint8_t one[] = {static_cast<std::uint8_t>(index)};
    const std::uint8_t grey[] = {grey_of(one[0])};
    frames.palette().learn(one, grey);
  }
  Picture first(21 * kWidth);
  Picture second(21 * kWidth);
  for (int turn = 0; turn < 500; ++turn) {
    // Usually a few pixels change, or none; sometimes all of them.
    const std::uint64_t changes = turn % 50 == 0 ? 1'000 : random.below(4);
    for (std::uint64_t i = 0; i < changes; ++i) {
      Picture& screen = random.below(2) == 0 ? first : second;
      screen[random.below(screen.size())] = static_cast<std::uint8_t>(random.below(256));
    }
    const bool is_single = turn % 7 == 3;
    ASSERT_TRUE(frames.take(0, first));
    ASSERT_TRUE(is_single || frames.take(1, second));
    frames.push(!is_single);
    Picture pooled;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::uint8_t a = grey_of(first[i]);
      pooled.push_back(is_single ? a : std::max(a, grey_of(second[i])));
    }
    const Picture small = resized(pooled, 21, kWidth, 8, 30);
    ASSERT_EQ(Picture(frames.picture().begin(), frames.picture().end()), small) << "turn " << turn;
  }
}

TEST(AtariFrames, AFrameIsNotTakenUntilItsColoursAreLearned) {
  AtariFrames frames = AtariFrames::make(2, 2, 1, 1).value();
  const Picture screen = {1, 2, 3, 4};
  EXPECT_FALSE(frames.take(0, screen));
  EXPECT_FALSE(frames.take(0, screen));
  const Picture grey = {10, 10, 30, 30};
  frames.palette().learn(screen, grey);
  ASSERT_TRUE(frames.take(0, screen));
  frames.push(false);
  EXPECT_EQ(frames.picture()[0], 20);
}

TEST(AtariFrames, AUniformGreyStaysTheSameGrey) {
  AtariFrames frames = AtariFrames::make(210, 160, 84, 84).value();
  const Picture screen(210 * 160, 7);
  const Picture grey(210 * 160, 255);
  frames.palette().learn(screen, grey);
  ASSERT_TRUE(frames.take(0, screen));
  ASSERT_TRUE(frames.take(1, screen));
  frames.push(true);
  for (const std::uint8_t pixel : frames.picture()) ASSERT_EQ(pixel, 255);
}

TEST(AtariFrames, RefusesInvalidImageSizes) {
  expect_refused(AtariFrames::make(210, 160, 0, 84).status(), StatusCode::kInvalidArgument,
                 {"0 x 84"});
  expect_refused(AtariFrames::make(210, 160, 84, 5000).status(), StatusCode::kInvalidArgument,
                 {"5000"});
}

}  // namespace
}  // namespace reverie
