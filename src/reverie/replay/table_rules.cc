#include "reverie/replay/table_rules.h"

#include <algorithm>

#include "reverie/replay/chunk_store.h"

namespace reverie {

Status TableRules::check_options(const TableOptions& options) {
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

Status TableRules::check_priority(double priority) const {
  REVERIE_RETURN_IF_ERROR(sampler_->check_priority(priority));
  return remover_->check_priority(priority);
}

Status TableRules::check_priorities(std::span<const double> priorities) const {
  if (sampler_->holds_all(priorities) && remover_->holds_all(priorities)) return {};
  for (std::size_t i = 0; i < priorities.size(); ++i) {
    if (Status status = check_priority(priorities[i]); !status.ok()) {
      return status.with_context(
          format("update {} of {} of table '{}'", i, priorities.size(), options_.name));
    }
  }
  return {};
}

std::unique_ptr<TextLayouts> TableRules::text_layouts_for(const TableOptions& options) {
  if (!options.signature) return nullptr;
  const auto is_text = [](const TensorSpec& column) { return has_variable_size(column.dtype); };
  if (std::ranges::none_of(options.signature->columns, is_text)) return nullptr;
  return std::make_unique<TextLayouts>();
}

Status TableRules::take_item(Item& item) const {
  REVERIE_RETURN_IF_ERROR(check_item(item));
  if (!text_layouts_) return {};
  // Without the checks an item may be anything.
  const bool fits =
      options_.checks_items || check_signature(item.trajectory.view(), *options_.signature).ok();
  if (fits) text_layouts_->settle(*options_.signature, item);
  return {};
}

Status TableRules::check_item(const Item& item) const {
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
  if (!options_.max_bytes && !store_max_bytes_) return {};
  // At most: a chunk that pieces refer to by turns counts with each.
  std::int64_t bytes = ChunkStore::item_bytes(item.trajectory.view());
  for (const Piece& piece : item.trajectory.pieces()) {
    bytes += static_cast<std::int64_t>(piece.chunk->size_bytes());
  }
  if (bytes >
      std::min(options_.max_bytes.value_or(INT64_MAX), store_max_bytes_.value_or(INT64_MAX))) {
    bytes = ChunkStore::new_bytes(item.trajectory.view(), /*all=*/true);
  }
  const auto check = [&](const char* which, std::optional<std::int64_t> bound) -> Status {
    if (!bound || bytes <= *bound) return {};
    return invalid_argument(
        "the item for table '{}' and its chunks take {} bytes, more than {} max_bytes {}; use a "
        "smaller chunk_length or raise max_bytes",
        options_.name, bytes, which, *bound);
  };
  REVERIE_RETURN_IF_ERROR(check("the table's", options_.max_bytes));
  return check("the store's", store_max_bytes_);
}

Status TableRules::check_tickets(std::span<const std::uint64_t> tickets,
                                 Slot restored_slots) const {
  // Slots are dense, and generations start at 1; items that are handed back take a few more slots.
  const std::uint64_t most = std::max<std::uint64_t>(
      std::min<std::uint64_t>(static_cast<std::uint64_t>(options_.max_size), kNoSlot),
      restored_slots);
  const std::uint64_t slot_count = 2 * most + 1024;
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

}  // namespace reverie
