#include "reverie/structured/structured_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace reverie {
namespace {

template <typename T>
T element(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// The number that a condition compares; none unless it is a single whole number or boolean.
std::optional<std::int64_t> whole_number(const TensorView& view) {
  if (view.bytes.size() != dtype_size_bytes(view.dtype)) return std::nullopt;
  switch (view.dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return element<std::uint8_t>(view.bytes);
    case DType::kInt8:
      return element<std::int8_t>(view.bytes);
    case DType::kInt16:
      return element<std::int16_t>(view.bytes);
    case DType::kUInt16:
      return element<std::uint16_t>(view.bytes);
    case DType::kInt32:
      return element<std::int32_t>(view.bytes);
    case DType::kUInt32:
      return element<std::uint32_t>(view.bytes);
    case DType::kInt64:
      return element<std::int64_t>(view.bytes);
    case DType::kUInt64:
      return static_cast<std::int64_t>(element<std::uint64_t>(view.bytes));
    default:
      return std::nullopt;
  }
}

// One TD error; none unless it is a single number of a type that Reverb takes.
std::optional<double> error_number(const TensorView& view) {
  if (view.bytes.size() != dtype_size_bytes(view.dtype)) return std::nullopt;
  switch (view.dtype) {
    case DType::kFloat32:
      return element<float>(view.bytes);
    case DType::kFloat64:
      return element<double>(view.bytes);
    case DType::kInt32:
      return element<std::int32_t>(view.bytes);
    case DType::kInt64:
      return static_cast<double>(element<std::int64_t>(view.bytes));
    default:
      return std::nullopt;
  }
}

std::string value_text(const TensorView& view) {
  return std::string(dtype_name(view.dtype)) + ' ' + shape_text(view.shape);
}

}  // namespace

Result<std::unique_ptr<StructuredWriter>> StructuredWriter::open(
    std::shared_ptr<ReplayService> service, std::vector<ItemPattern> patterns,
    TrajectoryWriterOptions options) {
  REVERIE_RETURN_IF_ERROR(check_patterns(patterns));
  std::uint64_t reach = options.chunks.num_keep_alive_refs;
  for (const ItemPattern& pattern : patterns) reach = std::max(reach, pattern.reach());
  options.chunks.num_keep_alive_refs = static_cast<std::uint32_t>(reach);
  options.max_in_flight_items = std::max(options.max_in_flight_items, patterns.size());
  const std::size_t queued_max = options.max_in_flight_items - patterns.size();
  REVERIE_ASSIGN_OR_RETURN(auto writer, TrajectoryWriter::open(std::move(service), options));
  return std::unique_ptr<StructuredWriter>(
      new StructuredWriter(std::move(writer), std::move(patterns), queued_max));
}

StructuredWriter::StructuredWriter(std::unique_ptr<TrajectoryWriter> writer,
                                   std::vector<ItemPattern> patterns, std::size_t queued_max)
    : writer_(std::move(writer)), queued_max_(queued_max) {
  for (ItemPattern& pattern : patterns) {
    PatternState& state = patterns_.emplace_back();
    state.pattern = std::move(pattern);
    state.reach = state.pattern.reach();
    state.ranges.resize(state.pattern.columns.size());
  }
}

Status StructuredWriter::set_leaves(std::vector<std::string> names) {
  REVERIE_CHECK(leaves_.empty());
  std::vector<Leaf> leaves(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) leaves[i].name = std::move(names[i]);
  const auto check_leaf = [&](LeafIndex leaf, std::string_view table) -> Status {
    if (leaf < leaves.size()) return {};
    return invalid_argument(
        "a configuration for table '{}' refers to leaf {} of the steps, which have {}; make it "
        "with "
        "a reference step of their structure",
        table, leaf, leaves.size());
  };
  for (const PatternState& state : patterns_) {
    for (const PatternColumn& column : state.pattern.columns) {
      REVERIE_RETURN_IF_ERROR(check_leaf(column.leaf, state.pattern.table));
      leaves[column.leaf].is_written = true;
    }
    for (const PatternCondition& condition : state.pattern.conditions) {
      if (condition.left != PatternCondition::Left::kLeaf) continue;
      REVERIE_RETURN_IF_ERROR(check_leaf(condition.leaf, state.pattern.table));
      leaves[condition.leaf].is_tested = true;
    }
  }
  for (Leaf& leaf : leaves) {
    if (leaf.is_written) leaf.column = writer_->column(leaf.name);
  }
  for (PatternState& state : patterns_) {
    for (const PatternColumn& column : state.pattern.columns) {
      state.columns.push_back(
          {column.name, leaves[column.leaf].column, {}, column.is_squeezed(), false});
    }
  }
  leaves_ = std::move(leaves);
  return {};
}

bool StructuredWriter::may_wait() const {
  return writer_->pending_items() > queued_max_ ||
         std::ranges::any_of(patterns_, [this](const PatternState& state) {
           return writer_->may_wait(state.pattern.table);
         });
}

Status StructuredWriter::make_room(TimePoint deadline, const WaitOptions& wait) {
  if (writer_->pending_items() <= queued_max_) return {};
  return writer_->flush(queued_max_, deadline, wait);
}

Status StructuredWriter::append(std::span<const LeafValue> values, bool partial_step,
                                TimePoint deadline, const WaitOptions& wait) {
  if (const Status lost = writer_->take_losses(); !lost.ok()) {
    return writer_->closed() ? lost : lost.with_context("the step was not written");
  }
  REVERIE_RETURN_IF_ERROR(make_room(deadline, wait));
  const StepIndex newest = writer_->next_step();
  written_.clear();
  ++appends_;
  for (const LeafValue& value : values) {
    const Leaf& leaf = leaves_[value.leaf];
    if (!uses(value.leaf)) continue;
    REVERIE_RETURN_IF_ERROR(check(value, newest));
    if (leaf.is_written) written_.push_back({leaf.column, value.value});
  }
  REVERIE_RETURN_IF_ERROR(writer_->append(written_, partial_step));
  for (const LeafValue& value : values) note(value, newest);
  return apply(newest, /*is_end=*/false, deadline, wait);
}

Status StructuredWriter::check(const LeafValue& value, StepIndex step) {
  Leaf& leaf = leaves_[value.leaf];
  if (leaf.given_in == step) [[unlikely]] {
    return failed_precondition(
        "leaf '{}' was already given in this step, which is still open; a step takes one value of "
        "each leaf",
        leaf.name);
  }
  if (std::exchange(leaf.seen_in, appends_) == appends_) [[unlikely]] {
    return failed_precondition(
        "leaf '{}' is given twice in one append; a step takes one value of each leaf", leaf.name);
  }
  if (!leaf.is_tested) return {};
  if (leaf.tested_dtype.value_or(value.value.dtype) != value.value.dtype) [[unlikely]] {
    return invalid_argument("leaf '{}' is {} since its first value, but this step has {}; cast it",
                            leaf.name, dtype_name(*leaf.tested_dtype),
                            dtype_name(value.value.dtype));
  }
  if (!whole_number(value.value)) [[unlikely]] {
    return invalid_argument(
        "leaf '{}' is {}, but a condition looks at it; it must be a single whole number or boolean",
        leaf.name, value_text(value.value));
  }
  return {};
}

void StructuredWriter::note(const LeafValue& value, StepIndex step) {
  Leaf& leaf = leaves_[value.leaf];
  if (!uses(value.leaf)) return;
  if (used_in_ != step) ++used_steps_;
  used_in_ = step;
  leaf.given_in = step;
  if (leaf.run_end != step) leaf.run_begin = step;
  leaf.run_end = step + 1;
  if (!leaf.is_tested) return;
  leaf.tested_dtype = value.value.dtype;
  leaf.tested_value = *whole_number(value.value);
}

Status StructuredWriter::apply(StepIndex newest, bool is_end, TimePoint deadline,
                               const WaitOptions& wait) {
  Status first;
  if (used_in_ != newest) return first;
  for (PatternState& state : patterns_) {
    if (state.tried_in == newest || newest - buffer_begin_ + 1 < state.reach) continue;
    if (!conditions_hold(state, newest, is_end) || !find_rows(state, newest)) continue;
    Status status = create(state, deadline, wait);
    // An item that only had no time can still be made.
    const bool may_try_again =
        status.code() == StatusCode::kDeadlineExceeded || status.code() == StatusCode::kCancelled;
    if (!may_try_again) state.tried_in = newest;
    if (status.ok()) {
      state.applied_at = used_steps_;
    } else if (first.ok()) {
      first = std::move(status);
    }
  }
  return first;
}

bool StructuredWriter::conditions_hold(const PatternState& state, StepIndex newest,
                                       bool is_end) const {
  for (const PatternCondition& condition : state.pattern.conditions) {
    std::int64_t left = 0;
    switch (condition.left) {
      case PatternCondition::Left::kStepIndex:
        left = static_cast<std::int64_t>(newest - writer_->episode_begin());
        break;
      case PatternCondition::Left::kStepsSinceApplied:
        left = static_cast<std::int64_t>(used_steps_ - state.applied_at);
        break;
      case PatternCondition::Left::kIsEndEpisode:
        left = is_end ? 1 : 0;
        break;
      case PatternCondition::Left::kLeaf:
        if (leaves_[condition.leaf].given_in != newest) return false;
        left = leaves_[condition.leaf].tested_value;
        break;
    }
    if (!condition.holds(left)) return false;
  }
  return true;
}

bool StructuredWriter::find_rows(PatternState& state, StepIndex newest) const {
  const StepIndex end = newest + 1;
  for (std::size_t c = 0; c < state.columns.size(); ++c) {
    const PatternColumn& column = state.pattern.columns[c];
    if (!has_rows(leaves_[column.leaf], column, end)) return false;
    std::vector<StepRange>& ranges = state.ranges[c];
    const StepIndex begin = end - column.reach();
    const auto length = static_cast<std::uint32_t>(column.length());
    ranges.clear();
    if (column.step.value_or(1) == 1) {
      ranges.push_back({begin, length});
    } else {
      const auto stride = static_cast<StepIndex>(*column.step);
      for (std::uint32_t i = 0; i < length; ++i) ranges.push_back({begin + i * stride, 1});
    }
    state.columns[c].ranges = ranges;
  }
  return true;
}

bool StructuredWriter::has_rows(const Leaf& leaf, const PatternColumn& column,
                                StepIndex end) const {
  const StepIndex begin = end - column.reach();
  const auto stride = static_cast<StepIndex>(column.step.value_or(1));
  const StepIndex last = begin + (column.length() - 1) * stride;
  if (begin >= leaf.run_begin && last < leaf.run_end) return true;
  for (StepIndex step = begin; step <= last; step += stride) {
    if (!writer_->has_cell(leaf.column, step)) return false;
  }
  return true;
}

Status StructuredWriter::create(PatternState& state, TimePoint deadline, const WaitOptions& wait) {
  NewItem item{state.pattern.table, state.pattern.priority.constant, state.columns,
               state.pattern.structure};
  if (state.pattern.priority.error_leaf) {
    REVERIE_ASSIGN_OR_RETURN(item.priority, priority(state));
  }
  // A loss reported here would take the place of this item.
  return writer_->create_one_of_many(item, deadline, wait);
}

Result<double> StructuredWriter::priority(const PatternState& state) const {
  const PatternPriority& rule = state.pattern.priority;
  const auto& columns = state.pattern.columns;
  const auto found = std::find_if(columns.rbegin(), columns.rend(), [&](const PatternColumn& c) {
    return c.leaf == *rule.error_leaf;
  });
  if (found == columns.rend()) return 0.0;
  const Leaf& leaf = leaves_[found->leaf];
  double largest = 0;
  double sum = 0;
  for (const StepRange& range :
       state.ranges[static_cast<std::size_t>(columns.rend() - found) - 1]) {
    for (std::uint32_t i = 0; i < range.length; ++i) {
      REVERIE_ASSIGN_OR_RETURN(const TensorView cell, writer_->cell(leaf.column, range.begin + i));
      const std::optional<double> error = error_number(cell);
      if (!error) {
        return invalid_argument(
            "leaf '{}' is {}, but the priority of an item for table '{}' is made of it; it must be "
            "a single float32, float64, int32 or int64",
            leaf.name, value_text(cell), state.pattern.table);
      }
      const double magnitude = std::abs(*error);
      // A NaN must come through: the item is refused for it.
      largest = magnitude > largest || std::isnan(magnitude) ? magnitude : largest;
      sum += magnitude;
    }
  }
  const double mean = sum / static_cast<double>(found->length());
  return rule.max_weight * largest + (1 - rule.max_weight) * mean;
}

Status StructuredWriter::end_episode(bool clear_buffers, TimePoint deadline,
                                     const WaitOptions& wait) {
  const StepIndex end = writer_->next_step() + (writer_->step_is_open() ? 1 : 0);
  if (end > writer_->episode_begin()) {
    REVERIE_RETURN_IF_ERROR(make_room(deadline, wait));
    REVERIE_RETURN_IF_ERROR(apply(end - 1, /*is_end=*/true, deadline, wait));
  }
  REVERIE_RETURN_IF_ERROR(writer_->end_episode(clear_buffers, deadline, wait));
  if (clear_buffers) buffer_begin_ = writer_->next_step();
  return {};
}

}  // namespace reverie
