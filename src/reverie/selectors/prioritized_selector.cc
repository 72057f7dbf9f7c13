#include "reverie/selectors/prioritized_selector.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "reverie/sum_tree/priority_power.h"

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

void Prioritized::reserve(Slot reach) {
  slots_.reserve(reach);
  tree_.reach(reach - 1);
}

float Prioritized::weight_of_new(double priority) {
  if (priority != inserted_priority_) {
    priority_power(exponent_, {&priority, 1}, {&inserted_weight_, 1});
    inserted_priority_ = priority;
  }
  return inserted_weight_;
}

void Prioritized::insert(Slot slot, double priority) {
  const float weight = weight_of_new(priority);
  slots_.insert(slot);
  tree_.reach(slot);
  tree_.set(slot, weight);
  if (least_) least_->set(slot, weight);
}

void Prioritized::replace(std::span<const Slot> slots, double priority) {
  weights_.assign(slots.size(), weight_of_new(priority));
  tree_.update(slots, weights_);
  if (!least_) return;
  for (std::size_t i = 0; i < slots.size(); ++i) least_->set(slots[i], weights_[i]);
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

class Prioritized::State final : public SelectorState {
 public:
  State(std::shared_ptr<const SumTree::Frozen> tree, const Random& random, const RandomLanes& lanes)
      : tree_(std::move(tree)), random_(random), lanes_(lanes) {}
  bool write(ByteWriter& out) const override {
    return tree_->read([&] {
      write_random(random_, out);
      for (const auto& word : lanes_.words()) {
        for (const std::uint64_t lane : word) out.u64(lane);
      }
      std::size_t count = tree_->capacity();
      while (count > 0 && tree_->weight(static_cast<Slot>(count - 1)) == 0) --count;
      out.u64(count);
      for (std::size_t slot = 0; slot < count; ++slot) {
        out.f32(tree_->weight(static_cast<Slot>(slot)));
      }
    });
  }

 private:
  const std::shared_ptr<const SumTree::Frozen> tree_;
  const Random random_;
  const RandomLanes lanes_;
};

std::unique_ptr<SelectorState> Prioritized::freeze() {
  return std::make_unique<State>(tree_.freeze(), random_, lanes_);
}

Status Prioritized::restore(ByteReader& state, const SlotChecks& slots) {
  REVERIE_RETURN_IF_ERROR(read_random(state, random_));
  std::array<std::uint64_t, RandomLanes::kLanes> any{};
  for (auto& word : lanes_.words()) {
    for (std::size_t l = 0; l < any.size(); ++l) any[l] |= word[l] = state.u64();
  }
  for (const std::uint64_t lane : any) {
    if (lane == 0) return data_loss("the state of a random generator is all zeros");
  }
  const std::size_t count = state.count64(sizeof(float));
  std::vector<Slot> in;
  std::vector<float> weights;
  for (std::size_t i = 0; i < std::max(count, slots.size()); ++i) {
    const auto slot = static_cast<Slot>(i);
    const float weight = i < count ? state.f32() : 0.0f;
    const bool is_in = i < slots.size() && slots.is_left(slot);
    const bool is_weight = weight == 0 || (weight >= FLT_MIN && weight <= FLT_MAX);
    if (!is_weight || (!is_in && weight != 0)) {
      return data_loss("the weight of slot {} is {}; it holds {}", i, weight,
                       is_in ? "an item, of a weight from 1.2e-38 to 3.4e38" : "no item");
    }
    if (!is_in) continue;
    REVERIE_RETURN_IF_ERROR(slots.take(slot));
    slots_.insert(slot);
    in.push_back(slot);
    weights.push_back(weight);
  }
  if (slots.size() > 0) tree_.reach(static_cast<Slot>(slots.size() - 1));
  tree_.update(in, weights);
  return {};
}

std::size_t Prioritized::memory_bytes() const {
  return sizeof(*this) + tree_.memory_bytes() + slots_.memory_bytes() +
         (least_ ? least_->memory_bytes() : 0) + weights_.capacity() * sizeof(float) +
         attempts_.capacity() * sizeof(Slot) + unused_.capacity() * sizeof(double);
}

}  // namespace reverie
