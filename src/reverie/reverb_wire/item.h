// PrioritizedItem: an item in Reverb's protocol.
//
//     flat_trajectory { column { slice { chunk_key, offset, length, index } ... squeeze } ... }
//
// An item refers to its chunks by key and to its columns by index; names and nesting come from the
// table's signature, if it has one. Columns over the same rows of the same chunks become one run of
// pieces, so an item of Reverb's older writer costs no more than one of ours.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/item.h"
#include "reverie/record/trajectory.h"
#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// FlatTrajectory.ChunkSlice. Numbers are unchecked.
struct Slice {
  ChunkKey chunk_key = 0;
  std::int32_t offset = 0;
  std::int32_t length = 0;
  std::int32_t index = 0;

  friend bool operator==(const Slice&, const Slice&) = default;
};

// Views the message that it was read from.
struct WireItem {
  struct Column {
    std::uint32_t slice_begin = 0;
    std::uint32_t slice_end = 0;
    bool squeeze = false;

    friend bool operator==(const Column&, const Column&) = default;
  };

  ItemKey key = 0;
  std::string_view table;
  double priority = 0;
  std::int32_t times_sampled = 0;
  std::int64_t inserted_at_ns = 0;  // since 1970
  std::vector<Slice> slices;
  std::vector<Column> columns;

  // Empties the item; keeps its memory.
  void clear();
};

// INVALID_ARGUMENT for malformed bytes, or more than 65535 slices or columns.
Result<WireItem> read_item(Bytes message);
// The same, into an empty item.
Status read_item(Bytes message, WireItem& item);
std::string write_item(const WireItem& item);
// The same in two steps, for a message with many items: first their sizes, which the heads give.
struct ItemBytes {
  std::size_t all = 0;
  std::size_t trajectory = 0;
};
ItemBytes item_bytes(const WireItem& item);
void append_item(std::string& out, const WireItem& item, const ItemBytes& bytes);

// The names of the columns of a table's items: from its signature, else "0", "1", ...
struct ColumnNames {
  std::vector<std::string> names;
  std::string structure;

  static ColumnNames of(const std::optional<Signature>& signature);
  // Numbers as names, and a plain list as structure.
  static ColumnNames numbered(std::size_t column_count);
};

// Turns items into trajectories. Caches the latest layouts by the address of their ColumnNames,
// which must outlive it. Not thread-safe.
class TrajectoryReader {
 public:
  // Null for a chunk that does not exist.
  using FindChunk = std::function<const Chunk*(ChunkKey)>;

  // INVALID_ARGUMENT, with the value and the bound, for a slice outside its chunk, a column that
  // its chunk does not have, slices of a column that differ in index or type, or a squeezed column
  // of other than one row. INTERNAL with Reverb's text for a chunk that does not exist.
  Result<Trajectory> read(const WireItem& item, const ColumnNames& names,
                          const FindChunk& find_chunk);

 private:
  static constexpr std::size_t kKept = 32;
  // Common pieces are searched in items of at most this many: each is compared with each.
  static constexpr std::size_t kSharedMax = 256;

  struct Place {
    std::uint16_t chunk_column = 0;
    std::uint16_t piece_begin = 0;
    std::uint16_t piece_end = 0;
    bool squeezed = false;
  };
  struct Kept {
    Ref<const Layout> layout;
    const ColumnNames* names = nullptr;
  };

  Status place_column(const WireItem& item, std::size_t c, const FindChunk& find_chunk);
  // Removes the pieces from `begin` on, of the current column, if they equal earlier pieces of
  // other columns. Returns where the column's pieces are then.
  std::size_t share_pieces(std::size_t begin);
  const Ref<const Layout>& find_layout(const ColumnNames& names);
  bool is_like(const Layout& layout) const;
  const TensorSpec& spec_of(const Place& place) const {
    return pieces_[place.piece_begin].chunk->schema().column(place.chunk_column);
  }

  std::vector<Piece> pieces_;
  std::vector<Place> places_;
  std::vector<Kept> layouts_;
  std::size_t next_ = 0;
};

}  // namespace reverie::wire
