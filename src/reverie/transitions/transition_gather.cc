// Tested in tests/integration/replay_buffer_test.cc and python/reverie/replay_buffer_test.py.
#include "reverie/transitions/transition_gather.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "reverie/gather/copy_row.h"

namespace reverie {
namespace {

// Headers are prefetched this many items ahead: twice the cache misses that a core can have in
// progress.
constexpr std::size_t kItemsAhead = 24;
constexpr std::size_t kLineBytes = 64;

// A leaf during a gather: its offset in a row of its column, and the distance of rows.
struct Column {
  std::size_t begin;
  std::size_t row_bytes;
  std::size_t size;
};

Column column_of(const TransitionPlan& plan, const LeafPlace& leaf) {
  return {leaf.offset, plan.row_bytes(leaf.chunk_column), leaf.size_bytes};
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

const std::byte* TransitionGather::small_rows(const TransitionPlan& plan, const Chunk& chunk,
                                              bool& is_raw) {
  if (&chunk.schema() != plan.schema().get()) return nullptr;
  is_raw = chunk.is_raw_for_good() || raw_.emplace_back(chunk);
  if (is_raw) [[likely]] {
    return chunk.begin() + plan.column_begin(0);
  }
  const Chunk::EncodedColumn& column = chunk.encoded_column(0);
  const bool is_raw_here = column.codec == CodecId::kRaw &&
                           column.size_bytes == std::size_t{chunk.rows()} * plan.row_bytes(0);
  return is_raw_here ? chunk.encoded_bytes(0).data() : nullptr;
}

Status TransitionGather::find(const TransitionPlan& plan, std::span<const TrajectoryView> items) {
  rows_.resize(items.size());
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
    const bool has_second = pieces.size() > 1;
    Rows& rows = rows_[i];
    rows.shape = ItemShape::unpack(items[i].layout->tag());
    rows.first = small_rows(plan, *piece.chunk, rows.first_is_raw);
    rows.second = has_second ? small_rows(plan, *pieces[1].chunk, rows.second_is_raw) : nullptr;
    rows.offset = piece.offset;
    rows.split = piece.length;
    const std::uint64_t length = piece.length + (has_second ? pieces[1].length : 0);
    const bool is_raw_here = rows.first != nullptr &&
                             (!has_second || (rows.second != nullptr && pieces[1].offset == 0)) &&
                             length == rows.shape.rows() &&
                             std::uint64_t{piece.offset} + piece.length <= chunk_rows;
    if (!is_raw_here) [[unlikely]] {
      return data_loss("item {} of the batch is not one that this replay buffer has written", i);
    }
    const std::byte* const step = rows.first + (rows.offset + rows.shape.history) * row_bytes;
    __builtin_prefetch(step);
    __builtin_prefetch(step + kLineBytes);
    if (row_bytes > kLineBytes) __builtin_prefetch(step + 2 * kLineBytes);
  }
  return {};
}

Status TransitionGather::gather(const TransitionPlan& plan, std::span<const TrajectoryView> items,
                                const TransitionTargets& targets) {
  Status status = find(plan, items);
  const TransitionOptions& options = plan.options();
  if (powers_.size() != options.n_step + 1) {
    powers_.assign(1, 1.0);
    while (powers_.size() <= options.n_step) powers_.push_back(powers_.back() * options.gamma);
  }
  if (status.ok()) {
    status = options.has_sequences() ? copy_sequences(plan, items, targets)
                                     : copy_leaves(plan, items, targets);
  }
  if (status.ok()) copy_outcomes(plan, targets);
  raw_.clear();
  return status;
}

// --- Large leaves --------------------------------------------------------------------------------

Status TransitionGather::decode(const Chunk& chunk, std::size_t column, std::uint32_t begin,
                                std::uint32_t count, std::byte* to) {
  REVERIE_RETURN_IF_ERROR(decoder_.open(chunk.encoded_column(column).codec,
                                        chunk.schema().column(column), chunk.rows(),
                                        chunk.encoded_bytes(column)));
  for (std::uint32_t row = begin; row < begin + count; ++row) {
    REVERIE_ASSIGN_OR_RETURN(const RowSpan bytes, decoder_.row(row));
    copy_row(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return {};
}

Result<TransitionGather::Rows> TransitionGather::large_rows(const TransitionPlan& plan,
                                                            std::span<const TrajectoryView> items,
                                                            std::size_t i, std::size_t column) {
  const std::span<const Piece> pieces = items[i].pieces();
  const std::size_t begin = plan.column_begin(column);
  Rows rows = rows_[i];
  if (rows.first_is_raw && rows.second_is_raw) [[likely]] {
    rows.first = pieces[0].chunk->begin() + begin;
    if (rows.second != nullptr) rows.second = pieces[1].chunk->begin() + begin;
    return rows;
  }
  const std::size_t row_bytes = plan.row_bytes(column);
  decoded_.resize(std::max(decoded_.size(), rows.shape.rows() * row_bytes));
  std::byte* to = decoded_.data();
  for (const Piece& piece : pieces) {
    const bool is_raw = &piece == pieces.data() ? rows.first_is_raw : rows.second_is_raw;
    if (is_raw) {
      copy_row(to, piece.chunk->begin() + begin + piece.offset * row_bytes,
               piece.length * row_bytes);
    } else {
      REVERIE_RETURN_IF_ERROR(decode(*piece.chunk, column, piece.offset, piece.length, to));
    }
    to += piece.length * row_bytes;
  }
  rows.first = decoded_.data();
  rows.second = nullptr;
  rows.offset = 0;
  rows.split = rows.shape.rows();
  return rows;
}

template <typename Visit>
Status TransitionGather::for_each_item(const TransitionPlan& plan,
                                       std::span<const TrajectoryView> items, const LeafPlace& leaf,
                                       Visit visit) {
  const Column column = column_of(plan, leaf);
  if (leaf.chunk_column == 0) {
    for (const Rows& rows : rows_) visit(rows, column);
    return {};
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    REVERIE_ASSIGN_OR_RETURN(const Rows rows, large_rows(plan, items, i, leaf.chunk_column));
    visit(rows, column);
  }
  return {};
}

// --- Single steps --------------------------------------------------------------------------------

// Small leaves one after the other: the loop over one is so short that the processor works on many
// items at once. Large leaves item by item: the frames that an observation and the next one share
// are still in the cache when they are copied again.
Status TransitionGather::copy_leaves(const TransitionPlan& plan,
                                     std::span<const TrajectoryView> items,
                                     const TransitionTargets& targets) {
  const std::uint32_t depth = plan.options().frame_stack;
  const auto copy_small = [&](const LeafPlace& leaf, std::byte* to, bool is_next) {
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
  const auto obs = plan.obs_places();
  for (std::size_t i = 0; i < obs.size(); ++i) {
    if (depth == 1 && obs[i].chunk_column == 0) {
      copy_small(obs[i], targets.obs[i], false);
      copy_small(obs[i], targets.next_obs[i], true);
      continue;
    }
    std::byte* to = targets.obs[i];
    std::byte* next_to = targets.next_obs[i];
    REVERIE_RETURN_IF_ERROR(
        for_each_item(plan, items, obs[i], [&](const Rows& rows, const Column& column) {
          const std::uint32_t row = rows.shape.history;
          to = copy_stack(rows, column, row, depth, to);
          next_to = copy_stack(rows, column, row + rows.shape.steps, depth, next_to);
        }));
  }
  const auto action = plan.action_places();
  for (std::size_t i = 0; i < action.size(); ++i) {
    if (action[i].chunk_column == 0) {
      copy_small(action[i], targets.action[i], false);
      continue;
    }
    std::byte* to = targets.action[i];
    REVERIE_RETURN_IF_ERROR(
        for_each_item(plan, items, action[i], [&](const Rows& rows, const Column& column) {
          to = copy_rows(rows, column, rows.shape.history, rows.shape.history + 1, to);
        }));
  }
  return {};
}

// --- Sequences -----------------------------------------------------------------------------------

Status TransitionGather::copy_sequences(const TransitionPlan& plan,
                                        std::span<const TrajectoryView> items,
                                        const TransitionTargets& targets) {
  const TransitionOptions& options = plan.options();
  // One item's steps, from `behind` steps after its first on.
  const auto copy_steps = [&](const Rows& rows, const Column& column, std::byte* to,
                              std::uint32_t stack, std::uint32_t behind) {
    const std::uint32_t begin = rows.shape.history + behind;
    if (stack == 1) {
      to = copy_rows(rows, column, begin, begin + rows.shape.steps, to);
    } else {
      for (std::uint32_t i = 0; i < rows.shape.steps; ++i) {
        to = copy_stack(rows, column, begin + i, stack, to);
      }
    }
    return fill_zero(
        to, std::size_t{options.steps_max() - rows.shape.steps} * std::size_t{stack} * column.size);
  };
  const auto obs = plan.obs_places();
  for (std::size_t i = 0; i < obs.size(); ++i) {
    std::byte* to = targets.obs[i];
    std::byte* next_to = targets.next_obs[i];
    REVERIE_RETURN_IF_ERROR(
        for_each_item(plan, items, obs[i], [&](const Rows& rows, const Column& column) {
          to = copy_steps(rows, column, to, options.frame_stack, 0);
          next_to = copy_steps(rows, column, next_to, options.frame_stack, 1);
        }));
  }
  const auto action = plan.action_places();
  for (std::size_t i = 0; i < action.size(); ++i) {
    std::byte* to = targets.action[i];
    REVERIE_RETURN_IF_ERROR(for_each_item(
        plan, items, action[i],
        [&](const Rows& rows, const Column& column) { to = copy_steps(rows, column, to, 1, 0); }));
  }
  return {};
}

// --- Outcomes ------------------------------------------------------------------------------------

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
