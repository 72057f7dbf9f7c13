#include "reverie/env/native/canvas.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "reverie/base/check.h"

namespace reverie {
namespace {

constexpr int kLinesPerPixel = 4;

std::uint8_t mixed(std::uint8_t below, std::uint8_t above, float share) {
  return static_cast<std::uint8_t>(
      std::lround(static_cast<float>(below) * (1 - share) + static_cast<float>(above) * share));
}

// Adds the cover of [begin, end), in pixels, to a row.
void cover(std::vector<float>& row, double begin, double end) {
  begin = std::max(begin, 0.0);
  end = std::min(end, static_cast<double>(row.size()));
  if (begin >= end) return;
  constexpr float kShare = 1.0f / kLinesPerPixel;
  const auto first = static_cast<std::size_t>(begin);
  const auto last = static_cast<std::size_t>(end);
  if (first == last) {
    row[first] += static_cast<float>(end - begin) * kShare;
    return;
  }
  row[first] += static_cast<float>(static_cast<double>(first + 1) - begin) * kShare;
  for (std::size_t x = first + 1; x < last; ++x) row[x] += kShare;
  if (last < row.size()) row[last] += static_cast<float>(end - static_cast<double>(last)) * kShare;
}

}  // namespace

Point turned(Point p, double angle, Point origin) {
  const double cosine = std::cos(angle);
  const double sine = std::sin(angle);
  return {origin.x + p.x * cosine - p.y * sine, origin.y + p.x * sine + p.y * cosine};
}

Canvas::Canvas(std::size_t width, std::size_t height)
    : width_(width), height_(height), rgb_(width * height * 3, 255), coverage_(width) {
  REVERIE_CHECK(width >= 1 && width <= 4096 && height >= 1 && height <= 4096);
}

void Canvas::fill(std::span<const Point> corners, Colour colour) {
  double lowest = static_cast<double>(height_);
  double highest = 0;
  for (const Point& p : corners) {
    if (!std::isfinite(p.x) || !std::isfinite(p.y)) return;
    lowest = std::min(lowest, p.y);
    highest = std::max(highest, p.y);
  }
  const auto first = static_cast<std::size_t>(std::max(lowest, 0.0));
  const auto end = static_cast<std::size_t>(
      std::ceil(std::min(std::max(highest, 0.0), static_cast<double>(height_))));
  for (std::size_t pixel = first; pixel < end; ++pixel) {
    std::fill(coverage_.begin(), coverage_.end(), 0.0f);
    for (int line = 0; line < kLinesPerPixel; ++line) {
      const double y = static_cast<double>(pixel) + (2 * line + 1) / (2.0 * kLinesPerPixel);
      crossings_.clear();
      for (std::size_t i = 0; i < corners.size(); ++i) {
        const Point& a = corners[i];
        const Point& b = corners[(i + 1) % corners.size()];
        if ((a.y <= y) != (b.y <= y)) {
          crossings_.push_back(a.x + (y - a.y) / (b.y - a.y) * (b.x - a.x));
        }
      }
      std::sort(crossings_.begin(), crossings_.end());
      for (std::size_t i = 0; i + 1 < crossings_.size(); i += 2) {
        cover(coverage_, crossings_[i], crossings_[i + 1]);
      }
    }
    blend(height_ - 1 - pixel, colour);
  }
}

void Canvas::line(Point from, Point to, double thickness, Colour colour) {
  const double dx = to.x - from.x;
  const double dy = to.y - from.y;
  const double length = std::hypot(dx, dy);
  if (!(length > 0)) return;
  const double ox = -dy / length * thickness / 2;
  const double oy = dx / length * thickness / 2;
  fill({{from.x + ox, from.y + oy},
        {to.x + ox, to.y + oy},
        {to.x - ox, to.y - oy},
        {from.x - ox, from.y - oy}},
       colour);
}

void Canvas::path(std::span<const Point> points, double thickness, Colour colour) {
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    line(points[i], points[i + 1], thickness, colour);
  }
}

void Canvas::disc(Point centre, double radius, Colour colour) {
  std::array<Point, 48> corners;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(corners.size());
    corners[i] = {centre.x + radius * std::cos(angle), centre.y + radius * std::sin(angle)};
  }
  fill(corners, colour);
}

void Canvas::blend(std::size_t row_from_top, Colour colour) {
  std::uint8_t* pixel = rgb_.data() + row_from_top * width_ * 3;
  for (std::size_t x = 0; x < width_; ++x, pixel += 3) {
    const float share = std::min(coverage_[x], 1.0f);
    if (share <= 0) continue;
    pixel[0] = mixed(pixel[0], colour.red, share);
    pixel[1] = mixed(pixel[1], colour.green, share);
    pixel[2] = mixed(pixel[2], colour.blue, share);
  }
}

}  // namespace reverie
