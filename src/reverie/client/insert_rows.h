// Inserts existing rows as one chunk, with items over ranges of them.
//
//     chunk     [ row 0 ................................................ row 999 ]
//     items        [ 0, 16 )   [ 16, 32 )   ...
//
// This puts a data set into a table without copying it: columns may be external
// (record/rows_chunk.h), and are read when an item is sampled.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/record/item.h"
#include "reverie/record/rows_chunk.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

struct RowsItem {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::optional<double> priority = {};  // none: the largest that the table has seen
};

// Inserts the items in order, and stops at the first that is refused: `keys` gets the keys of
// inserted items. Refuses what rows_chunk() refuses, and ranges beyond the rows with
// INVALID_ARGUMENT.
Status insert_rows(ReplayService& service, std::string_view table,
                   std::span<const RowsColumn> columns, std::string_view structure,
                   std::span<const RowsItem> items, TimePoint deadline, Random& random,
                   const WaitOptions& wait, std::vector<ItemKey>& keys);

}  // namespace reverie
