// External columns: rows that are in a file; the store has only the file's name, offset and size.
//
//     [ file: text ][ offset u64 ][ size u64 ][ first row u32 ]      kExternal
//
// A store, a server, a checkpoint and a journal treat these bytes like any encoded column. Only a
// reader resolves them, with what its own user has configured (record/external_files.h).
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

  // A name that the reader's resolver understands: a path below its folder, for example.
  std::string file;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  // Rows of the part before the column's first one.
  std::uint32_t first_row = 0;

  friend bool operator==(const ExternalRange&, const ExternalRange&) = default;
};

// INVALID_ARGUMENT if the name is empty, too long or contains a NUL, and if the range ends beyond
// 2^63 - 1.
Status check_external(const ExternalRange& range);

void append_external(const ExternalRange& range, std::vector<std::byte>& out);

// DATA_LOSS, naming the column, unless append_external writes such bytes for a range that
// check_external accepts.
Result<ExternalRange> read_external(const TensorSpec& spec, std::span<const std::byte> bytes);

}  // namespace reverie
