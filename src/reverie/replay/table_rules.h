// TableRules: the immutable part of a table, and the checks that need nothing else and take no
// lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "reverie/base/status.h"
#include "reverie/record/item.h"
#include "reverie/record/table_info.h"
#include "reverie/record/text_layouts.h"
#include "reverie/selectors/selector.h"

namespace reverie {

// Thread-safe: everything it reads is immutable.
class TableRules {
 public:
  // INVALID_ARGUMENT for invalid options; does not check selectors and extensions.
  static Status check_options(const TableOptions& options);

  // Requires checked options, and empty selectors of the kinds that they name. `store_max_bytes` is
  // the bound of the store that the table is in.
  TableRules(TableOptions options, std::unique_ptr<const Selector> sampler,
             std::unique_ptr<const Selector> remover, std::optional<std::int64_t> store_max_bytes)
      : options_(std::move(options)),
        sampler_(std::move(sampler)),
        remover_(std::move(remover)),
        store_max_bytes_(store_max_bytes),
        takes_views_(!options_.is_keyed && options_.extensions.empty() && !options_.max_bytes &&
                     !options_.memory_bytes && !store_max_bytes_ && !options_.signature &&
                     options_.max_times_sampled < 1 && remover_->is_oldest_first()),
        text_layouts_(text_layouts_for(options_)) {}

  const TableOptions& options() const { return options_; }

  // Whether the table takes views of items (TableCore::insert_views): it is not keyed, has no
  // bounds on bytes or samples, no signature and no extensions, and its oldest items leave first.
  bool takes_views() const { return takes_views_; }

  // Each INVALID_ARGUMENT for what the table cannot accept. Checks priority, trajectory, signature,
  // and whether the item alone fits max_bytes. Text of an item that is taken reads as the signature
  // says from here on.
  Status take_item(Item& item) const;
  // The check only; changes nothing.
  Status check_item(const Item& item) const;
  Status check_priority(double priority) const;
  // Checks all of them; names the first that is refused.
  Status check_priorities(std::span<const double> priorities) const;
  // Refuses numbers that cannot be tickets of this table, such as a key or an index. Restored items
  // are in slots below `restored_slots`, however few of them the table keeps.
  Status check_tickets(std::span<const std::uint64_t> tickets, Slot restored_slots = 0) const;

 private:
  static std::unique_ptr<TextLayouts> text_layouts_for(const TableOptions& options);

  const TableOptions options_;
  // Always empty: used only for checks.
  const std::unique_ptr<const Selector> sampler_;
  const std::unique_ptr<const Selector> remover_;
  const std::optional<std::int64_t> store_max_bytes_;
  const bool takes_views_;
  // Null if no column of the signature is text.
  const std::unique_ptr<TextLayouts> text_layouts_;
};

}  // namespace reverie
