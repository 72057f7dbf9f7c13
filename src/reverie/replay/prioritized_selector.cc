#include "reverie/replay/prioritized_selector.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace reverie {

Result<std::unique_ptr<Prioritized>> Prioritized::make(double exponent,
                                                       std::optional<std::uint64_t> seed) {
  if (!std::isfinite(exponent) || exponent < 0) {
    return invalid_argument("priority_exponent is {}; it must be finite and >= 0", exponent);
  }
  return std::unique_ptr<Prioritized>(new Prioritized(exponent, seed));
}

Prioritized::Prioritized(double exponent, std::optional<std::uint64_t> seed)
    : exponent_(exponent),
      priority_max_(exponent == 0 ? DBL_MAX : std::pow(FLT_MAX, 1 / exponent)),
      random_(seed) {}

Status Prioritized::check_priority(double priority) const {
  if (!(priority >= 0) || !std::isfinite(priority)) [[unlikely]] {
    return invalid_argument("priority is {}; it must be finite and >= 0", priority);
  }
  if (priority > priority_max_) [[unlikely]] {
    return invalid_argument(
        "priority {} to the power of priority_exponent {} is {}, over the bound {}; scale the "
        "priorities down",
        priority, exponent_, std::pow(priority, exponent_), FLT_MAX);
  }
  return {};
}

float Prioritized::weight_of(double priority) const {
  if (priority == 0) return 0;
  if (exponent_ == 1.0) return std::clamp(static_cast<float>(priority), FLT_MIN, FLT_MAX);
  // In float a power takes a quarter of the time; it is stored as one anyway.
  const bool fits = priority >= FLT_MIN && priority <= FLT_MAX;
  const float weight = fits ? std::pow(static_cast<float>(priority), static_cast<float>(exponent_))
                            : static_cast<float>(std::pow(priority, exponent_));
  // A weight too small for a normal float is still one.
  return std::clamp(weight, FLT_MIN, FLT_MAX);
}

void Prioritized::insert(Slot slot, double priority) {
  slots_.insert(slot);
  tree_.reach(slot);
  tree_.set(slot, weight_of(priority));
}

void Prioritized::update(std::span<const Slot> slots, std::span<const double> priorities) {
  weights_.resize(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) weights_[i] = weight_of(priorities[i]);
  tree_.update(slots, weights_);
}

void Prioritized::erase(Slot slot) {
  slots_.erase(slot);
  tree_.set(slot, 0);
}

void Prioritized::draw(std::span<Slot> slots, std::span<double> probabilities) {
  const double total = tree_.total();
  if (total == 0) return draw_uniform(slots, probabilities);
  masses_.resize(slots.size());
  weights_.resize(slots.size());
  for (double& mass : masses_) mass = random_.uniform() * total;
  tree_.find(masses_, slots, weights_);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    probabilities[i] = static_cast<double>(weights_[i]) / total;
  }
}

void Prioritized::draw_uniform(std::span<Slot> slots, std::span<double> probabilities) {
  for (Slot& slot : slots) slot = slots_.select(random_.below(slots_.size()));
  std::fill(probabilities.begin(), probabilities.end(), 1.0 / static_cast<double>(slots_.size()));
}

// Draws with replacement of which the repeats are skipped are draws without. After each round
// what was drawn gets weight 0, so that the next round finds something new; once no weight is left
// the rest is drawn uniformly. At the end everything is put back.
std::size_t Prioritized::draw_distinct(std::span<Slot> slots, std::span<double> probabilities) {
  const std::size_t wanted = std::min(slots.size(), slots_.size());
  std::vector<Slot> drawn(wanted);
  std::vector<double> unused(wanted);
  std::vector<float> weights(wanted);  // what to put back
  std::size_t count = 0;
  const auto take = [&](Slot slot, double probability) {
    slots[count] = slot;
    probabilities[count] = probability;
    weights[count] = tree_.weight(slot);
    slots_.erase(slot);  // marks it as drawn
    ++count;
  };
  while (count < wanted && tree_.total() > 0) {
    const std::size_t begin = count;
    double total = tree_.total();
    const auto round = std::span(drawn).first(wanted - begin);
    draw(round, std::span(unused).first(round.size()));
    for (const Slot slot : round) {
      if (!slots_.contains(slot)) continue;
      const auto weight = static_cast<double>(tree_.weight(slot));
      take(slot, std::min(1.0, weight / total));
      total -= weight;
    }
    const std::vector<float> zeros(count - begin, 0.0f);
    tree_.update(slots.subspan(begin, count - begin), zeros);
  }
  while (count < wanted) {
    const Slot slot = slots_.select(random_.below(slots_.size()));
    take(slot, 1.0 / static_cast<double>(slots_.size()));
  }
  for (std::size_t i = 0; i < count; ++i) slots_.insert(slots[i]);
  tree_.update(slots.first(count), std::span(weights).first(count));
  return count;
}

std::unique_ptr<Selector> Prioritized::make_empty() {
  return std::unique_ptr<Selector>(new Prioritized(exponent_, random_.next()));
}

std::size_t Prioritized::memory_bytes() const {
  return sizeof(*this) + tree_.memory_bytes() + slots_.memory_bytes();
}

}  // namespace reverie
