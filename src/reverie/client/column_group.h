// ColumnGroup: columns that share chunks, and which of their rows can still be referred to.
//
//     segments   { chunk 6, steps 8..11 }  { chunk 7, steps 12..14, open }
//     rows       .......... referable: the last num_keep_alive_refs ......
//
// Each step in which at least one of the columns is set takes one row. Rows are numbered over the
// group's life; a segment is a range in which consecutive steps are consecutive rows of one chunk,
// so a step is found by searching a few segments. Unset cells of a row are recorded only if there
// are any.
//
// A column has the same index in every chunk: a column that joins is appended, and one that leaves
// is replaced by a column of no bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/client/chunk_packer.h"
#include "reverie/client/chunk_tuner.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/record/trajectory.h"

namespace reverie {

// Where a chunk would begin that is opened now.
struct ChunkPlace {
  EpisodeId episode = 0;
  std::uint32_t first_step = 0;
};

// Not thread-safe.
class ColumnGroup {
 public:
  static constexpr std::size_t kColumnsMax = 65'535;  // an item names a chunk's column with 16 bits

  ColumnGroup(ChunkOptions options, Allocator& allocator, std::uint64_t seed);

  const ChunkOptions& options() const { return options_; }
  bool is_full() const { return members_.size() == kColumnsMax; }

  // Returns the column's index. The next row, or the open one, is the first that has it.
  std::uint16_t add_column(const TensorSpec& spec);
  // Removes the newest column, which must have no cell yet.
  void take_back_column();
  // The column is never set again, and its cells are unset from now on.
  void remove_column(std::uint16_t index);
  std::size_t live_columns() const { return live_columns_; }

  // --- Writing a step: reserve, then set each cell, then finish. Makes room for a row, or for more
  // cells of the open one, with `var_bytes` for cells of varying size. Opens a chunk if necessary,
  // and moves an open row there. Does not change what is stored.
  Status reserve(const ChunkPlace& place, std::size_t var_bytes) {
    if (chunk_ && schema_ && !open_row_is_published_ &&
        (var_bytes == 0 || chunk_->has_var_room(var_bytes))) {
      return {};
    }
    return open_chunk(place, var_bytes);
  }
  // Requires a reservation, and that the cell is not set in this step.
  void set_cell(std::uint16_t index, StepIndex step, std::span<const std::byte> bytes) {
    if (!row_is_open_) begin_row(step);
    Member& member = members_[index];
    member.last_row = row_count_;
    ++open_cells_;
    if (member.is_variable) open_var_bytes_ += bytes.size();
    chunk_->set_row(index, chunk_rows_, bytes);
  }
  // Ends the step, if this group has a row for it.
  void finish_step() {
    if (row_is_open_) finish_row();
  }

  // The next row begins a new chunk; requires that no row is open.
  void seal();
  void end_episode();
  // All cells expire. Requires that no row is open.
  void expire_all();
  // Whether rows were written since the last note_flush().
  bool has_unflushed_rows() const { return row_is_open_ || row_count_ != flushed_rows_; }
  void note_flush() { flushed_rows_ = row_count_; }

  // --- Looking back.
  enum class Lookup { kFound, kExpired, kUnset };
  struct Rows {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;
  };
  // Finds the rows of these steps. Appends their pieces, unless null; rows may extend the last
  // piece if its index is >= `first_piece`. If not found, says what is wrong with `*bad_step`.
  Lookup find(StepRange steps, Rows& rows, std::vector<Piece>* pieces, std::size_t first_piece,
              StepIndex* bad_step) const;
  // Whether the column's cells are set in all of `rows`, which find() gave. If not, sets `bad_row`.
  bool are_set(std::uint16_t index, const Rows& rows, std::uint64_t* bad_row) const {
    const Member& member = members_[index];
    const bool is_simply_set = rows.begin >= member.first_row &&
                               rows.begin + rows.length <= row_count_ && member.unset.empty();
    return is_simply_set || are_set_by_search(member, rows, bad_row);
  }
  // An item now refers to these rows. If the open row is one of them, it is published as it is,
  // since the item may leave the process: its further cells are set in a separate chunk.
  void use_rows(const Rows& rows) {
    if (row_is_open_ && rows.begin + rows.length > row_count_) publish_open_row();
    if (!options_.chunk_length) tuner_.use_rows(rows.begin, rows.begin + rows.length);
  }

 private:
  static constexpr std::uint64_t kNoRow = std::numeric_limits<std::uint64_t>::max();

  // Rows [begin, end) in which a column's cell was left unset.
  struct RowRun {
    std::uint64_t begin;
    std::uint64_t end;
  };
  struct Member {
    std::uint64_t first_row = 0;      // earlier chunks do not have the column
    std::uint64_t last_row = kNoRow;  // in which the cell was last set
    bool is_variable = false;
    bool is_live = true;
    std::vector<RowRun> unset;  // in order; those of expired rows are removed in batches
  };
  struct Segment {
    Ref<Chunk> chunk;
    StepIndex step = 0;        // of the first row
    std::uint64_t row = 0;     // its number
    std::uint32_t offset = 0;  // its index in the chunk
    std::uint32_t length = 0;
  };

  bool are_set_by_search(const Member& member, const Rows& rows, std::uint64_t* bad_row) const;
  Status open_chunk(const ChunkPlace& place, std::size_t var_bytes);
  std::uint32_t next_capacity(bool is_packed) const;
  // The current chunk gets no more rows.
  void seal_chunk() {
    if (chunk_) pack(*std::exchange(chunk_, {}));
  }
  void pack(Chunk& sealed);
  void publish_open_row();
  void move_open_row(Ref<Chunk> to);
  void begin_row(StepIndex step);
  void finish_row();
  void note_unset_cells();
  void zero_unset_cells(Chunk& chunk, std::uint32_t chunk_row);
  void drop_expired();
  const Segment* find_segment(StepIndex step) const;
  std::uint64_t oldest_row() const {
    const std::uint64_t kept = options_.num_keep_alive_refs;
    return std::max(expired_rows_, row_count_ > kept ? row_count_ - kept : 0);
  }

  ChunkOptions options_;
  Allocator& allocator_;
  Random random_;
  ChunkTuner tuner_;
  ChunkPacker packer_;

  std::vector<TensorSpec> specs_;
  std::vector<Member> members_;
  std::size_t live_columns_ = 0;
  Ref<const ChunkSchema> schema_;  // null after a column was added or removed

  Ref<Chunk> chunk_;              // open, with room for the open row or one more; else null
  std::uint32_t chunk_rows_ = 0;  // complete ones in it
  bool row_is_open_ = false;
  bool open_row_is_published_ = false;  // then it is not written again in chunk_
  std::size_t open_cells_ = 0;          // set in the open row
  std::size_t open_var_bytes_ = 0;
  double mean_var_bytes_ = 0;  // per row; later rows weigh more

  std::deque<Segment> segments_;
  std::uint64_t row_count_ = 0;      // complete ones
  std::uint64_t expired_rows_ = 0;   // before expire_all()
  std::uint64_t episode_begin_ = 0;  // row
  std::uint64_t flushed_rows_ = 0;
};

}  // namespace reverie
