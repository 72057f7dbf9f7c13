// Tested in tests/integration/replay_buffer_test.cc and python/reverie/replay_buffer_test.py.
#include "reverie/transitions/transition_gather.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "reverie/client/copy_row.h"

namespace reverie {
namespace {

// Headers are prefetched this many items ahead: twice the misses that a core can have under way.
constexpr std::size_t kItemsAhead = 24;
constexpr std::size_t kLineBytes = 64;

// A leaf as a gather sees it: where row 0 lies in a chunk, and how far apart rows are.
struct Column {
  std::size_t begin;
  std::size_t row_bytes;
  std::size_t size;
};

Column column_of(const TransitionPlan& plan, const LeafPlace& leaf) {
  return {plan.column_begin(leaf.chunk_column) + leaf.offset, plan.row_bytes(leaf.chunk_column),
          leaf.size_bytes};
}

template <typename Rows>
const std::byte* row_at(const Rows& rows, const Column& column, std::uint32_t row) {
  return row < rows.split ? rows.first + column.begin + (rows.offset + row) * column.row_bytes
                          : rows.second + column.begin + (row - rows.split) * column.row_bytes;
}

// Rows [begin, end) one after the other; returns where they end.
template <typename Rows>
std::byte* copy_rows(const Rows& rows, const Column& column, std::uint32_t begin, std::uint32_t end,
                     std::byte* to) {
  if (column.row_bytes != column.size) {
    for (std::uint32_t row = begin; row < end; ++row, to += column.size) {
      copy_row(to, row_at(rows, column, row), column.size);
    }
    return to;
  }
  while (begin < end) {
    const std::uint32_t until = begin < rows.split ? std::min(end, rows.split) : end;
    const std::size_t size = (until - begin) * column.size;
    copy_row(to, row_at(rows, column, begin), size);
    to += size;
    begin = until;
  }
  return to;
}

// The stack of `depth` frames whose newest is `row`, which never goes back beyond row 0.
template <typename Rows>
std::byte* copy_stack(const Rows& rows, const Column& column, std::uint32_t row,
                      std::uint32_t depth, std::byte* to) {
  for (; depth > row + 1; --depth, to += column.size) {
    copy_row(to, row_at(rows, column, 0), column.size);
  }
  return copy_rows(rows, column, row + 1 - depth, row + 1, to);
}

std::byte* fill_zero(std::byte* to, std::size_t size) {
  if (size > 0) std::memset(to, 0, size);
  return to + size;
}

template <typename T, typename Rows>
T value_at(const Rows& rows, const Column& column, std::uint32_t row) {
  T value;
  std::memcpy(&value, row_at(rows, column, row), sizeof(value));
  return value;
}

}  // namespace

Status TransitionGather::find(const TransitionPlan& plan, std::span<const TrajectoryView> items) {
  rows_.resize(items.size());
  const ChunkSchema* const schema = plan.schema().get();
  const std::size_t begin = plan.column_begin(0);
  const std::size_t row_bytes = plan.row_bytes(0);
  const std::uint32_t chunk_rows = plan.chunk_rows();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i + kItemsAhead < items.size()) {
      const TrajectoryView& ahead = items[i + kItemsAhead];
      __builtin_prefetch(ahead.layout->piece_count() == 1
                             ? static_cast<const void*>(ahead.one.chunk)
                             : ahead.many);
    }
    const std::span<const Piece> pieces = items[i].pieces();
    const Piece& piece = pieces.front();
    const Chunk* const second = pieces.size() > 1 ? pieces[1].chunk : nullptr;
    Rows& rows = rows_[i];
    rows.shape = ItemShape::unpack(items[i].layout->tag());
    rows.first = piece.chunk->begin();
    rows.second = second != nullptr ? second->begin() : nullptr;
    rows.offset = piece.offset;
    rows.split = piece.length;
    const std::uint64_t length = piece.length + (second != nullptr ? pieces[1].length : 0);
    const bool is_ours =
        &piece.chunk->schema() == schema && piece.chunk->is_raw() &&
        (second == nullptr ||
         (&second->schema() == schema && second->is_raw() && pieces[1].offset == 0)) &&
        length == rows.shape.rows() && std::uint64_t{piece.offset} + piece.length <= chunk_rows;
    if (!is_ours) [[unlikely]] {
      return data_loss("item {} of the batch is not one that this replay buffer has written", i);
    }
    const std::byte* const step =
        rows.first + begin + (rows.offset + rows.shape.history) * row_bytes;
    __builtin_prefetch(step);
    __builtin_prefetch(step + kLineBytes);
    if (row_bytes > kLineBytes) __builtin_prefetch(step + 2 * kLineBytes);
  }
  return {};
}

Status TransitionGather::gather(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                                const TransitionTargets& targets) {
  REVERIE_RETURN_IF_ERROR(find(plan, items));
  const TransitionOptions& options = plan.options();
  if (powers_.size() != options.n_step + 1) {
    powers_.assign(1, 1.0);
    while (powers_.size() <= options.n_step) powers_.push_back(powers_.back() * options.gamma);
  }
  copy_small(plan, targets);
  copy_large(plan, targets);
  copy_outcomes(plan, targets);
  return {};
}

// Small leaves one after the other: a loop over one is so short that the processor runs ahead over
// many items.
void TransitionGather::copy_small(const TransitionPlan& plan,
                                  const TransitionTargets& targets) const {
  const TransitionOptions& options = plan.options();
  const std::uint32_t depth = options.frame_stack;
  const auto for_each = [&](const LeafPlace& leaf, std::byte* to, bool is_next) {
    const Column column = column_of(plan, leaf);
    const auto one_row = [&](auto copy) {
      for (const Rows& rows : rows_) {
        const std::uint32_t row = rows.shape.history + (is_next ? rows.shape.steps : 0);
        copy(to, row_at(rows, column, row));
        to += column.size;
      }
    };
    const auto fixed = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
      one_row([](std::byte* out, const std::byte* row) { std::memcpy(out, row, kSize); });
    };
    switch (column.size) {
      case 4:
        return fixed(std::integral_constant<std::size_t, 4>());
      case 8:
        return fixed(std::integral_constant<std::size_t, 8>());
      case 32:
        return fixed(std::integral_constant<std::size_t, 32>());
      default:
        one_row([&](std::byte* out, const std::byte* row) { copy_row(out, row, column.size); });
    }
  };
  const auto for_each_stack = [&](const LeafPlace& leaf, std::byte* to, bool is_next) {
    const Column column = column_of(plan, leaf);
    for (const Rows& rows : rows_) {
      const std::uint32_t row = rows.shape.history + (is_next ? rows.shape.steps : 0);
      to = copy_stack(rows, column, row, depth, to);
    }
  };
  const auto for_each_step = [&](const LeafPlace& leaf, std::byte* to, std::uint32_t stack,
                                 std::uint32_t behind) {
    const Column column = column_of(plan, leaf);
    const std::size_t step_bytes = stack * column.size;
    for (const Rows& rows : rows_) {
      const std::uint32_t begin = rows.shape.history + behind;
      if (stack == 1) {
        to = copy_rows(rows, column, begin, begin + rows.shape.steps, to);
      } else {
        for (std::uint32_t i = 0; i < rows.shape.steps; ++i) {
          to = copy_stack(rows, column, begin + i, stack, to);
        }
      }
      to = fill_zero(to, (options.steps_max() - rows.shape.steps) * step_bytes);
    }
  };
  const bool has_sequences = options.has_sequences();
  const auto obs = plan.obs_places();
  for (std::size_t i = 0; i < obs.size(); ++i) {
    if (has_sequences) {
      for_each_step(obs[i], targets.obs[i], depth, 0);
      for_each_step(obs[i], targets.next_obs[i], depth, 1);
    } else if (obs[i].chunk_column != 0) {
      continue;
    } else if (depth > 1) {
      for_each_stack(obs[i], targets.obs[i], false);
      for_each_stack(obs[i], targets.next_obs[i], true);
    } else {
      for_each(obs[i], targets.obs[i], false);
      for_each(obs[i], targets.next_obs[i], true);
    }
  }
  const auto action = plan.action_places();
  for (std::size_t i = 0; i < action.size(); ++i) {
    if (has_sequences) {
      for_each_step(action[i], targets.action[i], 1, 0);
    } else {
      for_each(action[i], targets.action[i], false);
    }
  }
}

// Large leaves item by item: the frames that an observation and the next one share are still in
// the cache when they are copied again.
void TransitionGather::copy_large(const TransitionPlan& plan,
                                  const TransitionTargets& targets) const {
  const TransitionOptions& options = plan.options();
  if (options.has_sequences()) return;
  const auto obs = plan.obs_places();
  for (std::size_t i = 0; i < obs.size(); ++i) {
    if (obs[i].chunk_column == 0) continue;
    const Column column = column_of(plan, obs[i]);
    std::byte* to = targets.obs[i];
    std::byte* next_to = targets.next_obs[i];
    for (const Rows& rows : rows_) {
      const std::uint32_t row = rows.shape.history;
      to = copy_stack(rows, column, row, options.frame_stack, to);
      next_to = copy_stack(rows, column, row + rows.shape.steps, options.frame_stack, next_to);
    }
  }
}

void TransitionGather::copy_outcomes(const TransitionPlan& plan,
                                     const TransitionTargets& targets) const {
  const TransitionOptions& options = plan.options();
  const Column reward = column_of(plan, plan.reward_place());
  const Column flags = column_of(plan, plan.flags_place());
  const auto is_terminated = [&](const Rows& rows, std::uint32_t row) -> std::uint8_t {
    return value_at<std::uint8_t>(rows, flags, row) & TransitionPlan::kTerminated;
  };
  if (options.has_sequences()) {
    const std::size_t steps_max = options.steps_max();
    const auto gamma = static_cast<float>(options.gamma);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Rows& rows = rows_[i];
      for (std::size_t s = 0; s < steps_max; ++s) {
        const std::size_t at = i * steps_max + s;
        const bool is_there = s < rows.shape.steps;
        const std::uint32_t row = rows.shape.history + static_cast<std::uint32_t>(s);
        targets.reward[at] = is_there ? value_at<float>(rows, reward, row) : 0.0f;
        targets.terminated[at] = is_there ? is_terminated(rows, row) : 0;
        targets.discount[at] = is_there && targets.terminated[at] == 0 ? gamma : 0.0f;
        targets.mask[at] = is_there && s >= rows.shape.burn_in ? 1 : 0;
      }
    }
    return;
  }
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Rows& rows = rows_[i];
    const std::uint32_t row = rows.shape.history;
    double sum = static_cast<double>(value_at<float>(rows, reward, row));
    for (std::uint32_t s = 1; s < rows.shape.steps; ++s) {
      sum += powers_[s] * static_cast<double>(value_at<float>(rows, reward, row + s));
    }
    const std::uint8_t terminated = is_terminated(rows, row + rows.shape.steps - 1);
    targets.reward[i] = static_cast<float>(sum);
    targets.terminated[i] = terminated;
    targets.discount[i] = terminated != 0 ? 0.0f : static_cast<float>(powers_[rows.shape.steps]);
  }
}

}  // namespace reverie
