#include "reverie/sum_tree/distinct_probabilities.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reverie {
namespace {

// Shares of the weight below this are rounding.
constexpr double kNothing = 1e-12;

// The density of t, in s = log t, where it is log-concave: exp(log_density(s)).
class Density {
 public:
  Density(std::span<const double> shares, double rest) : shares_(shares), rest_(rest) {
    inclusion_probabilities_.resize(shares.size());
  }

  // Sets chances() for that s, too.
  double log_density(double s) {
    const double t = std::exp(s);
    double log_sum = s - rest_ * t;
    double product = 1;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      inclusion_probabilities_[i] = -std::expm1(-shares_[i] * t);
      product *= inclusion_probabilities_[i];
      if (product > 1e-200) continue;
      log_sum += std::log(product);
      product = 1;
    }
    return log_sum + std::log(product);
  }
  // 1 - exp(-p_i t) of each item.
  std::span<const double> chances() const { return inclusion_probabilities_; }

  // Where it is largest, and how wide it is there: Newton's method on a concave function.
  struct Peak {
    double s;
    double width;
  };
  Peak peak() const {
    constexpr int kStepsMax = 100;
    double s = std::log(static_cast<double>(shares_.size() + 1) / std::max(rest_, kNothing));
    double curvature = 1;
    for (int step = 0; step < kStepsMax; ++step) {
      const double t = std::exp(s);
      double slope = 1 - rest_ * t;
      curvature = rest_ * t;
      for (const double share : shares_) {
        const double x = share * t;
        const double y = x < 1e-8 ? 1 - x / 2 : x / std::expm1(x);
        slope += y;
        curvature += y * (x + y - 1);
      }
      const double move = slope / curvature;
      s += std::clamp(move, -1.0, 1.0);
      if (std::abs(move) * std::sqrt(curvature) < 0.05) break;
    }
    return {s, 1 / std::sqrt(curvature)};
  }

 private:
  std::span<const double> shares_;
  const double rest_;
  std::vector<double> inclusion_probabilities_;
};

}  // namespace

void to_single_draw(std::span<double> probabilities, double share) {
  const double scale = share < kNothing ? 1 : share;
  double left = 1;
  for (double& probability : probabilities) {
    const double conditional = probability;
    // No item with a weight is left: the order is then deterministic.
    const bool is_certain = conditional >= 1;
    probability = left > 0 || !is_certain ? conditional * left : 1;
    probability *= scale;
    left *= 1 - conditional;
    if (left < kNothing) left = 0;
  }
}

void to_inclusion(std::span<double> probabilities, std::size_t table_size, double* least) {
  const std::size_t count = probabilities.size();
  if (count == 0) return;
  const auto n = static_cast<double>(count);
  const auto finish = [&](double chance) { return std::clamp(chance, 0.0, 1.0) / n; };
  const auto [smallest, largest] = std::ranges::minmax(probabilities);
  double rest = 1;
  for (const double share : probabilities) rest -= share;
  if (count >= table_size || rest < kNothing) {
    // All items with a weight are in the batch, and some of those without, at random.
    const auto zero_count = static_cast<std::size_t>(std::ranges::count(probabilities, 0.0));
    const std::size_t positive_count = count - zero_count;
    const double zero_probability =
        zero_count == 0 || table_size <= positive_count
            ? 1.0
            : static_cast<double>(zero_count) / static_cast<double>(table_size - positive_count);
    for (double& share : probabilities) share = finish(share == 0 ? zero_probability : 1.0);
    if (least != nullptr) *least = finish(*least == 0 ? zero_probability : 1.0);
    return;
  }
  const bool are_equal = smallest == largest || largest - smallest <= 1e-12 * largest;
  if (are_equal && (least == nullptr || *least >= smallest)) {
    if (least != nullptr) *least = smallest;
    return;  // n equal shares: q_i = n p_i
  }

  Density density(probabilities, rest);
  const Density::Peak peak = density.peak();
  const double top = density.log_density(peak.s);
  std::vector<double> inverse(count, 0.0);
  double inverse_least = 0;
  double sum = 0;
  const auto add = [&](double s) {
    const double weight = std::exp(density.log_density(s) - top);
    const std::span<const double> chances = density.chances();
    for (std::size_t i = 0; i < count; ++i) inverse[i] += weight / chances[i];
    if (least != nullptr) inverse_least += weight / -std::expm1(-*least * std::exp(s));
    sum += weight;
    return weight;
  };
  // The trapezoidal rule, which is exact to exp(-20) where a function is smooth and dies away at
  // both ends. A few items make a skew density: smaller steps, and further.
  const bool is_narrow = count >= 16;
  const double step = (is_narrow ? 1.0 : 0.5) * peak.width;
  const double end = is_narrow ? 1e-7 : 1e-13;
  add(peak.s);
  for (const double direction : {-1.0, 1.0}) {
    for (int k = 1; k < 1000; ++k) {
      if (add(peak.s + direction * k * step) < end) break;
    }
  }
  for (std::size_t i = 0; i < count; ++i) probabilities[i] = finish(sum / inverse[i]);
  if (least != nullptr) *least = finish(sum / inverse_least);
}

}  // namespace reverie
