// Another source of table_core.h: inserts a step of many environments at once.
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
  // The oldest are evicted first, so the items that make room are known before the insert.
  const std::size_t size_wanted = size() + items.size();
  const std::size_t leaving = size_wanted > size_max ? size_wanted - size_max : 0;
  if (!prepare_views(items, leaving, after)) return 0;
  std::size_t owned_count = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool was_lean = i < leaving && take_out(slots_[i], after);
    const bool is_one = items[i].layout->piece_count() == 1;
    const bool is_lean = is_one && chunks_.add_shared(*items[i].one.chunk, state_->owner);
    BriefItem& stored = state_->slots[slots_[i]];
    stored.times_sampled = 0;
    if (is_lean) [[likely]] {
      stored.trajectory = Trajectory::borrowed(items[i]);
    } else {
      stored.trajectory =
          is_one ? Trajectory(Ref<const Layout>::share(items[i].layout), items[i].pieces())
                 : std::move(owned_[owned_count++]);
      chunks_.add(stored.trajectory.view(), /*is_keyed=*/false);
    }
    if (was_lean != is_lean) state_->slots.set_lean(slots_[i], is_lean);
    if (i < leaving) state_->slots.retake(slots_[i]);
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
      state_->remover->renew_oldest(replaced);
      return true;
    }
  } catch (const std::bad_alloc&) {
  }
  owned_.clear();
  while (taken > leaving) state_->slots.give_back(slots_[--taken]);
  return false;
}

}  // namespace reverie
