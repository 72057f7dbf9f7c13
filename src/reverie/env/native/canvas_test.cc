#include "reverie/env/native/canvas.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <gtest/gtest.h>

namespace reverie {
namespace {

// The amount of ink, in pixels of full black.
double ink(const Canvas& canvas) {
  double sum = 0;
  for (const std::uint8_t value : canvas.rgb()) sum += 255 - value;
  return sum / (3 * 255);
}

int red_at(const Canvas& canvas, std::size_t x, std::size_t y) {
  return canvas.rgb()[((canvas.height() - 1 - y) * canvas.width() + x) * 3];
}

TEST(Canvas, InkEqualsTheAreaOfTheShape) {
  Canvas square(40, 30);
  square.fill({{3.25, 2.5}, {17.75, 2.5}, {17.75, 20.25}, {3.25, 20.25}}, kBlack);
  EXPECT_NEAR(ink(square), 14.5 * 17.75, 0.3);
  Canvas triangle(40, 30);
  triangle.fill({{1, 1}, {31, 1}, {1, 21}}, kBlack);
  EXPECT_NEAR(ink(triangle), 300, 2);
  Canvas disc(40, 30);
  disc.disc({20, 15}, 9, kBlack);
  EXPECT_NEAR(ink(disc), std::numbers::pi * 81, 2);
  Canvas line(40, 30);
  line.line({5, 5}, {29, 23}, 3, kBlack);
  EXPECT_NEAR(ink(line), 90, 1);
}

TEST(Canvas, YPointsUpAndTheFirstRowIsTheTop) {
  Canvas canvas(4, 3);
  canvas.fill({{0, 2}, {1, 2}, {1, 3}, {0, 3}}, kBlack);
  EXPECT_EQ(canvas.rgb()[0], 0);
  EXPECT_EQ(red_at(canvas, 0, 2), 0);
  EXPECT_EQ(red_at(canvas, 1, 2), 255);
  EXPECT_EQ(red_at(canvas, 0, 1), 255);
}

TEST(Canvas, APartlyCoveredPixelIsShadedByItsCoverage) {
  Canvas canvas(2, 1);
  canvas.fill({{0, 0}, {0.5, 0}, {0.5, 1}, {0, 1}}, kBlack);
  EXPECT_NEAR(red_at(canvas, 0, 0), 127, 1);
  EXPECT_EQ(red_at(canvas, 1, 0), 255);
}

TEST(Canvas, ShapesAreClippedAtTheBorders) {
  Canvas canvas(10, 10);
  canvas.fill({{-100, -100}, {5, -100}, {5, 100}, {-100, 100}}, kBlack);
  EXPECT_NEAR(ink(canvas), 50, 1e-6);
  canvas.line({-1e9, 3}, {1e9, 3}, 2, kBlack);
  canvas.disc({1e6, 1e6}, 3, kBlack);
  canvas.line({4, 4}, {4, 4}, 2, kBlack);  // a line without length draws nothing
  const double infinity = std::numeric_limits<double>::infinity();
  canvas.fill({{0, 0}, {infinity, 0}, {0, std::nan("")}}, kBlack);
  EXPECT_NEAR(ink(canvas), 60, 1e-3);
}

TEST(Canvas, TurningIsCounterclockwise) {
  const Point up = turned({1, 0}, std::numbers::pi / 2, {10, 20});
  EXPECT_NEAR(up.x, 10, 1e-12);
  EXPECT_NEAR(up.y, 21, 1e-12);
}

}  // namespace
}  // namespace reverie
