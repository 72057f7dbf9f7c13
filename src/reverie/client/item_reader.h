// ItemReader: a number of items of a table, one by one, for a reader who asks for the next.
//
//     ItemReader reader(service, {.table = "replay", .count = 100}, known);
//     while (reader.left() > 0) {
//       if (reader.needs_draw()) REVERIE_RETURN_IF_ERROR(reader.draw({}));
//       use(reader.peek());
//       reader.take();
//     }
//
// The first items come alone; then several are drawn with one request, unless items leave the table
// with their samples: those that were drawn ahead would be gone with the reader.
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

// Whether samples of a table may be drawn ahead of their reader, as far as that was asked. Shared
// by the readers of a client. Thread-safe.
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
  std::optional<Duration> timeout = {};  // to wait for an item; none: without limit
  // The service is in this process: a request costs little, and nothing is drawn ahead.
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

  // Items that are still to come.
  std::int64_t left() const { return left_; }
  // No item is there: draw() comes before take().
  bool needs_draw() const { return group_ == fed_.groups.size(); }
  // Draws the next items, at least one. Errors as SampleFeed's; may be called again then. Requires
  // left() > 0.
  Status draw(const WaitOptions& wait);
  // The next item, which is still to be taken. Requires !needs_draw().
  Place peek() { return {fed_.groups[group_], row_, fed_.groups[group_].begin + row_}; }
  // Goes on to the next one.
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
  FedSamples fed_;  // what was drawn at once, and the next item of it
  std::size_t group_ = 0;
  std::size_t row_ = 0;
};

}  // namespace reverie
