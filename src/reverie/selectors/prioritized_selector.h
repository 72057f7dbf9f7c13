// Prioritized: draws each item with a probability proportional to priority^exponent.
//
// The weights are in a sum tree (sum_tree.h). An item of priority 0 has weight 0, even with
// exponent 0, and is not drawn while any other weight is positive; if all are zero the choice is
// uniform. Weights are f32: a positive priority keeps a positive weight, however small (at least
// FLT_MIN), and reported probabilities are those of the stored weights.
//
// Source: Schaul et al. 2016, "Prioritized Experience Replay"; Reverb's semantics.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/selectors/selector.h"
#include "reverie/sum_tree/least_tree.h"
#include "reverie/sum_tree/random_lanes.h"
#include "reverie/sum_tree/slot_set.h"
#include "reverie/sum_tree/sum_tree.h"

namespace reverie {

class Prioritized final : public Selector {
 public:
  // INVALID_ARGUMENT unless the exponent is finite and >= 0.
  static Result<std::unique_ptr<Prioritized>> make(double exponent,
                                                   std::optional<std::uint64_t> seed);

  std::string_view name() const override { return "Prioritized"; }
  // Refuses a priority that is negative, not finite, or above 3.4e38 once raised to the exponent.
  Status check_priority(double priority) const override;
  bool holds_all(std::span<const double> priorities) const override;
  void reserve(Slot reach) override;
  void insert(Slot slot, double priority) override;
  void update(std::span<const Slot> slots, std::span<const double> priorities) override;
  void erase(Slot slot) override;
  void replace(std::span<const Slot> slots, double priority) override;
  std::size_t size() const override { return slots_.size(); }
  void draw(std::span<Slot> slots, std::span<double> probabilities) override;
  std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) override;
  std::optional<double> least_probability() override;
  double mass() override { return tree_.total(); }
  std::unique_ptr<Selector> make_empty() override;
  std::size_t memory_bytes() const override;
  // Contains both generators, then the weights by slot, up to the last that is not 0.
  std::unique_ptr<SelectorState> freeze() override;
  void thaw() override { tree_.thaw(); }
  Status restore(ByteReader& state, const SlotChecks& slots) override;

 private:
  class State;
  Prioritized(double exponent, std::optional<std::uint64_t> seed);
  float weight_of_new(double priority);
  // Draws uniformly from all slots; requires total weight 0.
  void draw_uniform(std::span<Slot> slots, std::span<double> probabilities);
  // Parts of draw_distinct. Each removes what it draws, and returns how many.
  std::size_t take_by_weight(std::span<Slot> slots, std::span<double> probabilities,
                             std::span<float> weights, std::size_t attempts);
  std::size_t take_uniform(std::span<Slot> slots, std::span<double> probabilities,
                           std::span<float> weights, std::span<const Slot> taken);

  const double exponent_;
  const double priority_max_;  // the largest weight of the tree
  Random random_;
  RandomLanes lanes_;
  SumTree tree_;
  std::unique_ptr<LeastTree> least_;  // null until least_probability() is called
  SlotSet slots_;
  // The priority and weight of the last insert: the next one often has the same priority.
  double inserted_priority_ = 0;
  float inserted_weight_ = 0;
  // Working memory of a call, reused.
  std::vector<float> weights_;
  std::vector<Slot> attempts_;
  std::vector<double> unused_;
};

}  // namespace reverie
