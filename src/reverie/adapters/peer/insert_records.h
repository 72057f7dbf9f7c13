// The body of an insert: records, one behind the other, of what a writer has and its server lacks.
//
//     head   [ writer, numbers ][ table ][ schema ][ open chunk ][ rows ][ layout ][ item ][ item ]
//     bulk   rows and columns of more than kInlineBytesMax, each from a multiple of 64 on
//
// A writer's chunk has a copy on the server's side that grows with it: it is opened once, rows
// follow as they are published, and once the writer has compressed it its columns replace the rows.
// Tables, schemas, layouts and chunks are numbered as they come; an item names them by number.
//
// insert_ledger.h writes these, insert_mirror.h reads them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reverie::insert_records {

inline constexpr std::size_t kInlineBytesMax = std::size_t{4} << 10;

// What each record begins with.
enum class Record : std::uint8_t {
  kTable = 1,
  kSchema = 2,
  kLayout = 3,
  kOpen = 4,     // a chunk: its rows or columns follow
  kRows = 5,     // of a chunk of raw rows
  kReplace = 7,  // all rows of a chunk, as encoded columns
  kForget = 8,   // no item refers to a chunk any more
  kItem = 9,
};

struct Head {
  std::uint32_t writer = 0;
  std::uint32_t zero = 0;
  std::uint64_t first_number = 0;   // of the items, which follow each other
  std::uint64_t settled_below = 0;  // no number below is sent again
};
static_assert(sizeof(Head) == 24);

struct Open {
  std::uint32_t chunk = 0;
  std::uint32_t schema = 0;
  std::uint64_t key = 0;
  std::uint64_t episode = 0;
  std::uint64_t var_bytes = 0;
  std::uint32_t first_step = 0;
  std::uint32_t capacity = 0;
  std::uint32_t is_compressible = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Open) == 48);

// Then the bytes: here or in the bulk.
struct Rows {
  std::uint32_t chunk = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t is_in_bulk = 0;
};

// Belongs to kReplace. Then for each column its
// codec and size, and the bytes.
struct Columns {
  std::uint32_t chunk = 0;
  std::uint32_t rows = 0;
  std::uint32_t is_in_bulk = 0;
};
struct Column {
  std::uint64_t size_bytes = 0;
  std::uint64_t codec = 0;
};

inline constexpr std::uint8_t kBeginsFlag = 1;    // the first item of its request
inline constexpr std::uint8_t kPriorityFlag = 2;  // it has a priority of its own
inline constexpr std::uint8_t kTimeoutFlag = 4;   // its request has a limit: nanoseconds follow

// Behind the record's first byte. Then the pieces: one for each of the layout.
struct ItemHead {
  std::uint8_t flags = 0;
  std::uint8_t zero = 0;
  std::uint16_t table = 0;
  std::uint32_t layout = 0;
  std::uint64_t key = 0;
  double priority = 0;
  std::int64_t version = 0;
};
static_assert(sizeof(ItemHead) == 32);

struct ItemPiece {
  std::uint32_t chunk = 0;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
};
static_assert(sizeof(ItemPiece) == 12);

inline constexpr std::uint8_t kSqueezedFlag = 1;
inline constexpr std::uint8_t kOtherTextFlag = 2;
inline constexpr std::uint8_t kStepwiseFlag = 4;

struct LayoutColumnRecord {
  std::uint16_t chunk_column = 0;
  std::uint16_t piece_begin = 0;
  std::uint16_t piece_end = 0;
  std::uint8_t flags = 0;
  std::uint8_t zero = 0;
};
static_assert(sizeof(LayoutColumnRecord) == 8);

}  // namespace reverie::insert_records
