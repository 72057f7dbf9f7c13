// A source of table_core.h: repeats the changes that a log has recorded.
//
// Tested in tests/sim/journal_sim_test.cc.
#include <utility>

#include "reverie/replay/table_core.h"

namespace reverie {

Status TableCore::check_in_use(Slot slot) const {
  const bool is_in_use =
      slot < state_->slots.used() && !std::as_const(state_->slots)[slot].trajectory.empty();
  if (is_in_use) return {};
  return data_loss("table '{}' has no item in slot {}", options_.name, slot);
}

Status TableCore::replay_insert(Item&& item, Slot slot, std::span<const Slot> evicted,
                                TimePoint now, Aftermath& after) {
  bool is_new = false;
  const ItemKey key = item.key;
  REVERIE_RETURN_IF_ERROR(put_in(std::move(item), now, after, is_new));
  if (inserted_slot_ != slot) {
    return data_loss("item {} of table '{}' goes into slot {}; it went into slot {}", key,
                     options_.name, inserted_slot_, slot);
  }
  for (const Slot victim : evicted) {
    REVERIE_RETURN_IF_ERROR(check_in_use(victim));
    has_evicted_ = true;
    remove(victim, after);
  }
  return {};
}

Status TableCore::replay_updates(std::span<const Slot> slots, std::span<const double> priorities,
                                 TimePoint now) {
  now_ = now;
  REVERIE_RETURN_IF_ERROR(rules_->check_priorities(priorities));
  for (const Slot slot : slots) REVERIE_RETURN_IF_ERROR(check_in_use(slot));
  slots_.assign(slots.begin(), slots.end());
  values_.assign(priorities.begin(), priorities.end());
  update_all();
  return {};
}

Status TableCore::replay_samples(std::span<const Slot> slots, TimePoint now, Aftermath& after,
                                 const std::function<void(const SampleBatch&)>& on_draw) {
  now_ = now;
  SampleBatch batch;
  for (const Slot slot : slots) {
    REVERIE_RETURN_IF_ERROR(check_in_use(slot));
    slots_.assign(1, slot);
    values_.assign(1, 0.0);
    batch.clear();
    limiter_.did_sample(1);
    add_to_batch(0, 1, batch);
    if (on_draw) on_draw(batch);
    const bool is_last = options_.max_times_sampled >= 1 &&
                         state_->slots[slot].times_sampled >= options_.max_times_sampled;
    if (is_last) remove(slot, after);
  }
  return {};
}

Status TableCore::replay_draws(std::int64_t count) {
  if (count < -limiter_.samples()) {
    return data_loss("table '{}' gave {} samples, and {} are undone", options_.name,
                     limiter_.samples(), -count);
  }
  limiter_.did_sample(count);
  return {};
}

}  // namespace reverie
