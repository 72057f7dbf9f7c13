// Tested in trajectory_writer_test.cc.
#include "reverie/client/layout_cache.h"

namespace reverie {
namespace {

bool lies_at(const Layout& layout, std::span<const ColumnPlace> places) {
  const std::span<const LayoutColumn> columns = layout.columns();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (columns[i].chunk_column != places[i].chunk_column ||
        columns[i].piece_begin != places[i].piece_begin ||
        columns[i].piece_end != places[i].piece_end) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool LayoutCache::Kind::matches(const NewItem& item) const {
  if (columns.size() != item.columns.size()) return false;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].column != item.columns[i].column ||
        columns[i].squeezed != item.columns[i].squeezed ||
        columns[i].stepwise != item.columns[i].stepwise ||
        columns[i].name != item.columns[i].name) {
      return false;
    }
  }
  return structure == item.structure;
}

const Ref<const Layout>* LayoutCache::Kind::find(std::span<const ColumnPlace> places) {
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const std::size_t candidate = last + i < cuts.size() ? last + i : last + i - cuts.size();
    if (lies_at(*cuts[candidate], places)) {
      last = candidate;
      return &cuts[candidate];
    }
  }
  return nullptr;
}

const Ref<const Layout>& LayoutCache::Kind::add(Ref<const Layout> layout) {
  if (cuts.size() < kCutsMax) {
    last = cuts.size();
    cuts.push_back(std::move(layout));
  } else {
    last = next;
    cuts[next] = std::move(layout);
    next = (next + 1) % kCutsMax;
  }
  return cuts[last];
}

// Kinds often alternate (one item per step for each of two tables), so the search starts after the
// last one found.
LayoutCache::Kind& LayoutCache::find_kind(const NewItem& item) {
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    last_ = last_ + 1 < kinds_.size() ? last_ + 1 : 0;
    if (kinds_[last_]->matches(item)) return *kinds_[last_];
  }
  auto kind = std::make_unique<Kind>();
  kind->structure = item.structure;
  for (const TrajectoryColumn& column : item.columns) {
    kind->columns.push_back(
        {std::string(column.name), column.column, column.squeezed, column.stepwise});
  }
  if (kinds_.size() < kKindsMax) {
    last_ = kinds_.size();
    kinds_.push_back(std::move(kind));
  } else {
    last_ = next_;
    kinds_[next_] = std::move(kind);
    next_ = (next_ + 1) % kKindsMax;
  }
  return *kinds_[last_];
}

}  // namespace reverie
