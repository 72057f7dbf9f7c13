// Packed samples: how a Reverie server answers a Reverie client.
//
// A client that can read them sets field 1000 of its request, which other servers skip; the
// response then has one field 1000 instead of its entries. A message contains many samples: one
// array per attribute, and each chunk once, however many samples refer to it:
//
//     header     counts, the time of the draw                                   kHeaderBytes
//     arrays     keys, probabilities, priorities, inserted_at, table_sizes,
//                versions, times_sampled, layouts: each with one number per sample; with
//                kHasRedelivered a byte per sample, 1 if it is redelivered (sample_batch.h)
//     pieces     chunk, offset, length of each piece, sample by sample
//     schemas    { columns: { dtype, shape } }
//     layouts    { schema of each piece, columns: { column of the chunk, pieces, flags } }
//     chunks     { schema, rows, form, of mapped ones: Mapped, of encoded ones: codec and bytes of
//                each column, and of those that are mapped its offset }
//     bytes      of the chunks, one after another
//
// A chunk is sent in one of these forms. kRows: rows as they are in memory, gathered for this
// message, only those that its samples need; small encoded chunks are decoded for this, since
// framing one costs more than decoding it. kEncoded: the columns as the store keeps them.
// kMappedRows and kMappedColumns, for a reader that maps the store's memory: where a chunk's rows
// or columns lie there.
//
// Numbers are little-endian and not aligned. Columns that no sample of the message uses are left
// out, so a schema may be a subset of the stored one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

namespace reverie::packed {

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie");

// The version of this format; a client asks for the highest that it reads. Version 1 has no
// kHasRedelivered.
inline constexpr std::uint64_t kVersion = 2;
inline constexpr std::uint64_t kFirstVersion = 1;
inline constexpr std::uint64_t kRedeliveredVersion = 2;

struct Header {
  std::uint32_t item_count = 0;
  std::uint32_t piece_count = 0;
  std::uint32_t schema_count = 0;
  std::uint32_t layout_count = 0;
  std::uint32_t chunk_count = 0;
  std::uint32_t flags = 0;
  std::int64_t drawn_at_ns = 0;  // on the clock of inserted_at
};
inline constexpr std::size_t kHeaderBytes = sizeof(Header);
static_assert(kHeaderBytes == 32);

struct WirePiece {
  std::uint32_t chunk = 0;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
};
static_assert(sizeof(WirePiece) == 12);

// Flags of a message.
inline constexpr std::uint32_t kRateLimited = 1;
inline constexpr std::uint32_t kHasRedelivered = 2;

enum class Form : std::uint8_t { kRows = 0, kEncoded = 1, kMappedRows = 2, kMappedColumns = 3 };

// Where a chunk's memory lies in an arena that the reader maps (os/shared_arena.h).
struct Mapped {
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t generation = 0;
};
static_assert(sizeof(Mapped) == 24);

// Flags of a column of a layout. Squeezed: one row and no leading axis. Other text: it is read as
// bytes where the chunk's schema says str, or the reverse.
inline constexpr std::uint8_t kSqueezedFlag = 1;
inline constexpr std::uint8_t kOtherTextFlag = 2;

// Bytes that one item takes in the arrays.
inline constexpr std::size_t kItemBytes = 6 * 8 + 4 + 4;

template <typename T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <typename T>
void put_array(std::string& out, std::span<const T> values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

// Takes values off the front of bytes that came from another process.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : left_(bytes) {}

  template <typename T>
  bool take(T* value) {
    if (left_.size() < sizeof(T)) return false;
    std::memcpy(value, left_.data(), sizeof(T));
    left_ = left_.subspan(sizeof(T));
    return true;
  }
  // `count` values of `size_bytes` each; none if fewer bytes are left.
  std::optional<std::span<const std::byte>> take_array(std::size_t count, std::size_t size_bytes) {
    if (count > left_.size() / size_bytes) return std::nullopt;
    const auto taken = left_.first(count * size_bytes);
    left_ = left_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> left() const { return left_; }

 private:
  std::span<const std::byte> left_;
};

}  // namespace reverie::packed
