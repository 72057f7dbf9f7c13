// Table's snapshots: a frozen TableCore behind its lock.
//
// Tested in table_freeze_test.cc.
#include <utility>

#include "reverie/replay/table.h"

namespace reverie {

class FrozenTable final : public TableSnapshot {
 public:
  FrozenTable(std::shared_ptr<Table> table, TableCore::Frozen frozen)
      : table_(std::move(table)), frozen_(std::move(frozen)) {}
  ~FrozenTable() override {
    table_->release([&](Aftermath& after) {
      table_->mutex_.assert_held();
      table_->core_->thaw(frozen_, after);
    });
  }
  const TableImage& image() const override { return frozen_.image; }
  Result<std::vector<SlotRecord>> next() override {
    MutexLock lock(table_->mutex_);
    return TableCore::next_frozen(frozen_);
  }
  Result<bool> write_sampler(ByteWriter& out) const override {
    return write(frozen_.sampler.get(), out);
  }
  Result<bool> write_remover(ByteWriter& out) const override {
    return write(frozen_.remover.get(), out);
  }

 private:
  Result<bool> write(const SelectorState* state, ByteWriter& out) const {
    if (state == nullptr) return false;
    if (!state->write(out)) return TableCore::not_kept(frozen_);
    return true;
  }

  const std::shared_ptr<Table> table_;
  TableCore::Frozen frozen_;
};

Result<std::vector<std::unique_ptr<TableSnapshot>>> Table::freeze(
    std::span<const std::shared_ptr<Table>> tables, const std::function<void()>& at_that_moment) {
  std::vector<std::unique_ptr<TableSnapshot>> snapshots;
  snapshots.reserve(tables.size());
  REVERIE_RETURN_IF_ERROR(freeze_from(tables, snapshots, at_that_moment));
  return snapshots;
}

// Each lock is held until the last table is frozen. No other code holds two of them.
Status Table::freeze_from(std::span<const std::shared_ptr<Table>> tables,
                          std::vector<std::unique_ptr<TableSnapshot>>& snapshots,
                          const std::function<void()>& at_that_moment) {
  if (tables.empty()) {
    if (at_that_moment) at_that_moment();
    return {};
  }
  const std::shared_ptr<Table>& table = tables.front();
  Status status;
  std::unique_ptr<FrozenTable> snapshot;  // if it is not handed over, it thaws without the lock
  {
    MutexLock lock(table->mutex_);
    if (table->closed_) return table->closed_status();
    auto frozen = table->core_->freeze(table->context_->calendar_offset_ns);
    if (!frozen.ok()) return frozen.status();
    frozen->image.missing_updates = table->missing_updates_;
    snapshot = std::make_unique<FrozenTable>(table, std::move(*frozen));
    const std::size_t place = snapshots.size();
    snapshots.push_back(nullptr);
    status = freeze_from(tables.subspan(1), snapshots, at_that_moment);
    if (status.ok()) {
      snapshots[place] = std::move(snapshot);
    } else {
      snapshots.resize(place);
    }
  }
  return status;
}

Status Table::restore(RestoredTable& table) {
  {
    MutexLock lock(mutex_);
    REVERIE_RETURN_IF_ERROR(
        core_->restore(table, context_->clock.now(), context_->calendar_offset_ns));
    restored_slots_ = table.image.slots.used;
    missing_updates_ = table.image.missing_updates;
    publish_mass();
  }
  if (ChunkHolders* const holders = context_->chunks.holders()) holders->shrink();
  return {};
}

}  // namespace reverie
