// Tested in step_buffer_test.cc and trajectory_writer_test.cc.
#include "reverie/client/column_group.h"

#include <algorithm>
#include <array>

namespace reverie {
namespace {

constexpr double kNewRowWeight = 1.0 / 16;
// More than the mean, so that a chunk rarely has no room for strings before it has no room for
// rows.
constexpr double kVarBytesSlack = 1.25;
constexpr std::size_t kVarBytesGuessMax = std::size_t{1} << 30;

}  // namespace

ColumnGroup::ColumnGroup(ChunkOptions options, Allocator& allocator, std::uint64_t seed)
    : options_(options), allocator_(allocator), random_(seed), packer_(options.codec) {}

std::uint16_t ColumnGroup::add_column(const TensorSpec& spec) {
  REVERIE_CHECK(!is_full());
  specs_.push_back(spec);
  Member& member = members_.emplace_back();
  member.first_row = row_count_;
  member.is_variable = has_variable_size(spec.dtype);
  ++live_columns_;
  schema_ = {};
  if (!row_is_open_) seal_chunk();
  return static_cast<std::uint16_t>(members_.size() - 1);
}

void ColumnGroup::take_back_column() {
  specs_.pop_back();
  members_.pop_back();
  --live_columns_;
  schema_ = {};
}

void ColumnGroup::remove_column(std::uint16_t index) {
  seal();
  TensorSpec& spec = specs_[index];
  spec = {.name = std::move(spec.name), .dtype = DType::kUInt8, .shape = {0}};
  Member& member = members_[index];
  member.first_row = kNoRow;
  member.is_variable = false;
  member.is_live = false;
  member.unset.clear();
  schema_ = {};
  if (--live_columns_ == 0) expire_all();  // nothing else would drop the rows
}

Status ColumnGroup::open_chunk(const ChunkPlace& place, std::size_t var_bytes) {
  if (!schema_) schema_ = make_ref<ChunkSchema>(specs_);
  const bool is_packed = packer_.wants(*schema_);
  const std::uint32_t capacity = next_capacity(is_packed);
  const std::size_t needed = var_bytes + (row_is_open_ ? open_var_bytes_ : 0);
  std::size_t storage = needed;
  if (schema_->has_variable()) {
    const double guess = mean_var_bytes_ * kVarBytesSlack * capacity;
    storage = std::max(
        needed, static_cast<std::size_t>(std::min(guess, static_cast<double>(kVarBytesGuessMax))));
  }
  const ChunkOrigin origin{random_.next(), place.episode, place.first_step};
  REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk,
                           Chunk::open(schema_, origin, capacity, storage, allocator_,
                                       is_packed ? Chunk::Kind::kCompressible : Chunk::Kind::kRaw));
  if (row_is_open_) {
    move_open_row(std::move(chunk));
  } else {
    seal_chunk();
    chunk_ = std::move(chunk);
    chunk_rows_ = 0;
  }
  return {};
}

void ColumnGroup::pack(Chunk& sealed) {
  if (sealed.is_compressible()) {
    packer_.pack(sealed, allocator_);
  } else {
    packer_.note_unpacked();
  }
}

std::uint32_t ColumnGroup::next_capacity(bool is_packed) const {
  if (options_.chunk_length) return *options_.chunk_length;
  const std::uint64_t referable =
      std::min<std::uint64_t>(row_count_ - episode_begin_, options_.num_keep_alive_refs);
  const double step_bytes = static_cast<double>(schema_->step_bytes()) + mean_var_bytes_;
  return is_packed ? tuner_.packed_chunk_length(step_bytes, packer_.packed_row_bytes(), referable)
                   : tuner_.chunk_length(step_bytes, referable);
}

void ColumnGroup::publish_open_row() {
  if (open_row_is_published_) return;
  zero_unset_cells(*chunk_, chunk_rows_);
  chunk_->publish(chunk_rows_ + 1);
  open_row_is_published_ = true;
}

// Items that refer to the open row keep its former chunk; the row stays complete there.
void ColumnGroup::move_open_row(Ref<Chunk> to) {
  open_var_bytes_ = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].last_row != row_count_) continue;
    const auto bytes = chunk_->row_bytes(i, chunk_rows_);
    to->set_row(i, 0, bytes);
    if (members_[i].is_variable) open_var_bytes_ += bytes.size();
  }
  publish_open_row();
  open_row_is_published_ = false;
  Segment& last = segments_.back();
  const Segment moved{to, last.step + last.length - 1, row_count_, 0, 1};
  if (--last.length == 0) segments_.pop_back();
  segments_.push_back(moved);
  const Ref<Chunk> left = std::exchange(chunk_, std::move(to));
  chunk_rows_ = 0;
  pack(*left);
}

void ColumnGroup::begin_row(StepIndex step) {
  row_is_open_ = true;
  open_cells_ = 0;
  open_var_bytes_ = 0;
  if (!segments_.empty()) {
    Segment& last = segments_.back();
    if (last.chunk == chunk_ && last.step + last.length == step) {
      ++last.length;
      return;
    }
  }
  segments_.push_back({chunk_, step, row_count_, chunk_rows_, 1});
}

void ColumnGroup::finish_row() {
  if (open_cells_ < live_columns_ || !schema_) {
    note_unset_cells();
    if (!open_row_is_published_) zero_unset_cells(*chunk_, chunk_rows_);
  }
  open_row_is_published_ = false;
  if (chunk_->schema().has_variable()) {
    const auto bytes = static_cast<double>(open_var_bytes_);
    mean_var_bytes_ =
        mean_var_bytes_ == 0 ? bytes : mean_var_bytes_ + kNewRowWeight * (bytes - mean_var_bytes_);
  }
  row_is_open_ = false;
  ++row_count_;
  chunk_->publish(++chunk_rows_);
  if (chunk_rows_ == chunk_->capacity() || !schema_) seal_chunk();
  drop_expired();
}

void ColumnGroup::note_unset_cells() {
  for (Member& member : members_) {
    if (!member.is_live || member.last_row == row_count_) continue;
    if (!member.unset.empty() && member.unset.back().end == row_count_) {
      ++member.unset.back().end;
    } else {
      member.unset.push_back({row_count_, row_count_ + 1});
    }
  }
}

// An unset cell may be encoded or sent with its chunk, so it must not contain old memory.
void ColumnGroup::zero_unset_cells(Chunk& chunk, std::uint32_t chunk_row) {
  const ChunkSchema& schema = chunk.schema();
  static constexpr std::array<std::byte, 64> kZeros{};
  std::vector<std::byte> zeros;
  for (std::size_t i = 0; i < schema.column_count(); ++i) {
    if (i < members_.size() && members_[i].last_row == row_count_) continue;
    const std::size_t size = schema.is_variable(i) ? 0 : schema.row_bytes(i);
    if (size > std::max(kZeros.size(), zeros.size())) zeros.resize(size);
    const std::byte* const source = size > kZeros.size() ? zeros.data() : kZeros.data();
    chunk.set_row(i, chunk_row, {source, size});
  }
}

void ColumnGroup::drop_expired() {
  const std::uint64_t oldest = oldest_row();
  bool dropped = false;
  while (!segments_.empty() && segments_.front().row + segments_.front().length <= oldest) {
    segments_.pop_front();
    dropped = true;
  }
  if (!dropped) return;
  for (Member& member : members_) {
    auto& unset = member.unset;
    if (unset.empty() || unset.front().end > oldest) continue;
    unset.erase(unset.begin(),
                std::ranges::find_if(unset, [=](const RowRun& run) { return run.end > oldest; }));
  }
}

void ColumnGroup::seal() {
  REVERIE_CHECK(!row_is_open_);
  seal_chunk();
}

void ColumnGroup::end_episode() {
  seal();
  tuner_.end_episode();
  episode_begin_ = row_count_;
  note_flush();
}

void ColumnGroup::expire_all() {
  REVERIE_CHECK(!row_is_open_);
  expired_rows_ = row_count_;
  segments_.clear();
  for (Member& member : members_) member.unset.clear();
}

const ColumnGroup::Segment* ColumnGroup::find_segment(StepIndex step) const {
  if (segments_.empty()) return nullptr;
  const Segment* found = &segments_.back();  // where most references point
  if (step < found->step) {
    const auto after = std::upper_bound(segments_.begin(), segments_.end(), step,
                                        [](StepIndex s, const Segment& g) { return s < g.step; });
    if (after == segments_.begin()) return nullptr;
    found = &*std::prev(after);
  }
  return step - found->step < found->length ? found : nullptr;
}

ColumnGroup::Lookup ColumnGroup::find(StepRange steps, Rows& rows, std::vector<Piece>* pieces,
                                      std::size_t first_piece, StepIndex* bad_step) const {
  StepIndex step = steps.begin;
  std::uint32_t left = steps.length;
  rows.length = steps.length;
  while (left > 0) {
    const Segment* const segment = find_segment(step);
    const std::uint64_t row = segment ? segment->row + (step - segment->step) : 0;
    if (!segment || row < oldest_row()) {
      *bad_step = step;
      if (segment) return Lookup::kExpired;
      const std::uint64_t dropped = segments_.empty() ? row_count_ : segments_.front().row;
      const bool in_gap = !segments_.empty() && step > segments_.front().step;
      return dropped == 0 || in_gap ? Lookup::kUnset : Lookup::kExpired;
    }
    if (step == steps.begin) rows.begin = row;
    const auto skip = static_cast<std::uint32_t>(step - segment->step);
    const std::uint32_t length = std::min(segment->length - skip, left);
    if (pieces) {
      const Chunk* const chunk = segment->chunk.get();
      const std::uint32_t offset = segment->offset + skip;
      if (pieces->size() > first_piece && pieces->back().chunk == chunk &&
          pieces->back().offset + pieces->back().length == offset) {
        pieces->back().length += length;
      } else {
        pieces->push_back({chunk, offset, length});
      }
    }
    step += length;
    left -= length;
  }
  return Lookup::kFound;
}

bool ColumnGroup::are_set_by_search(const Member& member, const Rows& rows,
                                    std::uint64_t* bad_row) const {
  const std::uint64_t end = rows.begin + rows.length;
  if (rows.length == 0) return true;
  if (rows.begin < member.first_row) {
    *bad_row = rows.begin;
    return false;
  }
  if (row_is_open_ && end > row_count_ && member.last_row != row_count_) {
    *bad_row = row_count_;
    return false;
  }
  if (member.unset.empty()) return true;
  const auto run = std::upper_bound(member.unset.begin(), member.unset.end(), rows.begin,
                                    [](std::uint64_t row, const RowRun& r) { return row < r.end; });
  if (run == member.unset.end() || run->begin >= end) return true;
  *bad_row = std::max(run->begin, rows.begin);
  return false;
}

}  // namespace reverie
