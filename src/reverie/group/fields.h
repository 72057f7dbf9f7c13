// Reads the fields of a message one after another, each of the expected kind.
//
//     FieldReader fields(payload);
//     REVERIE_RETURN_IF_ERROR(fields.begin(3));
//     REVERIE_ASSIGN_OR_RETURN(const std::uint64_t epoch, fields.number());
// Malformed bytes give DATA_LOSS: they are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {

// Not thread-safe. The payload outlives it.
class FieldReader {
 public:
  explicit FieldReader(const Payload& payload) : reader_(payload) {}

  // A tuple of `count` fields.
  Status begin(std::size_t count);
  // A list; returns its length, which is at most `count_max`.
  Result<std::size_t> list(std::size_t count_max);
  Result<std::int64_t> integer();
  // Written by write_number().
  Result<std::uint64_t> number();
  // A number of at most `most`.
  Result<std::size_t> size(std::size_t most);
  Result<bool> flag();
  // At most `size_max` bytes.
  Result<std::string> text(std::size_t size_max);
  // Views the payload.
  Result<std::span<const std::byte>> bytes();
  // Ok if nothing follows.
  Status end() const;

 private:
  Result<ValueToken> next(ValueKind kind);
  ValueReader reader_;
};

inline void write_number(ValueWriter& writer, std::uint64_t value) {
  writer.integer(static_cast<std::int64_t>(value));
}

}  // namespace reverie
