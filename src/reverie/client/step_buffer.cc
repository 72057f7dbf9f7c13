#include "reverie/client/step_buffer.h"

#include <algorithm>

namespace reverie {
namespace {

Status check_options(std::string_view what, const ChunkOptions& options) {
  if (options.num_keep_alive_refs == 0) {
    return invalid_argument("num_keep_alive_refs of {} is 0; it must be at least 1", what);
  }
  if (options.chunk_length == 0u) {
    return invalid_argument("chunk_length of {} is 0; it must be at least 1, or absent to be tuned",
                            what);
  }
  return {};
}

std::string value_text(const TensorView& value) {
  return std::string(dtype_name(value.dtype)) + ' ' + shape_text(value.shape);
}

}  // namespace

Result<std::unique_ptr<StepBuffer>> StepBuffer::make(ChunkOptions options, Allocator& allocator,
                                                     std::uint64_t seed) {
  REVERIE_RETURN_IF_ERROR(check_options("the writer", options));
  return std::unique_ptr<StepBuffer>(new StepBuffer(options, allocator, seed));
}

StepBuffer::StepBuffer(ChunkOptions options, Allocator& allocator, std::uint64_t seed)
    : default_options_(options), allocator_(allocator), random_(seed), episode_(random_.next()) {}

ColumnId StepBuffer::column(std::string_view name) {
  if (const auto known = ids_.find(name); known != ids_.end()) return known->second;
  const auto id = static_cast<ColumnId>(columns_.size());
  columns_.push_back(std::make_unique<Column>());
  columns_.back()->name = name;
  ids_.emplace(name, id);
  return id;
}

const ChunkOptions& StepBuffer::options_of(std::string_view name) const {
  const auto configured = configured_.find(name);
  return configured == configured_.end() ? default_options_ : configured->second;
}

Status StepBuffer::configure(std::string_view name, ChunkOptions options) {
  REVERIE_RETURN_IF_ERROR(check_options(format("column '{}'", name), options));
  const auto known = ids_.find(name);
  Column* const column = known == ids_.end() ? nullptr : columns_[known->second].get();
  if (column && column->group && !(column->group->options() == options)) {
    if (step_is_open_ || column->group->has_unflushed_rows()) {
      return failed_precondition(
          "column '{}' has steps that were not flushed; call flush before configure", name);
    }
    column->group->remove_column(column->index);
    configured_.insert_or_assign(std::string(name), options);
    join_group(*column);
    return {};
  }
  configured_.insert_or_assign(std::string(name), options);
  return {};
}

// Adds the column to the group of columns with the same options.
void StepBuffer::join_group(Column& column) {
  const ChunkOptions& options = options_of(column.name);
  const auto found = std::ranges::find_if(
      groups_, [&](const auto& group) { return group->options() == options && !group->is_full(); });
  column.group_index = static_cast<std::uint32_t>(found - groups_.begin());
  if (found == groups_.end()) {
    groups_.push_back(std::make_unique<ColumnGroup>(options, allocator_, random_.next()));
  }
  column.group = groups_[column.group_index].get();
  column.index = column.group->add_column(column.spec);
}

Status StepBuffer::append(std::span<const ColumnValue> values, bool partial_step) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (Status status = accept(values[i]); !status.ok()) [[unlikely]] {
      take_back(values.first(i));
      return status;
    }
  }
  if (Status status = make_room(values); !status.ok()) [[unlikely]] {
    take_back(values);
    return status;
  }
  for (const ColumnValue& value : values) {
    const Column& column = *columns_[value.column];
    column.group->set_cell(column.index, step_, value.value.bytes);
  }
  step_is_open_ = true;
  if (!partial_step) finish_step();
  return {};
}

Status StepBuffer::accept(const ColumnValue& value) {
  if (value.column >= columns_.size()) [[unlikely]] {
    return invalid_argument("there is no column {}; the writer has {} columns", value.column,
                            columns_.size());
  }
  Column& column = *columns_[value.column];
  const TensorView& view = value.value;
  if (column.given_in == step_) [[unlikely]] {
    return invalid_argument(
        "column '{}' was already given in step {}; a step takes one value of "
        "each column",
        column.name, step_);
  }
  if (!column.group) [[unlikely]] {
    REVERIE_RETURN_IF_ERROR(accept_first(value.column, view));
  } else if (view.dtype != column.spec.dtype || !std::ranges::equal(view.shape, column.spec.shape))
      [[unlikely]] {
    return refuse(column, view);
  }
  if (has_variable_size(view.dtype)) {
    if (!are_sized_elements(view.bytes, column.element_count)) return refuse(column, view);
    has_varying_ = true;
  } else if (view.bytes.size() != column.row_bytes) [[unlikely]] {
    return refuse(column, view);
  }
  column.given_in = step_;
  return {};
}

// A column's first value gives it its type. It joins a group once the whole step is accepted.
Status StepBuffer::accept_first(ColumnId id, const TensorView& value) {
  Column& column = *columns_[id];
  if (value.dtype < DType::kBool || value.dtype > DType::kString) {
    return invalid_argument("column '{}' has no known dtype ({})", column.name,
                            static_cast<int>(value.dtype));
  }
  const std::optional<std::size_t> count = checked_element_count(value.shape);
  if (!count) {
    return invalid_argument(
        "column '{}' has the shape {}; every extent must be known and the "
        "whole fit in memory",
        column.name, shape_text(value.shape));
  }
  column.spec = {column.name, value.dtype, Shape(value.shape.begin(), value.shape.end())};
  column.element_count = *count;
  column.row_bytes = *count * dtype_size_bytes(value.dtype);
  new_columns_.push_back(id);
  return {};
}

Status StepBuffer::refuse(const Column& column, const TensorView& value) const {
  if (value.dtype != column.spec.dtype) {
    return invalid_argument(
        "column '{}' is {} since its first value, but step {} has {}; cast it, "
        "or write it as a column of another name",
        column.name, dtype_name(column.spec.dtype), step_, dtype_name(value.dtype));
  }
  if (!std::ranges::equal(value.shape, column.spec.shape)) {
    return invalid_argument(
        "column '{}' is {} {} since its first value, but step {} has {}; all "
        "steps must have one shape",
        column.name, dtype_name(column.spec.dtype), shape_text(column.spec.shape), step_,
        value_text(value));
  }
  if (has_variable_size(value.dtype)) {
    return invalid_argument(
        "the {} bytes given for column '{}' are not {} elements that each "
        "follow their 32-bit length",
        value.bytes.size(), column.name, column.element_count);
  }
  return invalid_argument("column '{}' is {}, which takes {} bytes, but {} were given", column.name,
                          value_text(value), column.row_bytes, value.bytes.size());
}

Status StepBuffer::make_room(std::span<const ColumnValue> values) {
  for (const ColumnId id : new_columns_) join_group(*columns_[id]);
  const ChunkPlace place{episode_, static_cast<std::uint32_t>(step_ - episode_begin_)};
  if (!has_varying_) {
    for (const ColumnValue& value : values) {
      REVERIE_RETURN_IF_ERROR(columns_[value.column]->group->reserve(place, 0));
    }
  } else {
    var_bytes_.assign(groups_.size(), 0);
    for (const ColumnValue& value : values) {
      if (!has_variable_size(value.value.dtype)) continue;
      var_bytes_[columns_[value.column]->group_index] += value.value.bytes.size();
    }
    for (const ColumnValue& value : values) {
      const std::uint32_t group = columns_[value.column]->group_index;
      REVERIE_RETURN_IF_ERROR(groups_[group]->reserve(place, var_bytes_[group]));
    }
  }
  new_columns_.clear();
  has_varying_ = false;
  return {};
}

void StepBuffer::take_back(std::span<const ColumnValue> accepted) {
  for (const ColumnValue& value : accepted) columns_[value.column]->given_in = kNoStep;
  for (auto id = new_columns_.rbegin(); id != new_columns_.rend(); ++id) {
    if (ColumnGroup* const group = std::exchange(columns_[*id]->group, nullptr)) {
      group->take_back_column();
    }
  }
  new_columns_.clear();
  has_varying_ = false;
}

void StepBuffer::finish_step() {
  for (const auto& group : groups_) group->finish_step();
  ++step_;
  step_is_open_ = false;
}

void StepBuffer::end_episode(bool clear_buffers) {
  if (step_is_open_) finish_step();
  for (const auto& group : groups_) {
    group->end_episode();
    if (clear_buffers) group->expire_all();
  }
  episode_begin_ = step_;
  episode_ = random_.next();
}

void StepBuffer::note_flush() {
  for (const auto& group : groups_) group->note_flush();
}

bool StepBuffer::has_cell(ColumnId column, StepIndex step) const {
  const Column& c = *columns_[column];
  if (!c.group) return false;
  ColumnGroup::Rows rows;
  std::uint64_t bad = 0;
  return c.group->find({step, 1}, rows, nullptr, 0, &bad) == ColumnGroup::Lookup::kFound &&
         c.group->are_set(c.index, rows, &bad);
}

Result<TensorView> StepBuffer::cell(ColumnId column, StepIndex step) const {
  const Column& c = *columns_[column];
  ColumnGroup::Rows rows;
  std::vector<Piece> pieces;
  std::uint64_t bad = 0;
  const auto found =
      c.group ? c.group->find({step, 1}, rows, &pieces, 0, &bad) : ColumnGroup::Lookup::kUnset;
  if (found != ColumnGroup::Lookup::kFound || !c.group->are_set(c.index, rows, &bad)) {
    return Status(StatusCode::kFailedPrecondition, missing(column, step, found).message());
  }
  const Piece& piece = pieces.front();
  // Only this thread compresses the chunk, so its rows stay raw until the next call.
  if (piece.chunk->is_raw()) {
    return TensorView{c.spec.dtype, c.spec.shape, piece.chunk->row_bytes(c.index, piece.offset)};
  }
  if (unpacked_.get() != piece.chunk) {
    reader_ = RowReader();
    unpacked_ = Ref<const Chunk>::share(piece.chunk);
  }
  REVERIE_ASSIGN_OR_RETURN(const RowSpan row, reader_.row(*piece.chunk, c.index, piece.offset));
  return TensorView{c.spec.dtype, c.spec.shape, row};
}

Status StepBuffer::find_rows(ColumnId column, std::span<const StepRange> steps,
                             std::vector<ColumnGroup::Rows>& rows,
                             std::vector<Piece>& pieces) const {
  const std::size_t first_piece = pieces.size();
  for (const StepRange& range : steps) {
    StepIndex bad_step = 0;
    const auto found =
        columns_[column]->group->find(range, rows.emplace_back(), &pieces, first_piece, &bad_step);
    if (found != ColumnGroup::Lookup::kFound) [[unlikely]] {
      return missing(column, bad_step, found);
    }
  }
  return {};
}

Status StepBuffer::missing(ColumnId column, StepIndex step, ColumnGroup::Lookup why) const {
  const Column& c = *columns_[column];
  if (!c.group) {
    return invalid_argument("column '{}' has no values yet; append some before referring to it",
                            c.name);
  }
  const StepIndex end = step_ + (step_is_open_ ? 1 : 0);
  if (step >= end) {
    return invalid_argument(
        "column '{}' was referred to at step {}, but only {} steps were "
        "appended",
        c.name, step, end);
  }
  if (why == ColumnGroup::Lookup::kExpired) {
    return invalid_argument(
        "step {} of column '{}' has expired: the last {} steps of an episode "
        "stay referable; raise num_keep_alive_refs or refer to later steps",
        step, c.name, c.group->options().num_keep_alive_refs);
  }
  return invalid_argument("column '{}' has no value in step {}; refer to steps that have one",
                          c.name, step);
}

}  // namespace reverie
