// PriorityDiffusion: a priority update of one item also moves its neighbours in time.
//
//     episode   ... [ i-2 ][ i-1 ][  i  ][ i+1 ][ i+2 ] ...     update of i to p
//                  d = 2    d = 1    p     d = 1   d = 2
//                  q += decay^d * (p - q)   each neighbour with priority q, d <= radius
//
// The errors of neighbouring steps are similar, the nearer the more; an update moves the
// neighbours' priorities towards its own. Neighbours are the items of the same episode in the order
// of their first steps.
//
// Source: Gruslys et al. 2017, "The Reactor", section 3.3 (contextual priority tree), which fills
// in the priorities of steps never visited from visited neighbours. Differs: every neighbour moves,
// visited or not, by a weight that decays with the distance; there is no second tree.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "reverie/replay/extension.h"

namespace reverie {

class PriorityDiffusion final : public TableExtension {
 public:
  // INVALID_ARGUMENT unless 1 <= radius <= 1000 and 0 < decay <= 1.
  static Result<std::unique_ptr<PriorityDiffusion>> make(std::int64_t radius, double decay);

  std::string_view name() const override { return "PriorityDiffusion"; }
  void on_insert(TableAccess& table, Slot slot) override;
  void on_update(TableAccess& table, Slot slot, double old_priority) override;
  void on_delete(TableAccess& table, Slot slot) override;
  void on_reset() override { episodes_.clear(); }

 private:
  PriorityDiffusion(std::int64_t radius, double decay) : radius_(radius), decay_(decay) {}

  // An item, ordered by its first step; items of the same step are ordered by slot.
  struct Place {
    std::uint32_t first_step;
    Slot slot;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  static Place place_of(const StoredItem& item, Slot slot);

  std::int64_t radius_;
  double decay_;
  std::map<EpisodeId, std::deque<Place>> episodes_;  // each sorted
};

}  // namespace reverie
