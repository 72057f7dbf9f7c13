// Updates and deletions of a Table's items: a source of table.h.
//
// Tested in local_service_test.cc.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/replay/table.h"
#include "reverie/service/request_checks.h"

namespace reverie {

Status Table::check_mutation(const MutateRequest& request) const {
  REVERIE_RETURN_IF_ERROR(check_log());
  REVERIE_RETURN_IF_ERROR(check_mutate_request(request));
  REVERIE_RETURN_IF_ERROR(rules_->check_tickets(request.tickets, restored_slots_));
  REVERIE_RETURN_IF_ERROR(rules_->check_priorities(request.ticket_priorities));
  return rules_->check_priorities(request.key_priorities);
}

MutateResult Table::mutate(const MutateRequest& request) {
  MutateResult result;
  result.status = check_mutation(request);
  if (!result.status.ok()) return result;
  if (!request.corrupt.empty()) take_out(request.corrupt, result);

  // Each list breath by breath; waiting requests get their turn in between.
  const auto for_each_breath = [&](std::size_t count, auto step) {
    for (std::size_t begin = 0; begin < count && result.status.ok(); begin += kBreath) {
      const std::size_t size = std::min(kBreath, count - begin);
      apply([&](TimePoint now, Effects& effects) {
        mutex_.assert_held();
        if (closed_) {
          result.status = closed_status();
        } else {
          step(begin, size, now, effects);
        }
      });
    }
  };
  std::size_t deleted = 0;
  for_each_breath(request.deletes.size(), [&](auto begin, auto size, TimePoint now, Effects& fx) {
    mutex_.assert_held();
    const auto keys = request.deletes.subspan(begin, size);
    deleted += core_->erase(keys, now, fx.after);
    if (log_ != nullptr) log_->on_erase(log_index_, now, keys);
  });
  for_each_breath(request.tickets.size(), [&](auto begin, auto size, TimePoint now, Effects&) {
    mutex_.assert_held();
    const std::size_t found = core_->update_by_ticket(
        request.tickets.subspan(begin, size), request.ticket_priorities.subspan(begin, size), now);
    result.updated += found;
    count_missing(size - found, result);
    log_updates(now);
  });
  for_each_breath(request.keys.size(), [&](auto begin, auto size, TimePoint now, Effects&) {
    mutex_.assert_held();
    const std::size_t found = core_->update_by_key(
        request.keys.subspan(begin, size), request.key_priorities.subspan(begin, size), now);
    result.updated += found;
    count_missing(size - found, result);
    log_updates(now);
  });
  result.missing += request.deletes.size() - deleted;
  result.deleted += deleted;
  return result;
}

void Table::log_updates(TimePoint now) {
  if (log_ == nullptr || core_->updated_slots().empty()) return;
  log_->on_update(log_index_, now, core_->updated_slots(), core_->updated_priorities());
}

// Rare, so each item has its own critical section.
void Table::take_out(std::span<const CorruptItem> corrupt, MutateResult& result) {
  struct Report {
    const CorruptItem* item;
    std::size_t draws;
  };
  std::map<ItemKey, Report> by_key;
  for (const CorruptItem& item : corrupt) {
    ++by_key.try_emplace(item.key, Report{&item, 0}).first->second.draws;
  }
  for (const auto& [key, told] : by_key) {
    std::vector<ChunkKey> chunks;
    std::int64_t number = 0;
    apply([&, key = key, draws = told.draws](TimePoint now, Effects& effects) {
      mutex_.assert_held();
      if (closed_) {
        result.status = closed_status();
        return;
      }
      const std::int64_t before = core_->corrupt_items();
      chunks = core_->erase_corrupt(key, draws, now, effects.after);
      if (core_->corrupt_items() == before) return;
      number = core_->corrupt_items();
      if (log_ != nullptr) log_->on_corrupt(log_index_, now, key, draws);
    });
    if (!result.status.ok()) return;
    result.deleted += chunks.empty() ? 0 : 1;
    if (number == 0 || number > kCorruptLogged) continue;
    if (told.item->chunk != 0) chunks = {told.item->chunk};
    std::string names;
    for (const ChunkKey chunk : chunks) names += format("{}{}", names.empty() ? "" : ", ", chunk);
    log_warning(
        "item {} of table '{}' cannot be decoded and was taken out: chunk {}: {} (corrupt_items is "
        "{} now)",
        key, options().name, names.empty() ? "unknown" : names, told.item->why, number);
  }
}

void Table::count_missing(std::size_t missing, MutateResult& result) {
  result.missing += missing;
  missing_updates_ += static_cast<std::int64_t>(missing);
}

}  // namespace reverie
