// How a TableCore takes a step of many environments at once: another source of table_core.h.
#include <new>
#include <utility>

#include "reverie/replay/table_core.h"

namespace reverie {

std::size_t TableCore::insert_views(std::span<const TrajectoryView> items, TimePoint now,
                                    Aftermath& after) {
  const auto count = static_cast<std::int64_t>(items.size());
  const auto size_max = static_cast<std::size_t>(options_.max_size);
  if (items.empty() || items.size() > size_max || !limiter_.can_insert(count)) return 0;
  now_ = now;
  // The oldest leave first, so those that make room are known before anything comes.
  const std::size_t size_wanted = size() + items.size();
  const std::size_t leaving = size_wanted > size_max ? size_wanted - size_max : 0;
  if (!prepare_views(items, leaving, after)) return 0;
  ItemSlots& slots = state_->slots;
  Trajectory none;
  std::size_t owned_count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i < leaving) {
      drop(slots_[i], after);
      slots.retake(slots_[i]);
    }
    const bool is_one = items[i].layout->piece_count() == 1;
    put_view(slots_[i], items[i], is_one ? none : owned_[owned_count++]);
  }
  owned_.clear();
  for (std::size_t i = leaving; i < items.size(); ++i) {
    state_->sampler->insert(slots_[i], max_priority_);
    state_->remover->insert(slots_[i], max_priority_);
  }
  limiter_.did_insert(count);
  limiter_.did_delete_many(static_cast<std::int64_t>(leaving));
  after.has_freed_bytes |= leaving > 0;
  return items.size();
}

bool TableCore::prepare_views(std::span<const TrajectoryView> items, std::size_t leaving,
                              Aftermath& after) {
  std::size_t taken = leaving;
  try {
    slots_.resize(items.size());
    values_.resize(items.size());
    owned_.clear();
    for (const TrajectoryView& item : items) {
      if (item.layout->piece_count() == 1) [[likely]] {
        state_->keep_layout(item.layout);
      } else {
        owned_.emplace_back(Ref<const Layout>::share(item.layout), item.pieces());
      }
    }
    const std::span<Slot> replaced = std::span(slots_).first(leaving);
    state_->remover->draw_distinct(replaced, std::span(values_).first(leaving));
    for (const Slot slot : replaced) {
      state_->slots.will_change(slot);
      state_->slots.prefetch(slot);
    }
    for (; taken < items.size(); ++taken) {
      slots_[taken] = take_slot(after);
      if (slots_[taken] == kNoSlot) break;
    }
    if (taken == items.size()) {
      state_->sampler->replace(replaced, max_priority_);
      state_->remover->replace(replaced, max_priority_);
      return true;
    }
  } catch (const std::bad_alloc&) {
  }
  owned_.clear();
  while (taken > leaving) state_->slots.give_back(slots_[--taken]);
  return false;
}

void TableCore::put_view(Slot slot, const TrajectoryView& view, Trajectory& owned) {
  BriefItem& stored = state_->slots[slot];
  stored.times_sampled = 0;
  if (owned.empty() && chunks_.add_shared(*view.one.chunk, state_->owner)) [[likely]] {
    stored.trajectory = Trajectory::borrowed(view);
    state_->slots.set_lean(slot, true);
    return;
  }
  stored.trajectory = owned.empty()
                          ? Trajectory(Ref<const Layout>::share(view.layout), view.pieces())
                          : std::move(owned);
  chunks_.add(stored.trajectory.view(), /*is_keyed=*/false);
}

}  // namespace reverie
