// The body of an insert: consecutive records of what the server does not have of a writer's data.
//
//     head   [ writer, numbers ][ table ][ schema ][ open chunk ][ rows ][ layout ][ item ][ item ]
//     bulk   rows and columns of more than kInlineBytesMax, each aligned to 64 bytes
// The server has a copy of a writer's chunk that grows with it: the chunk is opened once, rows
// follow as they are published, and once the writer has compressed it, its columns replace the
// rows. Tables, schemas, layouts and chunks are numbered in the order in which they are sent; an
// item refers to them by number.
//
// adapters/peer/insert_ledger.h writes these, adapters/peer/insert_mirror.h reads them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reverie::insert_records {

inline constexpr std::size_t kInlineBytesMax = std::size_t{4} << 10;

// The first byte of each record.
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
  // The items have consecutive numbers, above all that were sent before on the connection.
  std::uint64_t first_number = 0;
  std::uint64_t settled_below = 0;  // no smaller number is sent again
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

// The bytes follow, here or in the bulk.
struct Rows {
  std::uint32_t chunk = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t is_in_bulk = 0;
};

// The content of kReplace. For each column, its codec, size and bytes follow.
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
inline constexpr std::uint8_t kPriorityFlag = 2;  // it has its own priority
inline constexpr std::uint8_t kTimeoutFlag = 4;   // its request has a limit: nanoseconds follow

// Follows the record's first byte. Then come the pieces, one for each in the layout.
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
