// Arrays of plain numbers in the format of codec/byte_stream.h: saved states are made of them.
//
//     write_array<float>(weights, out);          u64 count, then the values, little-endian
//     const auto weights = read_array<float>(in);
//     REVERIE_RETURN_IF_ERROR(check_done(in, "the agent"));
//
// Each part of a state is an array of bytes too, so that each part is checked alone.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"

namespace reverie {

// Values are written as they are in memory.
static_assert(std::endian::native == std::endian::little);

template <typename T>
void write_array(std::span<const std::type_identity_t<T>> values, ByteWriter& out) {
  static_assert(std::is_trivially_copyable_v<T>);
  out.u64(values.size()).raw(std::as_bytes(values));
}

// Empty if there are fewer values; then the reader has failed.
template <typename T>
std::vector<T> read_array(ByteReader& in) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values(in.count64(sizeof(T)));
  const std::span<const std::byte> bytes = in.raw(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// DATA_LOSS unless everything was there and no byte is left.
inline Status check_done(const ByteReader& in, std::string_view what) {
  if (in.is_done()) return {};
  return data_loss("{} is {}; the checkpoint is damaged, or of another version", what,
                   in.ok() ? "longer than it should be" : "cut short");
}

}  // namespace reverie
