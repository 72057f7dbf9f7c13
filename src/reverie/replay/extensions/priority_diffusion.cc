// Tested in src/reverie/replay/local_service_test.cc.
#include "reverie/replay/extensions/priority_diffusion.h"

#include <algorithm>
#include <cmath>

namespace reverie {

Result<std::unique_ptr<PriorityDiffusion>> PriorityDiffusion::make(std::int64_t radius,
                                                                   double decay) {
  if (radius < 1 || radius > 1000) {
    return invalid_argument("radius is {}; it must be between 1 and 1000", radius);
  }
  if (!(decay > 0) || decay > 1) {
    return invalid_argument("decay is {}; it must be above 0 and at most 1", decay);
  }
  return std::unique_ptr<PriorityDiffusion>(new PriorityDiffusion(radius, decay));
}

PriorityDiffusion::Place PriorityDiffusion::place_of(const StoredItem& item, Slot slot) {
  const Piece& first = item.trajectory.pieces().front();
  return {first.chunk->first_step() + first.offset, slot};
}

void PriorityDiffusion::on_insert(TableAccess& table, Slot slot) {
  const StoredItem& item = table.item(slot);
  std::deque<Place>& places = episodes_[item.trajectory.pieces().front().chunk->episode()];
  const Place place = place_of(item, slot);
  places.insert(std::upper_bound(places.begin(), places.end(), place), place);  // mostly at the end
}

void PriorityDiffusion::on_update(TableAccess& table, Slot slot, double) {
  const StoredItem& item = table.item(slot);
  const std::deque<Place>& places = episodes_[item.trajectory.pieces().front().chunk->episode()];
  const auto at =
      std::lower_bound(places.begin(), places.end(), place_of(item, slot)) - places.begin();
  const auto count = static_cast<std::int64_t>(places.size());
  double weight = 1;
  for (std::int64_t d = 1; d <= radius_; ++d) {
    weight *= decay_;
    for (const std::int64_t neighbour : {at - d, at + d}) {
      if (neighbour < 0 || neighbour >= count) continue;
      const Slot other = places[static_cast<std::size_t>(neighbour)].slot;
      const double old = table.item(other).priority;
      // A convex mixture of two priorities that the selectors hold is one that they can hold.
      (void)table.set_priority(other, old + weight * (item.priority - old));
    }
  }
}

void PriorityDiffusion::on_delete(TableAccess& table, Slot slot) {
  const StoredItem& item = table.item(slot);
  const auto episode = episodes_.find(item.trajectory.pieces().front().chunk->episode());
  std::deque<Place>& places = episode->second;
  const auto place = std::lower_bound(places.begin(), places.end(), place_of(item, slot));
  places.erase(place);
  if (places.empty()) episodes_.erase(episode);
}

}  // namespace reverie
