#include "reverie/client/writer.h"

#include <algorithm>

namespace reverie {
namespace {

constexpr std::uint32_t kDefaultChunkLength = 10;

}  // namespace

Result<std::unique_ptr<Writer>> Writer::open(std::shared_ptr<ReplayService> service,
                                             const WriterOptions& options) {
  const std::uint32_t longest = options.max_sequence_length;
  if (longest == 0) return invalid_argument("max_sequence_length is 0; it must be at least 1");
  const std::uint32_t length =
      options.chunk_length.value_or(std::min(kDefaultChunkLength, longest));
  if (length == 0 || length > longest) {
    return invalid_argument("chunk_length is {}; it must be from 1 to max_sequence_length, {}",
                            length, longest);
  }
  REVERIE_ASSIGN_OR_RETURN(
      auto writer,
      TrajectoryWriter::open(std::move(service),
                             {.chunks = {.num_keep_alive_refs = longest, .chunk_length = length},
                              .max_in_flight_items = options.max_in_flight_items,
                              .allocator = options.allocator,
                              .clock = options.clock,
                              .seed = options.seed}));
  return std::unique_ptr<Writer>(new Writer(std::move(writer), longest));
}

Status Writer::append(std::span<const ColumnValue> values) {
  if (!step_.empty()) {
    if (values.size() != step_.size()) {
      return invalid_argument(
          "this step has {} columns but the first had {}; all must have the "
          "same, or be written with a TrajectoryWriter",
          values.size(), step_.size());
    }
    for (const ColumnValue& value : values) {
      if (std::ranges::find(step_, value.column) != step_.end()) continue;
      return invalid_argument(
          "column {} was not in the first step; all steps must have the same "
          "columns, or be written with a TrajectoryWriter",
          value.column);
    }
  } else if (values.empty()) {
    return invalid_argument("a step needs at least one column");
  }
  REVERIE_RETURN_IF_ERROR(writer_->append(values, /*partial_step=*/false));
  if (step_.empty()) {
    for (const ColumnValue& value : values) step_.push_back(value.column);
  }
  return {};
}

Status Writer::create_item(std::string_view table, std::uint32_t num_timesteps, double priority,
                           std::string_view structure, TimePoint deadline,
                           const WaitOptions& wait) {
  if (!closed() && (num_timesteps == 0 || num_timesteps > max_sequence_length_ ||
                    num_timesteps > writer_->next_step())) {
    return invalid_argument(
        "num_timesteps is {}; it must be from 1 to {}: {} steps were appended, "
        "and max_sequence_length is {}",
        num_timesteps, std::min<std::uint64_t>(max_sequence_length_, writer_->next_step()),
        writer_->next_step(), max_sequence_length_);
  }
  const StepRange range{writer_->next_step() - num_timesteps, num_timesteps};
  columns_.clear();
  for (const ColumnId column : step_) {
    columns_.push_back(
        {writer_->column_name(column), column, {&range, 1}, /*squeezed=*/false, /*stepwise=*/true});
  }
  return writer_->create_item({table, priority, columns_, structure}, deadline, wait);
}

Status Writer::close(TimePoint deadline, const WaitOptions& wait) {
  if (closed()) return failed_precondition("this Writer is closed already; open another one");
  Status flushed = flush(deadline, wait);
  writer_->close();
  return flushed;
}

}  // namespace reverie
