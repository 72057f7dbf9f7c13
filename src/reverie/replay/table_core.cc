#include "reverie/replay/table_core.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

namespace reverie {

std::uint32_t TableCore::State::next_owner() {
  static std::atomic<std::uint32_t> last{0};
  const std::uint32_t next = ++last;
  return next != 0 ? next : ++last;
}

TableCore::State::~State() {
  for (Slot slot = 0; slot < slots.used(); ++slot) {
    Trajectory& trajectory = slots[slot].trajectory;
    if (trajectory.empty()) continue;
    if (slots.is_lean(slot)) {
      const Ref<const Chunk> unused = chunk_store.remove_shared(*trajectory.view().one.chunk);
      trajectory.forget();
    } else {
      chunk_store.remove(trajectory.view(), slots.is_keyed());
      release(trajectory);
    }
  }
}

void TableCore::State::keep_layout(const Layout* layout) {
  if (layout == last_layout) [[likely]] {
    return;
  }
  layouts.try_emplace(layout, Ref<const Layout>::share(layout));
  last_layout = layout;
}

Result<std::unique_ptr<TableCore>> TableCore::make(TableOptions options, const Registry& registry,
                                                   ChunkStore& chunks, Allocator* item_memory) {
  REVERIE_RETURN_IF_ERROR(TableRules::check_options(options));
  const std::string context = "table '" + options.name + "'";
  auto limiter = RateLimiter::make(options.rate_limiter);
  if (!limiter.ok()) return limiter.status().with_context(context);
  auto sampler = registry.make_selector(options.sampler);
  if (!sampler.ok()) return sampler.status().with_context(context + ", sampler");
  auto remover = registry.make_selector(options.remover);
  if (!remover.ok()) return remover.status().with_context(context + ", remover");
  std::vector<std::unique_ptr<TableExtension>> extensions;
  for (const ComponentSpec& spec : options.extensions) {
    auto extension = registry.make_extension(spec);
    if (!extension.ok()) return extension.status().with_context(context);
    extensions.push_back(std::move(extension).value());
  }
  auto rules = std::make_shared<const TableRules>(std::move(options), (*sampler)->make_empty(),
                                                  (*remover)->make_empty(), chunks.max_bytes());
  auto core = std::unique_ptr<TableCore>(
      new TableCore(std::move(rules), *limiter, chunks, std::move(sampler).value(),
                    std::move(remover).value(), std::move(extensions), item_memory));
  // Items without a priority start with this one.
  if (Status status = core->rules().check_priority(core->max_priority_); !status.ok()) {
    return status.with_context(context + ", first priority");
  }
  return core;
}

TableCore::TableCore(std::shared_ptr<const TableRules> rules, RateLimiter limiter,
                     ChunkStore& chunks, std::unique_ptr<Selector> sampler,
                     std::unique_ptr<Selector> remover,
                     std::vector<std::unique_ptr<TableExtension>> extensions,
                     Allocator* item_memory)
    : rules_(std::move(rules)),
      options_(rules_->options()),
      chunks_(chunks),
      item_memory_(item_memory),
      limiter_(limiter),
      // Extensions read an item's record, which only a keyed table keeps.
      state_(std::make_shared<State>(chunks, options_, options_.is_keyed || !extensions.empty(),
                                     item_memory)),
      extensions_(std::move(extensions)) {
  state_->sampler = std::move(sampler);
  state_->remover = std::move(remover);
}

TableCore::~TableCore() = default;

Slot TableCore::take_slot(Aftermath& after) {
  ItemSlots& slots = state_->slots;
  const Slot slot = slots.take();
  if (slot == kNoSlot || !ItemSlots::begins_segment(slot)) [[likely]] {
    return slot;
  }
  after.growing = slots.slabs();
  try {
    state_->sampler->reserve(slots.reach());
    state_->remover->reserve(slots.reach());
  } catch (const std::bad_alloc&) {
    slots.give_back(slot);
    return kNoSlot;
  }
  return slot;
}

TableCore::KeyInsert TableCore::insert_key(ItemKey key, Slot slot) {
  try {
    return state_->keys.insert(key, slot) ? KeyInsert::kDone : KeyInsert::kThere;
  } catch (const std::bad_alloc&) {
    return KeyInsert::kNoMemory;
  }
}

Status TableCore::insert(Item&& item, TimePoint now, Aftermath& after) {
  bool is_new = false;
  const bool makes_room = chunks_.max_bytes() && this->makes_room();
  const std::int64_t brought = makes_room ? ChunkStore::new_bytes(item.trajectory.view()) : 0;
  Status status = put_in(std::move(item), now, after, is_new);
  evicted_.clear();
  if (!is_new) return status;
  const std::int64_t used = chunks_.used_bytes();
  // More than one if items were handed back meanwhile.
  while (size() > static_cast<std::size_t>(options_.max_size)) evict(after);
  while (is_over_bytes()) evict(after);
  if (makes_room) evict_for(brought - (used - chunks_.used_bytes()), after);
  return {};
}

Status TableCore::put_in(Item&& item, TimePoint now, Aftermath& after, bool& is_new) {
  now_ = now;
  const double priority = item.priority.value_or(max_priority_);
  const Slot slot = take_slot(after);
  if (slot == kNoSlot) [[unlikely]] {
    return no_memory();
  }
  if (options_.is_keyed) {
    const KeyInsert key = insert_key(item.key, slot);
    if (key != KeyInsert::kDone) state_->slots.give_back(slot);
    if (key == KeyInsert::kNoMemory) return no_memory();
    if (key == KeyInsert::kThere) {
      inserted_slot_ = *state_->keys.find(item.key);
      update(inserted_slot_, priority);
      after.garbage.add(std::move(item.trajectory));
      return {};
    }
  }
  if (!count_in(item.trajectory)) {
    if (options_.is_keyed) state_->keys.erase(item.key);
    state_->slots.give_back(slot);
    return no_memory();
  }
  max_priority_ = std::max(max_priority_, priority);
  BriefItem& stored = state_->slots[slot];
  stored.trajectory = std::move(item.trajectory);
  stored.times_sampled = 0;
  if (state_->slots.is_keyed()) {
    StoredItem& whole = state_->slots.whole(slot);
    whole.key = item.key;
    whole.priority = priority;
    whole.inserted_at_ns = now.ns;
    whole.version = item.version;
  }
  state_->sampler->insert(slot, priority);
  state_->remover->insert(slot, priority);
  limiter_.did_insert();
  for (const auto& extension : extensions_) extension->on_insert(*this, slot);
  inserted_slot_ = slot;
  is_new = true;
  return {};
}

Status TableCore::no_memory() const {
  return resource_exhausted(
      "no memory is available for one more item of table '{}', which holds {}; lower max_size, or "
      "give the process more memory",
      options_.name, size());
}

std::size_t TableCore::take_back(const SampleBatch& batch, std::size_t begin, std::size_t end,
                                 TimePoint now, Aftermath& after) {
  now_ = now;
  ItemSlots& slots = state_->slots;
  if (!slots.is_keyed()) return 0;  // its draws do not identify an item
  std::size_t count = 0;
  for (std::size_t i = end; i-- > begin;) {
    const Ticket ticket = Ticket::unpack(batch.tickets()[i]);
    if (slots.predates_reset(ticket)) continue;  // the table was reset
    BriefItem* there = slots.find(ticket);
    const std::optional<std::uint32_t> same_key = state_->keys.find(batch.keys()[i]);
    // Undoing its last draw has restored the item, and this is an earlier draw; or it is another
    // item with that key.
    if (there == nullptr && same_key) there = &slots[*same_key];
    if (there != nullptr) {
      if (there->times_sampled < batch.times_sampled()[i]) continue;
      const Slot slot = same_key && slots.find(ticket) == nullptr ? *same_key : ticket.slot;
      slots.will_change(slot);
      if (batch.is_redelivered(i)) slots.set_redelivered(slot, true);
      if (--there->times_sampled == 0) --num_unique_samples_;
      limiter_.take_back_sample();
      ++count;
      continue;
    }
    // The item was removed by this draw, or later.
    const bool was_last =
        options_.max_times_sampled >= 1 && batch.times_sampled()[i] >= options_.max_times_sampled;
    if (!was_last) continue;
    const Slot slot = take_slot(after);
    if (slot == kNoSlot) continue;  // no memory: the item is not restored
    const std::size_t episodes = state_->episodes.size();
    const TrajectoryView& view = batch.trajectories()[i];
    Trajectory trajectory(Ref<const Layout>::share(view.layout), view.pieces());
    const bool has_key =
        !options_.is_keyed || insert_key(batch.keys()[i], slot) == KeyInsert::kDone;
    if (!has_key || !count_in(trajectory)) {
      if (has_key && options_.is_keyed) state_->keys.erase(batch.keys()[i]);
      slots.give_back(slot);
      continue;
    }
    num_deleted_episodes_ -= static_cast<std::int64_t>(state_->episodes.size() - episodes);
    StoredItem& stored = slots.whole(slot);
    stored.trajectory = std::move(trajectory);
    stored.key = batch.keys()[i];
    stored.priority = batch.priorities()[i];
    stored.inserted_at_ns = batch.inserted_at_ns()[i];
    stored.version = batch.versions()[i];
    stored.times_sampled = batch.times_sampled()[i] - 1;
    if (stored.times_sampled == 0) --num_unique_samples_;
    slots.set_redelivered(slot, batch.is_redelivered(i));
    state_->sampler->insert_again(slot, stored.priority);
    state_->remover->insert_again(slot, stored.priority);
    limiter_.take_back_sample();
    limiter_.take_back_delete();
    for (const auto& extension : extensions_) extension->on_insert(*this, slot);
    ++count;
  }
  return count;
}

std::size_t TableCore::update_by_ticket(std::span<const std::uint64_t> tickets,
                                        std::span<const double> priorities, TimePoint now) {
  now_ = now;
  for (const std::uint64_t ticket : tickets) {
    const Slot slot = Ticket::unpack(ticket).slot;
    if (slot < state_->slots.used()) state_->slots.prefetch(slot);
  }
  slots_.resize(tickets.size());
  values_.resize(tickets.size());
  std::size_t found = 0;
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    const Ticket ticket = Ticket::unpack(tickets[i]);
    if (state_->slots.find(ticket) == nullptr) continue;
    slots_[found] = ticket.slot;
    values_[found++] = priorities[i];
  }
  slots_.resize(found);
  values_.resize(found);
  update_all();
  return found;
}

std::size_t TableCore::update_by_key(std::span<const ItemKey> keys,
                                     std::span<const double> priorities, TimePoint now) {
  now_ = now;
  std::vector<Slot> found(keys.size());
  state_->keys.find(keys, found);
  slots_.clear();
  values_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (found[i] == kNoSlot) continue;
    slots_.push_back(found[i]);
    values_.push_back(priorities[i]);
  }
  update_all();
  return slots_.size();
}

void TableCore::update_all() {
  if (!extensions_.empty()) {  // hooks see each update as it happens
    const std::vector<Slot> slots = slots_;
    const std::vector<double> values = values_;
    for (std::size_t i = 0; i < slots.size(); ++i) update(slots[i], values[i]);
    return;
  }
  state_->sampler->update(slots_, values_);
  state_->remover->update(slots_, values_);
  double max_priority = max_priority_;
  const bool is_keyed = state_->slots.is_keyed();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (is_keyed) {
      state_->slots.will_change(slots_[i]);
      state_->slots.whole(slots_[i]).priority = values_[i];
    }
    max_priority = std::max(max_priority, values_[i]);
  }
  max_priority_ = max_priority;
}

void TableCore::update(Slot slot, double priority) {
  const double old = state_->slots.is_keyed() ? state_->slots.whole(slot).priority : priority;
  max_priority_ = std::max(max_priority_, priority);
  set_checked_priority(slot, priority);
  for (const auto& extension : extensions_) extension->on_update(*this, slot, old);
}

Status TableCore::set_priority(Slot slot, double priority) {
  REVERIE_RETURN_IF_ERROR(rules_->check_priority(priority));
  set_checked_priority(slot, priority);
  return {};
}

void TableCore::set_checked_priority(Slot slot, double priority) {
  state_->slots.will_change(slot);
  if (state_->slots.is_keyed()) state_->slots.whole(slot).priority = priority;
  const std::span<const Slot> slots(&slot, 1);
  const std::span<const double> priorities(&priority, 1);
  state_->sampler->update(slots, priorities);
  state_->remover->update(slots, priorities);
}

std::size_t TableCore::erase(std::span<const ItemKey> keys, TimePoint now, Aftermath& after) {
  now_ = now;
  std::size_t erased = 0;
  for (const ItemKey key : keys) {
    const auto slot = state_->keys.find(key);
    if (!slot) continue;
    remove(*slot, after);
    ++erased;
  }
  return erased;
}

std::vector<ChunkKey> TableCore::erase_corrupt(ItemKey key, std::size_t draws, TimePoint now,
                                               Aftermath& after) {
  now_ = now;
  const auto slot = state_->keys.find(key);
  if (slot || options_.max_times_sampled >= 1) ++corrupt_items_;
  if (!slot) return {};
  state_->slots.will_change(*slot);
  BriefItem& stored = state_->slots[*slot];
  for (std::size_t i = 0; i < draws && stored.times_sampled > 0; ++i) {
    if (--stored.times_sampled == 0) --num_unique_samples_;
    limiter_.take_back_sample();
  }
  std::vector<ChunkKey> chunks;
  for (const Piece& piece : stored.trajectory.pieces()) chunks.push_back(piece.chunk->key());
  remove(*slot, after);
  return chunks;
}

std::optional<TableCore::Found> TableCore::find(ItemKey key) const {
  const auto slot = state_->keys.find(key);
  if (!slot) return std::nullopt;
  const StoredItem& stored = state_->slots.whole(*slot);
  return Found{stored.priority, stored.ticket(*slot)};
}

std::int64_t TableCore::waived(const BriefItem& item) const {
  const RateLimiterSpec& spec = limiter_.spec();
  const bool gives_each_sample =
      options_.max_times_sampled >= 1 && spec.min_diff == 0 && spec.min_size_to_sample == 1 &&
      spec.samples_per_insert == static_cast<double>(options_.max_times_sampled);
  // An item that was restored may have been sampled more often than this table allows.
  const std::int64_t left = options_.max_times_sampled - item.times_sampled;
  return gives_each_sample ? std::max<std::int64_t>(left, 0) : 0;
}

void TableCore::remove(Slot slot, Aftermath& after) {
  state_->slots.will_change(slot);
  BriefItem& stored = state_->slots[slot];
  for (const auto& extension : extensions_) extension->on_delete(*this, slot);
  limiter_.did_delete(waived(stored));
  if (options_.is_keyed) state_->keys.erase(state_->slots.whole(slot).key);
  state_->sampler->erase(slot);
  state_->remover->erase(slot);
  if (take_out(slot, after)) state_->slots.set_lean(slot, false);
  after.has_freed_bytes = true;
  state_->slots.give_back(slot);
}

// Only for what this insert took. An item whose chunks others hold, too, frees next to nothing, and
// so would those after it; later inserts go on. One item stays: it may be the new one.
void TableCore::evict_for(std::int64_t bytes, Aftermath& after) {
  while (bytes > 0 && size() > 1 && !chunks_.has_room(0)) {
    const std::int64_t used = chunks_.used_bytes();
    const std::int64_t own = evict(after);
    const std::int64_t freed = used - chunks_.used_bytes();
    if (freed <= own) return;
    bytes -= freed;
  }
}

std::int64_t TableCore::evict(Aftermath& after) {
  Slot victim = kNoSlot;
  double probability = 0;
  state_->remover->draw({&victim, 1}, {&probability, 1});
  evicted_.push_back(victim);
  has_evicted_ = true;
  const ItemSlots& slots = state_->slots;
  const std::int64_t own =
      slots.is_lean(victim) ? 0 : ChunkStore::item_bytes(slots[victim].trajectory.view());
  remove(victim, after);
  return own;
}

void TableCore::reset(Aftermath& after) {
  auto fresh = std::make_shared<State>(chunks_, options_, state_->slots.is_keyed(), item_memory_);
  fresh->slots.continue_generations(state_->slots);
  fresh->sampler = state_->sampler->make_empty();
  fresh->remover = state_->remover->make_empty();
  std::swap(state_, fresh);
  limbo_.remove(std::shared_ptr<void>(std::move(fresh)), after.garbage);
  after.has_freed_bytes = true;
  for (const auto& extension : extensions_) extension->on_reset();
  limiter_.reset();
  // A table that is not keyed belongs to a replay buffer, whose learner keeps its priorities.
  if (options_.is_keyed) max_priority_ = 1.0;
  account_ = make_ref<ByteAccount>();
  num_deleted_episodes_ = 0;
  num_unique_samples_ = 0;
  has_evicted_ = false;
}

TableInfo TableCore::info() const {
  TableInfo info;
  info.options = options_;
  info.current_size = static_cast<std::int64_t>(size());
  info.size_bytes = account_->bytes();
  info.num_episodes = static_cast<std::int64_t>(state_->episodes.size());
  info.num_deleted_episodes = num_deleted_episodes_;
  info.num_unique_samples = num_unique_samples_;
  info.corrupt_items = corrupt_items_;
  info.inserts = limiter_.inserts();
  info.samples = limiter_.samples();
  info.deletes = limiter_.deletes();
  info.max_priority = max_priority_;
  return info;
}

std::map<std::string, double> TableCore::extension_summary(std::size_t index, TimePoint now) const {
  return extensions_[index]->summary(now);
}

std::size_t TableCore::memory_bytes() const {
  return sizeof(*this) + sizeof(State) + state_->slots.memory_bytes() +
         state_->keys.memory_bytes() + state_->episodes.memory_bytes() +
         state_->chunks.memory_bytes() + state_->sampler->memory_bytes() +
         state_->remover->memory_bytes();
}

}  // namespace reverie
