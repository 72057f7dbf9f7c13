#include "reverie/replay/table_core.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "reverie/replay/distinct_probabilities.h"

namespace reverie {
namespace {

// Adds `by` to a counter kept in a key map.
void add_to(KeyMap& counters, std::uint64_t key, std::uint32_t by) {
  if (std::uint32_t* const count = counters.find_value(key)) {
    *count += by;
  } else {
    counters.insert(key, by);
  }
}

// Subtracts 1; true when that was the last, which is then gone.
bool take_from(KeyMap& counters, std::uint64_t key) {
  std::uint32_t* const count = counters.find_value(key);
  REVERIE_CHECK(count != nullptr);
  if (--*count > 0) return false;
  counters.erase(key);
  return true;
}

// Draws whose items are asked for together.
constexpr std::size_t kDrawBlock = 64;

std::uint64_t id_of(const Chunk* chunk) {
  return reinterpret_cast<std::uintptr_t>(chunk);
}

Status check_options(const TableOptions& options) {
  if (options.name.empty()) {
    return invalid_argument("a table's name is empty; give each table a name");
  }
  if (options.max_size < 1) {
    return invalid_argument("max_size of table '{}' is {}; it must be at least 1", options.name,
                            options.max_size);
  }
  if (options.max_bytes && *options.max_bytes < 1) {
    return invalid_argument("max_bytes of table '{}' is {}; it must be at least 1", options.name,
                            *options.max_bytes);
  }
  if (options.rate_limiter.min_size_to_sample > options.max_size) {
    return invalid_argument(
        "the rate limiter of table '{}' can never be met: min_size_to_sample is {} but max_size is "
        "{}; raise max_size or lower min_size_to_sample",
        options.name, options.rate_limiter.min_size_to_sample, options.max_size);
  }
  return {};
}

}  // namespace

TableCore::State::~State() {
  for (Slot slot = 0; slot < slots.used(); ++slot) {
    const Trajectory& trajectory = slots[slot].trajectory;
    if (!trajectory.empty()) chunk_store.remove(trajectory.view(), slots.is_keyed());
  }
}

Result<std::unique_ptr<TableCore>> TableCore::make(TableOptions options, const Registry& registry,
                                                   ChunkStore& chunks) {
  REVERIE_RETURN_IF_ERROR(check_options(options));
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
  auto core = std::unique_ptr<TableCore>(
      new TableCore(std::move(options), *limiter, chunks, std::move(sampler).value(),
                    std::move(remover).value(), std::move(extensions)));
  // Items without a priority begin with this one.
  if (Status status = core->check_priority(core->max_priority_); !status.ok()) {
    return status.with_context(context + ", first priority");
  }
  return core;
}

TableCore::TableCore(TableOptions options, RateLimiter limiter, ChunkStore& chunks,
                     std::unique_ptr<Selector> sampler, std::unique_ptr<Selector> remover,
                     std::vector<std::unique_ptr<TableExtension>> extensions)
    : options_(std::move(options)),
      chunks_(chunks),
      limiter_(limiter),
      sampler_check_(sampler->make_empty()),
      remover_check_(remover->make_empty()),
      // Extensions read the record of an item that a keyed table keeps.
      state_(std::make_shared<State>(chunks, options_.is_keyed || !extensions.empty())),
      extensions_(std::move(extensions)) {
  state_->sampler = std::move(sampler);
  state_->remover = std::move(remover);
}

TableCore::~TableCore() = default;

Status TableCore::check_priority(double priority) const {
  REVERIE_RETURN_IF_ERROR(sampler_check_->check_priority(priority));
  return remover_check_->check_priority(priority);
}

Status TableCore::check_priorities(std::span<const double> priorities) const {
  if (sampler_check_->holds_all(priorities) && remover_check_->holds_all(priorities)) return {};
  for (std::size_t i = 0; i < priorities.size(); ++i) {
    if (Status status = check_priority(priorities[i]); !status.ok()) {
      return status.with_context(
          format("update {} of {} of table '{}'", i, priorities.size(), options_.name));
    }
  }
  return {};
}

Status TableCore::check_item(const Item& item) const {
  if (item.trajectory.empty()) {
    return invalid_argument(
        "the item for table '{}' has no trajectory; give it at least one column", options_.name);
  }
  if (item.priority) {
    if (Status status = check_priority(*item.priority); !status.ok()) {
      return status.with_context(format("item for table '{}'", options_.name));
    }
  }
  if (options_.signature && options_.checks_items) {
    if (Status status = check_signature(item.trajectory.view(), *options_.signature);
        !status.ok()) {
      return status.with_context(format("table '{}'", options_.name));
    }
  }
  if (!options_.max_bytes && !chunks_.max_bytes()) return {};
  std::int64_t bytes = ChunkStore::item_bytes(item.trajectory.view());
  const Chunk* last = nullptr;
  for (const Piece& piece : item.trajectory.pieces()) {
    if (piece.chunk != last) bytes += static_cast<std::int64_t>(piece.chunk->size_bytes());
    last = piece.chunk;
  }
  const auto check = [&](const char* whose, std::optional<std::int64_t> bound) -> Status {
    if (!bound || bytes <= *bound) return {};
    return invalid_argument(
        "the item for table '{}' and its chunks take {} bytes, more than {} max_bytes {}; use a "
        "smaller chunk_length or raise max_bytes",
        options_.name, bytes, whose, *bound);
  };
  REVERIE_RETURN_IF_ERROR(check("the table's", options_.max_bytes));
  return check("the store's", chunks_.max_bytes());
}

bool TableCore::has_room(const Item& item) const {
  if (!chunks_.max_bytes()) return true;
  // A full table evicts as much as it takes in, by and by; were it to wait, it would never end.
  if (size() >= static_cast<std::size_t>(options_.max_size)) return true;
  return chunks_.has_room(ChunkStore::new_bytes(item.trajectory.view()));
}

void TableCore::insert(Item item, TimePoint now, Aftermath& after) {
  now_ = now;
  const double priority = item.priority.value_or(max_priority_);
  const Slot slot = state_->slots.take();
  if (ItemSlots::begins_segment(slot)) [[unlikely]]
    after.growing = state_->slots.slabs();
  if (options_.is_keyed && !state_->keys.insert(item.key, slot)) {
    state_->slots.give_back(slot);
    update(*state_->keys.find(item.key), priority);
    after.garbage.add(std::move(item.trajectory));
    return;
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
  count_in(stored.trajectory);
  limiter_.did_insert();
  for (const auto& extension : extensions_) extension->on_insert(*this, slot);
  // More than one where items were handed back meanwhile.
  while (size() > static_cast<std::size_t>(options_.max_size)) evict(after);
  while (is_over_bytes()) evict(after);
}

std::size_t TableCore::take_back(const SampleBatch& batch, std::size_t begin, std::size_t end,
                                 TimePoint now, Aftermath& after) {
  now_ = now;
  ItemSlots& slots = state_->slots;
  if (!slots.is_keyed()) return 0;  // its draws do not tell what an item was
  std::size_t count = 0;
  for (std::size_t i = end; i-- > begin;) {
    const Ticket ticket = Ticket::unpack(batch.tickets()[i]);
    if (slots.is_of_the_past(ticket)) continue;  // the table was reset
    BriefItem* there = slots.find(ticket);
    const std::optional<std::uint32_t> same_key = state_->keys.find(batch.keys()[i]);
    // It came back by its last draw, and this was one before: or it is another of that key.
    if (there == nullptr && same_key) there = &slots[*same_key];
    if (there != nullptr) {
      if (there->times_sampled < batch.times_sampled()[i]) continue;
      slots.will_change(same_key && slots.find(ticket) == nullptr ? *same_key : ticket.slot);
      --there->times_sampled;
      limiter_.take_back_sample();
      ++count;
      continue;
    }
    // Gone: with this draw, or since, because somebody wanted it gone.
    const bool was_last =
        options_.max_times_sampled >= 1 && batch.times_sampled()[i] >= options_.max_times_sampled;
    if (!was_last) continue;
    const Slot slot = slots.take();
    if (ItemSlots::begins_segment(slot)) after.growing = slots.slabs();
    if (options_.is_keyed) state_->keys.insert(batch.keys()[i], slot);
    StoredItem& stored = slots.whole(slot);
    const TrajectoryView& view = batch.trajectories()[i];
    stored.trajectory = Trajectory(Ref<const Layout>::share(view.layout), view.pieces());
    stored.key = batch.keys()[i];
    stored.priority = batch.priorities()[i];
    stored.inserted_at_ns = batch.inserted_at_ns()[i];
    stored.version = batch.versions()[i];
    stored.times_sampled = batch.times_sampled()[i] - 1;
    state_->sampler->insert_again(slot, stored.priority);
    state_->remover->insert_again(slot, stored.priority);
    count_in(stored.trajectory);
    limiter_.take_back_sample();
    limiter_.take_back_delete();
    for (const auto& extension : extensions_) extension->on_insert(*this, slot);
    ++count;
  }
  return count;
}

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

Status TableCore::check_tickets(std::span<const std::uint64_t> tickets) const {
  // Slots are dense, and generations begin with 1; items that were handed back take a few more.
  const std::uint64_t slot_count = 2 * static_cast<std::uint64_t>(options_.max_size) + 1024;
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    const Ticket ticket = Ticket::unpack(tickets[i]);
    if (ticket.generation != 0 && ticket.slot < slot_count) [[likely]] {
      continue;
    }
    return invalid_argument(
        "tickets holds {} at place {} of {}, which no batch of table '{}' has given; give the "
        "batch's tickets, or name keys as such (keys=)",
        tickets[i], i, tickets.size(), options_.name);
  }
  return {};
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
  // An item leaves with its last sample, so each draw may change the next one.
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
    // By the block: while one is drawn, the items of the one before are on their way.
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
  to_first_draw(std::span(values_).first(drawn));
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
    __builtin_prefetch(trajectory.many);  // or the chunk, whose address lies there as well
    if (rows.is_brief()) {
      rows.set_brief(i, stored.ticket(slots[i]), values_[begin + i], trajectory);
      continue;
    }
    static const StoredItem kNothingKnown;
    const StoredItem& whole = items.is_keyed() ? items.whole(slots[i]) : kNothingKnown;
    rows.set(i, {.key = whole.key,
                 .ticket = stored.ticket(slots[i]),
                 .probability = values_[begin + i],
                 .priority = whole.priority,
                 .inserted_at_ns = whole.inserted_at_ns,
                 .table_size = table_size,
                 .version = whole.version,
                 .times_sampled = stored.times_sampled,
                 .trajectory = trajectory});
  }
  num_unique_samples_ += unique_count;
  if (extensions_.empty()) return;
  // A hook may change priorities, or the room of this operation, so it gets what is kept apart.
  for (std::size_t i = 0; i < count; ++i) {
    const Slot slot = Ticket::unpack(rows.tickets[i]).slot;
    for (const auto& extension : extensions_) extension->on_sample(*this, slot);
  }
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
  REVERIE_RETURN_IF_ERROR(check_priority(priority));
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
  if (!slot) return {};
  state_->slots.will_change(*slot);
  BriefItem& stored = state_->slots[*slot];
  for (std::size_t i = 0; i < draws && stored.times_sampled > 0; ++i) {
    --stored.times_sampled;
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
  return gives_each_sample ? options_.max_times_sampled - item.times_sampled : 0;
}

void TableCore::remove(Slot slot, Aftermath& after) {
  state_->slots.will_change(slot);
  BriefItem& stored = state_->slots[slot];
  for (const auto& extension : extensions_) extension->on_delete(*this, slot);
  limiter_.did_delete(waived(stored));
  if (options_.is_keyed) state_->keys.erase(state_->slots.whole(slot).key);
  state_->sampler->erase(slot);
  state_->remover->erase(slot);
  count_out(stored.trajectory);
  after.has_freed_bytes = true;
  limbo_.remove(std::move(stored.trajectory), after.garbage);
  state_->slots.give_back(slot);
}

void TableCore::evict(Aftermath& after) {
  Slot victim = kNoSlot;
  double probability = 0;
  state_->remover->draw({&victim, 1}, {&probability, 1});
  remove(victim, after);
}

void TableCore::count_in(const Trajectory& trajectory) {
  chunks_.add(trajectory.view(), state_->slots.is_keyed());
  if (options_.max_bytes) account_->add(ChunkStore::item_bytes(trajectory.view()));
  if (!options_.is_keyed && !options_.max_bytes) return;
  for (const Piece& piece : trajectory.pieces()) {
    add_to(state_->episodes, piece.chunk->episode(), 1);
    if (!options_.max_bytes) continue;
    if (!state_->chunks.find(id_of(piece.chunk))) piece.chunk->charge(*account_);
    add_to(state_->chunks, id_of(piece.chunk), 1);
  }
}

void TableCore::count_out(const Trajectory& trajectory) {
  chunks_.remove(trajectory.view(), state_->slots.is_keyed());
  if (options_.max_bytes) account_->add(-ChunkStore::item_bytes(trajectory.view()));
  if (!options_.is_keyed && !options_.max_bytes) return;
  for (const Piece& piece : trajectory.pieces()) {
    if (take_from(state_->episodes, piece.chunk->episode())) ++num_deleted_episodes_;
    if (options_.max_bytes && take_from(state_->chunks, id_of(piece.chunk))) {
      piece.chunk->discharge(*account_);
    }
  }
}

void TableCore::reset(Aftermath& after) {
  auto fresh = std::make_shared<State>(chunks_, state_->slots.is_keyed());
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
}

TableInfo TableCore::info() const {
  TableInfo info;
  info.options = options_;
  info.current_size = static_cast<std::int64_t>(size());
  info.size_bytes = account_->bytes();
  info.num_episodes = static_cast<std::int64_t>(state_->episodes.size());
  info.num_deleted_episodes = num_deleted_episodes_;
  info.num_unique_samples = num_unique_samples_;
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
