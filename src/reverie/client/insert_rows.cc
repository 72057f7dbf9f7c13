// Tested in tests/integration/insert_rows_test.cc.
#include "reverie/client/insert_rows.h"

namespace reverie {
namespace {

Status check_items(std::span<const RowsItem> items, std::uint32_t rows) {
  if (items.empty()) return invalid_argument("there are no items; give the range of at least one");
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].begin < items[i].end && items[i].end <= rows) continue;
    return invalid_argument(
        "item {} is rows [{}, {}) of {}; it must have at least one, and end with them", i,
        items[i].begin, items[i].end, rows);
  }
  return {};
}

}  // namespace

Status insert_rows(ReplayService& service, std::string_view table,
                   std::span<const RowsColumn> columns, std::string_view structure,
                   std::span<const RowsItem> items, TimePoint deadline, Random& random,
                   const WaitOptions& wait, std::vector<ItemKey>& keys) {
  keys.clear();
  REVERIE_ASSIGN_OR_RETURN(
      const RowsChunk rows,
      rows_chunk(columns, structure, {random.next(), random.next(), 0}, chunk_allocator(service)));
  REVERIE_RETURN_IF_ERROR(check_items(items, rows.chunk->rows()));
  std::vector<Item> made;
  made.reserve(items.size());
  for (const RowsItem& item : items) {
    const Piece piece{rows.chunk.get(), item.begin, item.end - item.begin};
    made.push_back({random.next(), item.priority, Trajectory(rows.layout, {&piece, 1}), 0});
    keys.push_back(made.back().key);
  }
  InsertRequest request;
  request.table = table;
  request.items = made;
  request.deadline = deadline;
  const InsertResult result = insert_and_wait(service, request, wait);
  keys.resize(result.applied);
  if (result.status.ok() || items.size() == 1) return result.status;
  return result.status.with_context(format("{} of {} items are in", result.applied, items.size()));
}

}  // namespace reverie
