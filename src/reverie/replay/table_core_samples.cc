// The second source of table_core.h: draws, and reading in the remover's order.
//
// Tested in table_core_test.cc.
#include <algorithm>
#include <limits>

#include "reverie/replay/table_core.h"
#include "reverie/sum_tree/distinct_probabilities.h"

namespace reverie {
namespace {

// Draws whose items are prefetched together.
constexpr std::size_t kDrawBlock = 64;

}  // namespace

std::size_t TableCore::read(std::size_t skip, std::size_t count, SampleBatch& batch) {
  if (skip >= size()) return 0;
  const std::size_t end = skip + std::min(count, size() - skip);
  slots_.resize(end);
  values_.resize(end);
  const std::size_t found = state_->remover->draw_distinct(slots_, values_);
  if (found <= skip) return 0;
  const SampleRows rows = batch.extend(found - skip);
  const auto table_size = static_cast<std::int64_t>(size());
  batch.set_table_size(table_size);
  for (std::size_t i = skip; i < found; ++i) {
    const Slot slot = slots_[i];
    const BriefItem& stored = state_->slots[slot];
    rows.set_brief(i - skip, stored.ticket(slot), 0.0, stored.trajectory.view());
  }
  return found - skip;
}

double TableCore::least_probability() {
  if (size() == 0) return 0;
  return state_->sampler->least_probability().value_or(0);
}

std::size_t TableCore::sample(std::size_t count, bool distinct, TimePoint now, SampleBatch& batch,
                              Aftermath& after) {
  now_ = now;
  std::size_t done = 0;
  if (options_.max_times_sampled < 1) {
    const auto allowed = static_cast<std::size_t>(
        std::min<std::int64_t>(static_cast<std::int64_t>(count), sample_allowance()));
    if (allowed == 0) return 0;
    done = draw(allowed, distinct, batch);
    limiter_.did_sample(static_cast<std::int64_t>(done));
    add_to_batch(0, done, batch);
    return done;
  }
  // An item is removed with its last sample, so each draw may change the next one.
  while (done < count && sample_allowance() > 0) {
    const std::size_t drawn = draw(distinct ? count - done : 1, distinct, batch);
    if (drawn == 0) break;
    for (std::size_t i = 0; i < drawn && sample_allowance() > 0; ++i) {
      limiter_.did_sample(1);
      add_to_batch(i, 1, batch);
      ++done;
      if (state_->slots[slots_[i]].times_sampled >= options_.max_times_sampled) {
        remove(slots_[i], after);
      }
    }
  }
  return done;
}

std::size_t TableCore::draw(std::size_t count, bool distinct, const SampleBatch& batch) {
  const std::size_t known = distinct ? batch.size() : 0;
  slots_.resize(count + known);
  values_.resize(count + known);
  if (!distinct) {
    // In blocks: while one is drawn, the items of the previous one are being prefetched.
    for (std::size_t begin = 0; begin < count; begin += kDrawBlock) {
      const std::size_t size = std::min(kDrawBlock, count - begin);
      const std::span<Slot> slots = std::span(slots_).subspan(begin, size);
      state_->sampler->draw(slots, std::span(values_).subspan(begin, size));
      for (const Slot slot : slots) state_->slots.prefetch(slot);
    }
    return count;
  }
  const std::size_t drawn = state_->sampler->draw_distinct(slots_, values_);
  for (std::size_t i = 0; i < drawn; ++i) state_->slots.prefetch(slots_[i]);
  // The share of the items that earlier portions have not removed.
  double share = 1;
  for (std::size_t i = 0; options_.max_times_sampled >= 1 && i < known; ++i) {
    const Ticket ticket = Ticket::unpack(batch.tickets()[i]);
    if (state_->slots.find(ticket) == nullptr) share -= batch.probabilities()[i];
  }
  to_single_draw(std::span(values_).first(drawn), share);
  if (known == 0) return drawn;
  // Leaving out those drawn in an earlier breath leaves a draw from the others.
  std::vector<std::uint64_t> tickets(batch.tickets().begin(), batch.tickets().end());
  std::sort(tickets.begin(), tickets.end());
  std::size_t fresh = 0;
  for (std::size_t i = 0; i < drawn && fresh < count; ++i) {
    const std::uint64_t ticket = state_->slots[slots_[i]].ticket(slots_[i]).packed();
    if (std::binary_search(tickets.begin(), tickets.end(), ticket)) continue;
    slots_[fresh] = slots_[i];
    values_[fresh++] = values_[i];
  }
  return fresh;
}

void TableCore::add_to_batch(std::size_t begin, std::size_t count, SampleBatch& batch) {
  constexpr std::int32_t kSampledMax = std::numeric_limits<std::int32_t>::max();
  const auto table_size = static_cast<std::int64_t>(size());
  const std::span<const Slot> slots = std::span(slots_).subspan(begin, count);
  ItemSlots& items = state_->slots;
  const SampleRows rows = batch.extend(count);
  batch.set_table_size(table_size);
  std::int64_t unique_count = 0;
  for (std::size_t i = 0; i < count; ++i) {
    items.will_change(slots[i]);
    BriefItem& stored = items[slots[i]];
    unique_count += stored.times_sampled == 0 ? 1 : 0;
    stored.times_sampled += stored.times_sampled < kSampledMax ? 1 : 0;
    const TrajectoryView& trajectory = stored.trajectory.view();
    __builtin_prefetch(trajectory.many);  // or the chunk, whose address is in the same place
    if (rows.is_brief()) {
      rows.set_brief(i, stored.ticket(slots[i]), values_[begin + i], trajectory);
      continue;
    }
    static const StoredItem no_details;
    const StoredItem& whole = items.is_keyed() ? items.whole(slots[i]) : no_details;
    rows.set(i, {.key = whole.key,
                 .ticket = stored.ticket(slots[i]),
                 .probability = values_[begin + i],
                 .priority = whole.priority,
                 .inserted_at_ns = whole.inserted_at_ns,
                 .table_size = table_size,
                 .version = whole.version,
                 .times_sampled = stored.times_sampled,
                 .is_redelivered = false,
                 .trajectory = trajectory});
  }
  if (items.has_redelivered() && !rows.is_brief()) {
    for (std::size_t i = 0; i < count; ++i) {
      if (items.is_redelivered(slots[i])) batch.set_redelivered(batch.size() - count + i);
    }
  }
  num_unique_samples_ += unique_count;
  if (extensions_.empty()) return;
  // A hook may change priorities, or the room of this operation, so it gets what is kept apart.
  for (std::size_t i = 0; i < count; ++i) {
    const Slot slot = Ticket::unpack(rows.tickets[i]).slot;
    for (const auto& extension : extensions_) extension->on_sample(*this, slot);
  }
}

}  // namespace reverie
