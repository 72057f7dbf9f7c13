// LayoutCache: one Layout for all similar items of a writer.
//
// A program creates a few kinds of items over and over. Two items of a kind differ only in how many
// pieces their columns have, since a chunk may end within an item; so a kind keeps one Layout for
// each such cut. Names are compared, never hashed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reverie/client/trajectory_writer.h"
#include "reverie/record/trajectory.h"

namespace reverie {

// Where an item's column is: which column of its chunks, which of the item's pieces.
struct ColumnPlace {
  std::uint16_t chunk_column = 0;
  std::uint16_t piece_begin = 0;
  std::uint16_t piece_end = 0;
};

// Not thread-safe.
class LayoutCache {
 public:
  // The layout of an item with columns at `places`, made if none is cached. `spec_of(c)` gives the
  // type and shape of writer column c. Requires a place for each column.
  template <typename SpecOf>
  const Ref<const Layout>& find(const NewItem& item, std::span<const ColumnPlace> places,
                                SpecOf spec_of) {
    Kind& kind = find_kind(item);
    if (const Ref<const Layout>* found = kind.find(places)) return *found;
    std::vector<LayoutColumn> columns;
    columns.reserve(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      LayoutColumn& column = columns.emplace_back();
      column.spec = spec_of(item.columns[i].column);
      column.spec.name = item.columns[i].name;
      column.chunk_column = places[i].chunk_column;
      column.piece_begin = places[i].piece_begin;
      column.piece_end = places[i].piece_end;
      column.squeezed = item.columns[i].squeezed;
      column.stepwise = item.columns[i].stepwise;
    }
    return kind.add(make_ref<Layout>(std::move(columns), std::string(item.structure)));
  }

 private:
  // Beyond this the oldest is replaced: it must not grow if all items differ.
  static constexpr std::size_t kKindsMax = 16;
  static constexpr std::size_t kCutsMax = 64;

  struct KindColumn {
    std::string name;
    ColumnId column;
    bool squeezed;
    bool stepwise;
  };
  struct Kind {
    std::string structure;
    std::vector<KindColumn> columns;
    std::vector<Ref<const Layout>> cuts;
    std::size_t last = 0;  // last one found or added
    std::size_t next = 0;  // replaced next, once there are kCutsMax

    bool matches(const NewItem& item) const;
    const Ref<const Layout>* find(std::span<const ColumnPlace> places);
    const Ref<const Layout>& add(Ref<const Layout> layout);
  };

  Kind& find_kind(const NewItem& item);

  std::vector<std::unique_ptr<Kind>> kinds_;
  std::size_t last_ = 0;
  std::size_t next_ = 0;
};

}  // namespace reverie
