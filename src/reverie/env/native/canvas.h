// Canvas: a small picture, drawn without a library.
//
//     Canvas canvas(600, 400);             // white; x to the right, y up, in pixels
//     canvas.fill({{0, 0}, {600, 0}, {600, 40}, {0, 40}}, kGrey);
//     canvas.line({10, 10}, {90, 60}, 2, kBlack);
//     canvas.disc({50, 50}, 8, kRed);
//     canvas.rgb();                        // [400, 600, 3], the top row first
//
// Edges are smooth: a pixel takes a share of the colour equal to its covered area, sampled on four
// lines through the pixel and exact along each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace reverie {

struct Point {
  double x = 0;
  double y = 0;
};

struct Colour {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
};

inline constexpr Colour kBlack{0, 0, 0};
inline constexpr Colour kWhite{255, 255, 255};
inline constexpr Colour kGrey{150, 150, 150};
inline constexpr Colour kRed{204, 77, 77};

// `p` rotated by `angle` (radians, counter-clockwise) around the origin, then moved to `origin`.
Point turned(Point p, double angle, Point origin);

// Not thread-safe. Parts of shapes outside the canvas are clipped.
class Canvas {
 public:
  // White. Requires both extents in [1, 4096].
  Canvas(std::size_t width, std::size_t height);

  std::size_t width() const { return width_; }
  std::size_t height() const { return height_; }
  // [height, width, 3], the top row first.
  std::span<const std::uint8_t> rgb() const { return rgb_; }

  // Fills a polygon, given by its corners, with the even-odd rule.
  void fill(std::span<const Point> corners, Colour colour);
  void fill(std::initializer_list<Point> corners, Colour colour) {
    fill(std::span(corners.begin(), corners.size()), colour);
  }
  void line(Point from, Point to, double thickness, Colour colour);
  void path(std::span<const Point> points, double thickness, Colour colour);
  void disc(Point centre, double radius, Colour colour);

 private:
  void blend(std::size_t row_from_top, Colour colour);

  std::size_t width_;
  std::size_t height_;
  std::vector<std::uint8_t> rgb_;
  std::vector<float> coverage_;  // of one row of pixels
  std::vector<double> crossings_;
};

}  // namespace reverie
