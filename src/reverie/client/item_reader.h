// ItemReader: reads a number of items of a table, one by one.
//
//     ItemReader reader(service, {.table = "replay", .count = 100}, known);
//     while (reader.left() > 0) {
//       if (reader.needs_draw()) REVERIE_RETURN_IF_ERROR(reader.draw({}));
//       use(reader.peek());
//       reader.take();
//     }
//
// The first items are drawn singly, then several with one request, unless samples remove items from
// the table: items drawn ahead would be lost with the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "reverie/base/mutex.h"
#include "reverie/client/sample_feed.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Remembers which tables' samples may be drawn ahead. Shared by the readers of a client.
// Thread-safe.
class TablesDrawnAhead {
 public:
  std::optional<bool> find(const std::string& table) const;
  void learn(std::span<const TableInfo> infos);

 private:
  mutable Mutex mutex_;
  std::map<std::string, bool> known_ REVERIE_GUARDED_BY(mutex_);
};

struct ItemReaderOptions {
  std::string table;
  std::int64_t count = 1;                // items, at least 1
  std::optional<Duration> timeout = {};  // to wait for an item; none: no limit
  // The service is in this process: requests are cheap, and nothing is drawn ahead.
  bool is_local = false;
  OnCorrupt on_corrupt = OnCorrupt::kRemove;
  std::shared_ptr<ExternalFiles> files = nullptr;  // as BatchOptions::files
  Clock* clock = nullptr;                          // as SampleFeedOptions::clock
};

// For one thread.
class ItemReader {
 public:
  // An item: row `row` of the group's arrays, and item `index` of samples(). Valid until draw().
  struct Place {
    SampleGroup& group;
    std::size_t row;
    std::size_t index;
  };

  ItemReader(std::shared_ptr<ReplayService> service, const ItemReaderOptions& options,
             std::shared_ptr<TablesDrawnAhead> known);
  ItemReader(const ItemReader&) = delete;
  ItemReader& operator=(const ItemReader&) = delete;

  // The number of items still to read.
  std::int64_t left() const { return left_; }
  // Whether no item is there, so that draw() must be called before take().
  bool needs_draw() const { return group_ == fed_.groups.size(); }
  // Draws the next items, at least one. Errors as in SampleFeed; it may be called again after one.
  // Requires left() > 0.
  Status draw(const WaitOptions& wait);
  // The next item, without taking it. Requires !needs_draw().
  Place peek() { return {fed_.groups[group_], row_, fed_.groups[group_].begin + row_}; }
  // Advances to the next item.
  void take();
  const SampleBatch& samples() const { return fed_.samples; }

 private:
  bool may_draw_ahead(const WaitOptions& wait);

  const std::shared_ptr<ReplayService> service_;
  const std::string table_;
  const bool is_local_;
  const std::shared_ptr<TablesDrawnAhead> known_;
  std::int64_t left_;
  SampleFeed feed_;
  bool has_begun_ = false;
  bool has_asked_ = false;
  FedSamples fed_;  // the latest draw, and its next item
  std::size_t group_ = 0;
  std::size_t row_ = 0;
};

}  // namespace reverie
