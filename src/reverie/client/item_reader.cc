#include "reverie/client/item_reader.h"

#include <utility>

#include "reverie/service/table_describer.h"

namespace reverie {
namespace {

// The bounds of one request, and of the memory that its items take.
constexpr std::size_t kItemsAhead = 64;
constexpr std::size_t kBytesAhead = std::size_t{1} << 20;
// For fewer remaining items, asking whether they may be drawn in advance costs more than it saves.
constexpr std::int64_t kWorthAsking = 4;

SampleFeedOptions feed_options(const ItemReaderOptions& options) {
  SampleFeedOptions feed;
  feed.table = options.table;
  feed.timeout = options.timeout;
  feed.on_corrupt = options.on_corrupt;
  feed.files = options.files;
  feed.clock = options.clock;
  feed.bytes_max = kBytesAhead;
  return feed;
}

}  // namespace

std::optional<bool> TablesDrawnAhead::find(const std::string& table) const {
  MutexLock lock(mutex_);
  const auto found = known_.find(table);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void TablesDrawnAhead::learn(std::span<const TableInfo> infos) {
  MutexLock lock(mutex_);
  for (const TableInfo& info : infos) {
    known_[info.options.name] = info.options.max_times_sampled <= 0;
  }
}

ItemReader::ItemReader(std::shared_ptr<ReplayService> service, const ItemReaderOptions& options,
                       std::shared_ptr<TablesDrawnAhead> known)
    : service_(std::move(service)),
      table_(options.table),
      is_local_(options.is_local),
      known_(std::move(known)),
      left_(options.count),
      feed_(service_, feed_options(options), std::make_shared<SampleFeed::Budget>(options.count)) {}

bool ItemReader::may_draw_ahead(const WaitOptions& wait) {
  if (const std::optional<bool> known = known_->find(table_)) return *known;
  const auto infos = describe_and_wait(*service_, wait);
  if (infos.ok()) known_->learn(*infos);
  return known_->find(table_).value_or(false);
}

Status ItemReader::draw(const WaitOptions& wait) {
  fed_ = {};
  group_ = 0;
  row_ = 0;
  // The first item is requested alone, and shows that a server answers requests for the others.
  if (has_begun_ && !has_asked_ && left_ >= kWorthAsking && !is_local_) {
    has_asked_ = true;
    if (may_draw_ahead(wait)) feed_.set_request_max(kItemsAhead);
  }
  REVERIE_ASSIGN_OR_RETURN(fed_, feed_(wait));
  has_begun_ = true;
  return {};
}

void ItemReader::take() {
  --left_;
  if (++row_ < fed_.groups[group_].count) return;
  row_ = 0;
  ++group_;
}

}  // namespace reverie
