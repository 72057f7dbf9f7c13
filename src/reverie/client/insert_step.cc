#include "reverie/client/insert_step.h"

#include <utility>
#include <vector>

#include "reverie/record/chunk.h"
#include "reverie/record/trajectory.h"
#include "reverie/tensor/block_heap.h"

namespace reverie {
namespace {

Result<Ref<Chunk>> chunk_of(std::span<const NamedValue> step, Random& random) {
  std::vector<TensorSpec> specs;
  std::size_t var_bytes = 0;
  for (const auto& [name, value] : step) {
    specs.push_back(
        {std::string(name), value.dtype, Shape(value.shape.begin(), value.shape.end())});
    if (has_variable_size(value.dtype)) var_bytes += value.bytes.size();
  }
  const ChunkOrigin origin{random.next(), random.next(), 0};
  REVERIE_ASSIGN_OR_RETURN(
      Ref<Chunk> chunk, Chunk::open(make_ref<ChunkSchema>(std::move(specs)), origin, 1, var_bytes,
                                    BlockHeap::shared()));
  for (std::size_t i = 0; i < step.size(); ++i) chunk->set_row(i, 0, step[i].value.bytes);
  chunk->publish(1);
  return chunk;
}

Ref<const Layout> layout_of(const ChunkSchema& schema, std::string_view structure) {
  std::vector<LayoutColumn> columns;
  for (std::size_t i = 0; i < schema.column_count(); ++i) {
    columns.push_back({schema.column(i), static_cast<std::uint16_t>(i), 0, 1, false});
  }
  return make_ref<Layout>(std::move(columns), std::string(structure));
}

}  // namespace

Status insert_step(ReplayService& service, std::span<const NamedValue> step,
                   std::string_view structure, std::span<const InsertTarget> targets,
                   TimePoint deadline, Random& random, const WaitOptions& wait) {
  if (step.empty()) return invalid_argument("the step has no columns; give it at least one array");
  REVERIE_ASSIGN_OR_RETURN(const Ref<Chunk> chunk, chunk_of(step, random));
  const Ref<const Layout> layout = layout_of(chunk->schema(), structure);
  const Piece piece{chunk.get(), 0, 1};
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Item item{random.next(), targets[i].priority, Trajectory(layout, {&piece, 1}), 0};
    const InsertResult result =
        insert_and_wait(service, {targets[i].table, {&item, 1}, deadline}, wait);
    if (result.status.ok()) continue;
    if (targets.size() == 1) return result.status;
    return result.status.with_context(format("{} of {} tables have the item, table '{}' not", i,
                                             targets.size(), targets[i].table));
  }
  return {};
}

}  // namespace reverie
