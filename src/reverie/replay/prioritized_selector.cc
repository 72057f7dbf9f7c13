#include "reverie/replay/prioritized_selector.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "reverie/replay/priority_power.h"

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
      random_(seed),
      lanes_(random_) {}

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

bool Prioritized::holds_all(std::span<const double> priorities) const {
  const double most = std::min(priority_max_, DBL_MAX);  // beyond which lies infinity
  bool all = true;
  for (const double priority : priorities) all &= priority >= 0 && priority <= most;
  return all;
}

void Prioritized::insert(Slot slot, double priority) {
  if (priority != inserted_priority_) {
    priority_power(exponent_, {&priority, 1}, {&inserted_weight_, 1});
    inserted_priority_ = priority;
  }
  slots_.insert(slot);
  tree_.reach(slot);
  tree_.set(slot, inserted_weight_);
  if (least_) least_->set(slot, inserted_weight_);
}

void Prioritized::update(std::span<const Slot> slots, std::span<const double> priorities) {
  weights_.resize(slots.size());
  priority_power(exponent_, priorities, weights_);
  tree_.update(slots, weights_);
  if (!least_) return;
  for (std::size_t i = 0; i < slots.size(); ++i) least_->set(slots[i], weights_[i]);
}

void Prioritized::erase(Slot slot) {
  slots_.erase(slot);
  tree_.set(slot, 0);
  if (least_) least_->set(slot, 0);
}

std::optional<double> Prioritized::least_probability() {
  if (!least_) {
    least_ = std::make_unique<LeastTree>();
    for (std::size_t slot = 0; slot < tree_.capacity(); ++slot) {
      const float weight = tree_.weight(static_cast<Slot>(slot));
      if (weight > 0) least_->set(static_cast<Slot>(slot), weight);
    }
  }
  if (least_->least() == LeastTree::kNone) return 1.0 / static_cast<double>(slots_.size());
  return static_cast<double>(least_->least()) / tree_.total();
}

void Prioritized::draw(std::span<Slot> slots, std::span<double> probabilities) {
  if (tree_.total() == 0) return draw_uniform(slots, probabilities);
  tree_.draw(lanes_, slots, probabilities);
}

void Prioritized::draw_uniform(std::span<Slot> slots, std::span<double> probabilities) {
  for (Slot& slot : slots) slot = slots_.select(random_.below(slots_.size()));
  std::fill(probabilities.begin(), probabilities.end(), 1.0 / static_cast<double>(slots_.size()));
}

std::size_t Prioritized::draw_distinct(std::span<Slot> slots, std::span<double> probabilities) {
  const std::size_t wanted = std::min(slots.size(), slots_.size());
  weights_.resize(wanted);  // what to put back
  std::size_t count = 0;
  std::size_t attempts = wanted;
  while (count < wanted && tree_.total() > 0) {
    const std::size_t left = wanted - count;
    const std::size_t taken =
        take_by_weight(slots.subspan(count, left), probabilities.subspan(count, left),
                       std::span(weights_).subspan(count, left), std::min(attempts, left));
    count += taken;
    // Where a few outweigh the rest, most attempts hit these again: try fewer.
    attempts = 4 * taken + 16;
  }
  if (count < wanted) {
    const std::size_t left = wanted - count;
    count += take_uniform(slots.subspan(count, left), probabilities.subspan(count, left),
                          std::span(weights_).subspan(count, left), slots.first(count));
  }
  tree_.update(slots.first(count), std::span(weights_).first(count));
  return count;
}

// Draws with replacement of which the repeats are skipped are draws without. What was taken has
// weight 0 from then on, which tells a repeat, and takes effect on the sums with the next round.
std::size_t Prioritized::take_by_weight(std::span<Slot> slots, std::span<double> probabilities,
                                        std::span<float> weights, std::size_t attempts) {
  attempts_.resize(attempts);
  unused_.resize(attempts);
  const double total = tree_.total();
  tree_.draw(lanes_, attempts_, unused_);
  double left = total;
  std::size_t count = 0;
  for (const Slot slot : attempts_) {
    const float weight = tree_.weight(slot);
    if (weight == 0) continue;
    slots[count] = slot;
    weights[count] = weight;
    // At the last item rounding could bring it beyond 1.
    probabilities[count] = std::min(1.0, static_cast<double>(weight) / left);
    ++count;
    left -= static_cast<double>(weight);
    tree_.set(slot, 0);
    // What is left of a total by subtraction loses digits; the next round sums it up afresh.
    if (left < total / 16) break;
  }
  return count;
}

// The rest, which weighs nothing.
std::size_t Prioritized::take_uniform(std::span<Slot> slots, std::span<double> probabilities,
                                      std::span<float> weights, std::span<const Slot> taken) {
  for (const Slot slot : taken) slots_.erase(slot);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    probabilities[i] = 1.0 / static_cast<double>(slots_.size());
    slots[i] = slots_.select(random_.below(slots_.size()));
    weights[i] = 0;
    slots_.erase(slots[i]);
  }
  for (const Slot slot : taken) slots_.insert(slot);
  for (const Slot slot : slots) slots_.insert(slot);
  return slots.size();
}

std::unique_ptr<Selector> Prioritized::make_empty() {
  std::unique_ptr<Prioritized> made(new Prioritized(exponent_, random_.next()));
  if (least_) made->least_ = std::make_unique<LeastTree>();
  return made;
}

std::size_t Prioritized::memory_bytes() const {
  return sizeof(*this) + tree_.memory_bytes() + slots_.memory_bytes() +
         (least_ ? least_->memory_bytes() : 0) + weights_.capacity() * sizeof(float) +
         attempts_.capacity() * sizeof(Slot) + unused_.capacity() * sizeof(double);
}

}  // namespace reverie
