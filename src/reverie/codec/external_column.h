// External columns: rows that lie in a file beside the store, which holds file, offset and size.
//
//     [ file: text ][ offset u64 ][ size u64 ][ first row u32 ]      kExternal
//
// A store, a server, a checkpoint and a journal carry these bytes as they carry any encoded column.
// Only a reader resolves them, by what its own user has given it (record/external_files.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// A part of a file, and where a column begins in it.
struct ExternalRange {
  static constexpr std::size_t kFileBytesMax = 4096;

  // A name that means something to the reader's resolver: a path below its folder, for example.
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  // Rows of the part before the column's first one.
  std::uint32_t first_row = 0;

  friend bool operator==(const ExternalRange&, const ExternalRange&) = default;
};

// INVALID_ARGUMENT for an empty name, one that is too long or holds a NUL, and for a range that
// ends beyond 2^63 - 1.
Status check_external(const ExternalRange& range);

void append_external(const ExternalRange& range, std::vector<std::byte>& out);

// DATA_LOSS, naming the column, for bytes that append_external does not write of a range that
// check_external accepts.
Result<ExternalRange> read_external(const TensorSpec& spec, std::span<const std::byte> bytes);

}  // namespace reverie
