// A user's selector, in a shared library that a C++ or a Python program loads.
//
//     reverie.load_plugin("build/release/examples/plugin_selector.so")
//     sampler = reverie.selectors.Custom("Combined", newest_share=1 / 32)
//
// Combined: draws the newest item with probability `newest_share`, otherwise any item uniformly.
// With a share of one over the batch size, a batch has the newest step once on average, so that new
// steps are not overlooked, however large the table is.
//
//     5 items, newest_share 0.2:    0.16  0.16  0.16  0.16  0.16 + 0.2
//                                   oldest                     newest
//
// Source: Zhang & Sutton 2017, "A Deeper Look at Experience Replay", section 5. Differs: there the
// newest step is put into each batch; here each draw is random, so its probability is known and
// importance weights are correct.
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/replay/plugin.h"
#include "reverie/selectors/list_selector.h"
#include "reverie/selectors/uniform_selector.h"

namespace {

using namespace reverie;

class Combined final : public Selector {
 public:
  static Result<std::unique_ptr<Selector>> make(const Options& options) {
    OptionReader reader(options);
    const double newest_share = reader.number("newest_share", 1.0 / 32);
    const auto seed = reader.seed();
    REVERIE_RETURN_IF_ERROR(reader.finish());
    if (!(newest_share >= 0 && newest_share <= 1)) {
      return invalid_argument("newest_share is {}; it must be in [0, 1]", newest_share);
    }
    return std::unique_ptr<Selector>(new Combined(newest_share, Random(seed)));
  }

  std::string_view name() const override { return "Combined"; }

  void insert(Slot slot, double priority) override {
    newest_.insert(slot, priority);
    any_.insert(slot, priority);
  }
  void update(std::span<const Slot>, std::span<const double>) override {}
  void erase(Slot slot) override {
    newest_.erase(slot);
    any_.erase(slot);
  }
  std::size_t size() const override { return any_.size(); }

  void draw(std::span<Slot> slots, std::span<double> probabilities) override {
    if (slots.empty()) return;
    any_.draw(slots, probabilities);
    Slot newest = kNoSlot;
    double certain = 0;
    newest_.draw({&newest, 1}, {&certain, 1});
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (random_.uniform() < newest_share_) slots[i] = newest;
      probabilities[i] = probability(size(), slots[i] == newest);
    }
  }

  // Makes both orders without replacement, and takes each item from one of them at random, skipping
  // those that were drawn: the rest of a random order is a random order of the rest.
  std::size_t draw_distinct(std::span<Slot> slots, std::span<double> probabilities) override {
    std::vector<Slot> by_age(slots.size());
    std::vector<Slot> by_chance(slots.size());
    const std::size_t count = newest_.draw_distinct(by_age, probabilities);
    any_.draw_distinct(by_chance, probabilities);
    std::unordered_set<Slot> drawn;
    auto newest = by_age.begin();
    auto next = by_chance.begin();
    for (std::size_t i = 0; i < count; ++i) {
      while (drawn.contains(*newest)) ++newest;
      while (drawn.contains(*next)) ++next;
      slots[i] = random_.uniform() < newest_share_ ? *newest : *next;
      probabilities[i] = probability(size() - i, slots[i] == *newest);
      drawn.insert(slots[i]);
    }
    return count;
  }

  std::unique_ptr<Selector> make_empty() override {
    return std::unique_ptr<Selector>(new Combined(newest_share_, Random(random_.next())));
  }
  std::size_t memory_bytes() const override { return newest_.memory_bytes() + any_.memory_bytes(); }

 private:
  Combined(double newest_share, Random random)
      : newest_share_(newest_share), random_(random), any_(random_.next()) {}

  double probability(std::size_t count, bool is_newest) const {
    return (1 - newest_share_) / static_cast<double>(count) + (is_newest ? newest_share_ : 0);
  }

  const double newest_share_;
  Random random_;
  Lifo newest_;
  Uniform any_;
};

}  // namespace

REVERIE_PLUGIN(host) {
  return add_selector(host, "Combined", Combined::make);
}
