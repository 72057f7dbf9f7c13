// Inserts and samples. Updates are in table_mutation.cc, waiting requests in table_waiting.cc,
// queries in table_queries.cc.
//
// Tested in local_service_test.cc.
#include "reverie/replay/table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "reverie/base/lost_bytes.h"
#include "reverie/record/readable_rows.h"
#include "reverie/service/request_checks.h"
#include "reverie/sum_tree/distinct_probabilities.h"

namespace reverie {

Table::Table(std::unique_ptr<TableCore> core, std::shared_ptr<StoreContext> context,
             RequestId id_base)
    : context_(std::move(context)),
      id_base_(id_base),
      rules_(core->shared_rules()),
      core_(std::move(core)) {}

// --- Critical sections ---------------------------------------------------------------------

bool Table::confirm(std::uint64_t position, StoreLog::Caller caller, Done<InsertResult> done,
                    InsertResult result) {
  // Also if it was cancelled: its caller counts what was inserted as in the store.
  if (log_ == nullptr || result.applied == 0 || log_->is_durable(log_index_, position)) {
    done(std::move(result));
    return true;
  }
  log_->confirm(log_index_, position, caller,
                [done = std::move(done), result = std::move(result)](const Status& status) mutable {
                  if (!status.ok()) result = {status, result.applied, /*is_unlogged=*/true};
                  done(std::move(result));
                });
  return false;
}

RequestId Table::confirm(StoreLog::Caller caller, StoreLog::Confirmed complete) {
  const std::uint64_t position = log_->position();
  if (log_->is_durable(log_index_, position)) {
    complete({});
    return 0;
  }
  RequestId id = 0;
  if (log_->confirms_later()) {
    MutexLock lock(mutex_);
    id = id_base_ + ++last_id_;
  }
  log_->confirm(log_index_, position, caller, std::move(complete));
  return id;
}

Status Table::replay(const Change& change) {
  Aftermath after;
  MutexLock lock(mutex_);
  Status status = change(*core_, after);
  publish_mass();
  return status;
}

void Table::finish(Effects& effects) {
  while (true) {
    const bool is_unfinished = std::exchange(effects.is_unfinished, false);
    const bool has_freed = effects.after.has_freed_bytes;
    if (effects.after.growing) effects.after.growing->populate_ahead();
    effects.after = {};  // frees
    if (ChunkHolders* const holders = context_->chunks.holders()) holders->shrink();
    for (auto& [done, result] : effects.inserts) {
      confirm(effects.logged, StoreLog::Caller::kGoesOn, std::move(done), std::move(result));
    }
    for (auto& [done, result, distinct] : effects.samples) {
      if (distinct) finish_distinct(result.batch);
      load(result);
      done(std::move(result));
    }
    effects.inserts.clear();
    effects.samples.clear();
    if (has_freed && context_->chunks.has_waiters() && context_->on_room) context_->on_room();
    if (!is_unfinished) return;
    MutexLock lock(mutex_);
    serve_waiting(context_->clock.now(), effects);
    publish_mass();
    if (log_ != nullptr) effects.logged = log_->position();
  }
}

void Table::load(SampleResult& result) {
  if (context_->memory == nullptr) return;
  SampleBatch& batch = result.batch;
  std::vector<ChunkMemory::Range> places;
  for (const TrajectoryView& trajectory : batch.trajectories()) {
    for (const Piece& piece : trajectory.pieces()) {
      piece.chunk->add_places(piece.offset, piece.length, places);
    }
  }
  context_->memory->prefetch(places);
  if (LostBytes::any()) take_out_unreadable(result);
}

void Table::take_out_unreadable(SampleResult& result) {
  SampleBatch& batch = result.batch;
  std::vector<std::size_t> indices;
  std::vector<CorruptItem> items;
  Status why;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    for (const Piece& piece : batch.trajectories()[i].pieces()) {
      Status status = check_readable(*piece.chunk, piece.offset, piece.length);
      if (status.ok()) continue;
      indices.push_back(i);
      if (!batch.is_brief()) {
        items.push_back({batch.keys()[i], piece.chunk->key(), status.message()});
      }
      if (why.ok()) why = std::move(status);
      break;
    }
  }
  if (indices.empty()) return;
  // No caller receives them.
  if (keeps_receipts() && !batch.is_brief()) receive(draws_of(batch, indices));
  const std::size_t drawn = batch.size();
  batch.remove(indices);
  MutateResult taken;
  const bool leave = options().is_keyed && !items.empty();
  if (leave) take_out(items, taken);
  if (!result.status.ok()) return;
  result.status = why.with_context(
      format("{} of {} items that were drawn from table '{}' cannot be read, and {}",
             indices.size(), drawn, options().name,
             leave ? "the table has lost them; the next ones drawn are others"
                   : "stay in the table; they may be drawn again"));
}

void Table::finish_distinct(SampleBatch& batch) {
  double least = batch.least_probability();
  const auto sizes = batch.table_sizes();  // the first one: draws may have removed items
  const auto size = static_cast<std::size_t>(sizes.empty() ? batch.table_size() : sizes.front());
  to_inclusion({batch.rows().probabilities, batch.size()}, size, least > 0 ? &least : nullptr);
  batch.set_least_probability(least);
}

std::size_t Table::insert_now(std::span<Item> items, const ItemNumbers& numbers, TimePoint now,
                              Effects& effects, Status& refusal) {
  std::size_t applied = 0;
  for (Item& item : items) {
    if (!core_->can_insert() || !core_->has_room(item)) break;
    refusal = log_ == nullptr
                  ? core_->insert(std::move(item), now, effects.after)
                  : insert_and_log(item, {numbers.session, numbers.first + applied}, now, effects);
    if (!refusal.ok()) break;
    ++applied;
  }
  return applied;
}

Status Table::insert_and_log(Item& item, const ItemNumbers& number, TimePoint now,
                             Effects& effects) {
  // The view stays valid: removed items are in `effects`, or pinned.
  LoggedInsert logged;
  logged.key = item.key;
  logged.priority = item.priority;
  logged.version = item.version;
  logged.trajectory = item.trajectory.view();
  REVERIE_RETURN_IF_ERROR(core_->insert(std::move(item), now, effects.after));
  logged.slot = core_->inserted_slot();
  logged.evicted = core_->evicted();
  logged.session = number.session;
  logged.number = number.first;
  log_->on_insert(log_index_, now, logged);
  return {};
}

bool Table::sample_now(SampleRequest& request, TimePoint now, Effects& effects) {
  const std::size_t wanted = std::min(request.count - request.batch.size(), kBreath);
  const std::uint64_t pin = core_->pin();  // before the draws remove items
  // Distinct draws are all from the table of the first ones.
  const bool takes_least = request.wants_least && (!request.distinct || request.batch.empty());
  const double least = takes_least ? core_->least_probability() : 0;
  const std::size_t drawn =
      core_->sample(wanted, request.distinct, now, request.batch, effects.after);
  if (takes_least && drawn > 0) request.batch.set_least_probability(least);
  const std::size_t size = request.batch.size();
  // Fewer than a whole breath: no more can be drawn now.
  const bool is_complete = size == request.count || (size >= request.min_count && drawn < wanted);
  if (drawn == 0) {
    core_->unpin(pin, effects.after);
  } else {
    request.batch.add_pin(Pin(shared_from_this(), pin));
    request.batch.set_drawn_at(now);
    if (log_ != nullptr) {
      auto kind = StoreLog::SampleKind::kCounted;
      if (options().max_times_sampled >= 1) {
        const bool is_part = !is_complete && !request.batch.is_brief();  // a crash undoes it
        kind = request.awaits_receipt || is_part ? StoreLog::SampleKind::kAwaited
                                                 : StoreLog::SampleKind::kByItem;
      }
      log_->on_sample(log_index_, now, request.batch, request.batch.size() - drawn, kind);
    }
    request.batch.set_sampler_mass(core_->sampler_mass());
  }
  return is_complete;
}

// --- Requests ------------------------------------------------------------------------------

RequestId Table::insert(const InsertRequest& request, Done<InsertResult> done) {
  const std::span<Item> items = request.items;
  const TimePoint deadline = request.deadline;
  const ItemNumbers& numbers = request.numbers;
  for (std::size_t i = 0; i < items.size(); ++i) {
    Status status = rules_->take_item(items[i]);
    if (status.ok()) continue;
    if (items.size() > 1) status = status.with_context(format("item {} of {}", i, items.size()));
    done({std::move(status), 0});
    return 0;
  }
  RequestId id = 0;
  InsertResult result;
  result.status = check_log();
  if (result.status.ok() && log_ != nullptr) result.status = log_->prepare(items);
  if (!result.status.ok()) {
    done(std::move(result));
    return 0;
  }
  RequestId confirm_id = 0;
  const std::uint64_t logged = apply([&](TimePoint now, Effects& effects) {
    mutex_.assert_held();
    if (closed_) {
      result.status = closed_status();
      return;
    }
    if (inserts_.empty()) {
      result.applied = insert_now(items.first(std::min(items.size(), kBreath)), numbers, now,
                                  effects, result.status);
    }
    const auto end = [&] {
      mutex_.assert_held();
      const bool may_wait = log_ != nullptr && log_->confirms_later() && result.applied > 0;
      if (may_wait) confirm_id = id_base_ + ++last_id_;
    };
    if (result.applied == items.size() || !result.status.ok()) return end();
    // If other requests wait, or a part of this one is inserted, it may only have to wait for its
    // turn.
    if (deadline <= now && result.applied == 0 && inserts_.empty() && samples_.empty()) {
      result.status = insert_timed_out(0, items.size());
      return;
    }
    WaitingInsert waiting;
    result.status = start_waiting(waiting, now, deadline);
    if (!result.status.ok()) return end();
    waiting.items.assign(std::make_move_iterator(items.begin()),
                         std::make_move_iterator(items.end()));
    if (log_ != nullptr) waiting.session = numbers.session;
    waiting.first_number = numbers.first;
    waiting.applied = result.applied;
    waiting.done = std::move(done);
    id = waiting.id;
    inserts_.push_back(std::move(waiting));
  });
  if (id != 0) return id;
  if (log_ == nullptr) {
    done(std::move(result));
  } else {
    const auto caller =
        request.is_waited_for ? StoreLog::Caller::kWaits : StoreLog::Caller::kGoesOn;
    if (confirm(logged, caller, std::move(done), std::move(result))) return 0;
  }
  return confirm_id;
}

template <typename Take>
std::size_t Table::insert_in_breaths(std::size_t count, std::size_t breath, Take take) {
  std::size_t applied = 0;
  while (applied < count) {
    const std::size_t wanted = std::min(count - applied, breath);
    std::size_t taken = 0;
    apply([&](TimePoint now, Effects& effects) {
      mutex_.assert_held();
      if (!closed_ && inserts_.empty()) taken = take(applied, wanted, now, effects);
    });
    applied += taken;
    if (taken < wanted) break;
  }
  return applied;
}

std::size_t Table::insert_at_once(std::span<Item> items) {
  if (log_ != nullptr) return 0;  // the answer would confirm it
  std::size_t good = 0;
  while (good < items.size() && rules_->take_item(items[good]).ok()) ++good;
  const auto take = [&](std::size_t begin, std::size_t count, TimePoint now, Effects& effects) {
    mutex_.assert_held();
    Status refusal;  // insert() will return it again
    return insert_now(items.subspan(begin, count), {}, now, effects, refusal);
  };
  return insert_in_breaths(good, kBreath, take);
}

std::size_t Table::insert_views(std::span<const TrajectoryView> items) {
  if (log_ != nullptr || !rules_->takes_views() || context_->chunks.holders() != nullptr) return 0;
  const std::size_t breath = std::min(kBreath, static_cast<std::size_t>(options().max_size));
  const auto take = [&](std::size_t begin, std::size_t count, TimePoint now, Effects& effects) {
    mutex_.assert_held();
    return core_->insert_views(items.subspan(begin, count), now, effects.after);
  };
  return insert_in_breaths(items.size(), breath, take);
}

RequestId Table::sample(SampleRequest request, Done<SampleResult> done) {
  request.min_count = std::min(request.min_count, request.count);
  SampleResult result;
  result.status = check_sample_request(request);
  if (result.status.ok() && request.distinct &&
      request.count > static_cast<std::size_t>(options().max_size)) {
    result.status = invalid_argument(
        "{} distinct samples were asked for but table '{}' holds at most max_size {} items; ask "
        "for fewer, or sample with replacement",
        request.count, options().name, options().max_size);
  }
  request.batch.clear();
  if (!result.status.ok()) {
    result.batch = std::move(request.batch);
    done(std::move(result));
    return 0;
  }
  request.batch.reserve(request.count, request.brief);
  RequestId id = 0;
  apply([&](TimePoint now, Effects& effects) {
    mutex_.assert_held();
    if (closed_) {
      result.status = closed_status();
      return;
    }
    if (samples_.empty() && sample_now(request, now, effects)) return;
    if (request.deadline <= now && request.batch.empty() && inserts_.empty() && samples_.empty()) {
      result.status = sample_timed_out(0, request.count);
      return;
    }
    WaitingSample waiting;
    result.status = start_waiting(waiting, now, request.deadline);
    if (!result.status.ok()) return;
    waiting.request = std::move(request);
    waiting.request.table = {};
    waiting.open_draws = waiting.request.batch.size();
    waiting.done = std::move(done);
    id = waiting.id;
    samples_.push_back(std::move(waiting));
  });
  if (id == 0) {
    result.batch = std::move(request.batch);
    if (request.distinct) finish_distinct(result.batch);
    load(result);
    done(std::move(result));
  }
  return id;
}

// The last draw is undone first, so that a queue has its former order.
std::size_t Table::hand_back(const SampleBatch& batch) {
  std::size_t count = 0;
  for (std::size_t end = batch.size(); end > 0;) {
    const std::size_t begin = end - std::min(end, kBreath);
    apply([&](TimePoint now, Effects& effects) {
      mutex_.assert_held();
      // A closed store makes no more draws: nothing is lost.
      if (closed_) {
        count += end - begin;
        return;
      }
      const std::size_t back = core_->take_back(batch, begin, end, now, effects.after);
      count += back;
      if (log_ != nullptr && back > 0) {
        log_->on_take_back(log_index_, now, batch, begin, end, back,
                           options().max_times_sampled >= 1);
      } else if (keeps_receipts()) {
        // Their items are gone: no restart could undo them either.
        log_->on_receive(log_index_, draws_of(batch, begin, end));
      }
    });
    end = begin;
  }
  return count;
}

void Table::reset() {
  apply([&](TimePoint now, Effects& effects) {
    mutex_.assert_held();
    core_->reset(effects.after);
    if (log_ != nullptr) log_->on_reset(log_index_, now);
  });
}

void Table::serve() {
  apply([](TimePoint, Effects&) {});
}

void Table::unpin(std::uint64_t token) noexcept {
  release([&](Aftermath& after) {
    mutex_.assert_held();
    core_->unpin(token, after);
  });
}

// --- Requests that end before they are served ---------------------------------------------------

template <typename Pick>
void Table::complete_if(Pick pick, TimePoint now, Effects& effects) {
  const auto complete_those = [&](auto& requests, auto timed_out) {
    mutex_.assert_held();
    for (auto it = requests.begin(); it != requests.end();) {
      const Status status = pick(*it, [&] { return timed_out(*it); });
      if (status.ok()) {
        ++it;
        continue;
      }
      auto gone = std::move(*it);
      it = requests.erase(it);
      complete(std::move(gone), status, now, effects);
    }
  };
  complete_those(inserts_, [this](const WaitingInsert& waiting) {
    mutex_.assert_held();
    return insert_timed_out(waiting.applied, waiting.items.size());
  });
  complete_those(samples_, [this](const WaitingSample& waiting) {
    mutex_.assert_held();
    return sample_timed_out(waiting.request.batch.size(), waiting.request.count);
  });
}

bool Table::complete_expired(TimePoint now, Effects& effects) {
  if (now < first_deadline_) return false;
  const std::size_t before = effects.inserts.size() + effects.samples.size();
  first_deadline_ = TimePoint::max();
  complete_if(
      [&](const Waiting& waiting, auto timed_out) {
        mutex_.assert_held();
        if (waiting.deadline <= now) return timed_out();
        first_deadline_ = std::min(first_deadline_, waiting.deadline);
        return Status();
      },
      now, effects);
  return effects.inserts.size() + effects.samples.size() > before;
}

void Table::cancel(RequestId id) {
  apply([this, id](TimePoint now, Effects& effects) {
    mutex_.assert_held();
    complete_if(
        [&](const Waiting& waiting, auto) {
          return waiting.id == id
                     ? cancelled("the call on table '{}' was cancelled", options().name)
                     : Status();
        },
        now, effects);
  });
}

void Table::close() {
  apply([this](TimePoint now, Effects& effects) {
    mutex_.assert_held();
    closed_ = true;
    complete_if([&](const Waiting&, auto) { return closed_status(); }, now, effects);
  });
}

}  // namespace reverie
