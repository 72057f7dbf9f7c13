// Trajectory: which rows of which chunks an item is made of.
//
//     layout    obs -> pieces [0, 2)   action -> pieces [0, 2)   reward -> pieces [0, 2)
//     pieces    { chunk 7, rows 6..9 } { chunk 8, rows 0..1 }
//
// The usual item, all columns over the same steps, is one run of pieces, not one slice per column.
// What the items of a writer have in common (names, types, which column reads which pieces, how to
// rebuild the nest) is in a Layout that they share. So an item costs 24 bytes here, and 16 more per
// piece once it spans more than one chunk.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/ref.h"
#include "reverie/record/chunk.h"

namespace reverie {

// `length` rows of a chunk from `offset` on.
struct Piece {
  const Chunk* chunk = nullptr;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
};

// One column of an item.
struct LayoutColumn {
  TensorSpec spec;  // of one row; its name is the path in the item's nest
  std::uint16_t chunk_column = 0;
  std::uint16_t piece_begin = 0;
  std::uint16_t piece_end = 0;
  bool squeezed = false;  // exactly one row, returned without its leading axis
  // Made from whole steps (Client.insert, Writer), or by a client whose protocol does not tell: the
  // table's signature may describe one step instead.
  bool stepwise = false;

  friend bool operator==(const LayoutColumn&, const LayoutColumn&) = default;
};

// Immutable, shared.
class Layout final : public RefCounted<Layout> {
 public:
  Layout(std::vector<LayoutColumn> columns, std::string structure, std::uint64_t tag = 0);

  std::span<const LayoutColumn> columns() const { return columns_; }
  // Opaque here: the border that flattened the nest rebuilds it from this.
  const std::string& structure() const { return structure_; }
  std::uint32_t piece_count() const { return piece_count_; }
  // Opaque here too: marks kinds of items, for readers that know the writer.
  std::uint64_t tag() const { return tag_; }

 private:
  std::vector<LayoutColumn> columns_;
  std::string structure_;
  std::uint64_t tag_;
  std::uint32_t piece_count_;
};

// A trajectory that holds no share in its chunks: valid while something else pins them.
struct TrajectoryView {
  const Layout* layout = nullptr;
  union {
    Piece one;
    const Piece* many;
  };

  TrajectoryView() : many(nullptr) {}
  std::span<const Piece> pieces() const {
    return layout->piece_count() == 1 ? std::span<const Piece>(&one, 1)
                                      : std::span<const Piece>(many, layout->piece_count());
  }
  // The number of rows of one column.
  std::uint32_t length(const LayoutColumn& column) const {
    std::uint32_t rows = 0;
    for (const Piece& piece :
         pieces().subspan(column.piece_begin, column.piece_end - column.piece_begin)) {
      rows += piece.length;
    }
    return rows;
  }
};

// Holds a share of its layout and of each piece's chunk. Move-only, 24 bytes.
class Trajectory {
 public:
  Trajectory() = default;
  // Takes a share of each piece's chunk. Requires layout->piece_count() pieces.
  Trajectory(Ref<const Layout> layout, std::span<const Piece> pieces);
  Trajectory(Trajectory&& other) noexcept : view_(std::exchange(other.view_, TrajectoryView())) {}
  Trajectory& operator=(Trajectory&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~Trajectory() { clear(); }

  // A second trajectory over the same rows.
  Trajectory copy() const;

  // A trajectory without a share in anything, for an owner that keeps the layout and the chunks
  // alive otherwise. Requires that forget() is called before it is destroyed.
  static Trajectory borrowed(const TrajectoryView& view) {
    Trajectory trajectory;
    trajectory.view_ = view;
    return trajectory;
  }
  void forget() { view_ = TrajectoryView(); }

  bool empty() const { return view_.layout == nullptr; }
  const Layout& layout() const { return *view_.layout; }
  std::span<const Piece> pieces() const { return view_.pieces(); }
  const TrajectoryView& view() const { return view_; }

 private:
  void clear();

  TrajectoryView view_;
};

// Checks that every piece is inside its chunk and fits its column: required of records from
// outside. Names the column, the value and the bound.
Status check_trajectory(const TrajectoryView& trajectory);

// Checks columns, types and shapes against a table's signature; names the first that differs. The
// shape of a column is [T, ...], or [...] if it is squeezed; a stepwise column may be either. Bytes
// and str count as one type here.
Status check_signature(const TrajectoryView& trajectory, const Signature& signature);

}  // namespace reverie
