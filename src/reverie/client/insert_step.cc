#include "reverie/client/insert_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reverie/record/chunk.h"
#include "reverie/record/trajectory.h"

namespace reverie {
namespace {

bool is_of(const StepKinds::Kind& kind, std::span<const NamedValue> step,
           std::string_view structure) {
  const auto columns = kind.schema->columns();
  return kind.layout->structure() == structure &&
         std::ranges::equal(step, columns, [](const NamedValue& given, const TensorSpec& spec) {
           return given.name == spec.name && given.value.dtype == spec.dtype &&
                  std::ranges::equal(given.value.shape, spec.shape);
         });
}

StepKinds::Kind kind_of(std::span<const NamedValue> step, std::string_view structure) {
  std::vector<TensorSpec> specs;
  std::vector<LayoutColumn> columns;
  for (const auto& [name, value] : step) {
    specs.push_back(
        {std::string(name), value.dtype, Shape(value.shape.begin(), value.shape.end())});
    columns.push_back({specs.back(), static_cast<std::uint16_t>(columns.size()), 0, 1,
                       /*squeezed=*/false, /*stepwise=*/true});
  }
  return {make_ref<ChunkSchema>(std::move(specs)),
          make_ref<Layout>(std::move(columns), std::string(structure))};
}

Result<Ref<Chunk>> chunk_of(const Ref<const ChunkSchema>& schema, std::span<const NamedValue> step,
                            Random& random, Allocator& allocator) {
  std::size_t var_bytes = 0;
  for (const auto& [name, value] : step) {
    if (has_variable_size(value.dtype)) var_bytes += value.bytes.size();
  }
  const ChunkOrigin origin{random.next(), random.next(), 0};
  REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk, Chunk::open(schema, origin, 1, var_bytes, allocator));
  for (std::size_t i = 0; i < step.size(); ++i) chunk->set_row(i, 0, step[i].value.bytes);
  chunk->publish(1);
  return chunk;
}

}  // namespace

StepKinds::Kind StepKinds::find(std::span<const NamedValue> step, std::string_view structure) {
  const MutexLock lock(mutex_);
  for (const Kind& kind : kinds_) {
    if (is_of(kind, step, structure)) return kind;
  }
  if (kinds_.size() < kKindsMax) return kinds_.emplace_back(kind_of(step, structure));
  next_ = (next_ + 1) % kKindsMax;
  return kinds_[next_] = kind_of(step, structure);
}

Status insert_step(ReplayService& service, std::span<const NamedValue> step,
                   std::string_view structure, std::span<const InsertTarget> targets,
                   TimePoint deadline, Random& random, const WaitOptions& wait, StepKinds* kinds) {
  if (step.empty()) return invalid_argument("the step has no columns; give it at least one array");
  const auto [schema, layout] = kinds ? kinds->find(step, structure) : kind_of(step, structure);
  REVERIE_ASSIGN_OR_RETURN(const Ref<Chunk> chunk,
                           chunk_of(schema, step, random, chunk_allocator(service)));
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
