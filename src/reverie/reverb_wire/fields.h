// Fields of protobuf messages: reads them from untrusted bytes, and writes them.
//
// Reading uses protozero, which throws at malformed bytes; read_message() turns that into a Status
// in each public function, so that no exception leaves the room. A field with an unexpected wire
// type is skipped like an unknown field, as protobuf does.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <protozero/buffer_string.hpp>
#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/varint.hpp>

#include "reverie/base/status.h"

namespace reverie::wire {

using Bytes = std::span<const std::byte>;
using Reader = protozero::pbf_reader;
using WireType = protozero::pbf_wire_type;

// Levels of nesting, for messages that may contain themselves.
constexpr int kNestingMax = 64;

inline Reader reader_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The value to switch on: case field(6, WireType::varint).
constexpr std::uint32_t field(std::uint32_t number, WireType type) {
  return (number << 3) | static_cast<std::uint32_t>(type);
}
constexpr std::uint32_t varint_field(std::uint32_t number) {
  return field(number, WireType::varint);
}
constexpr std::uint32_t bytes_field(std::uint32_t number) {
  return field(number, WireType::length_delimited);
}
constexpr std::uint32_t double_field(std::uint32_t number) {
  return field(number, WireType::fixed64);
}

inline Bytes get_bytes(Reader& reader) {
  const protozero::data_view view = reader.get_view();
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}
// protozero's get_bool() reads the byte before it checks that there is one.
inline bool get_flag(Reader& reader) {
  return reader.get_uint64() != 0;
}
inline std::string get_text(Reader& reader) {
  return std::string(text_of(get_bytes(reader)));
}

// Calls on_field(reader, tag) for each field; it returns a Status, and must skip unknown fields.
template <typename OnField>
Status for_each_field(Bytes message, OnField on_field) {
  Reader reader = reader_of(message);
  while (reader.next()) REVERIE_RETURN_IF_ERROR(on_field(reader, reader.tag_and_type()));
  return {};
}

// Runs `read`; INVALID_ARGUMENT for malformed bytes. Every public function that reads does so
// inside a call of this.
template <typename Read>
auto read_message(const char* what, Read read) -> decltype(read()) {
  try {
    return read();
  } catch (const protozero::exception& error) {
    return invalid_argument("the bytes are not a valid {}: {}", what, error.what());
  }
}

// Appends the numbers of a repeated field, packed or single. Allocates no more than the bytes that
// are there justify.
inline bool take_numbers(Reader& reader, std::uint32_t tag, std::uint32_t number,
                         std::vector<std::uint64_t>& out) {
  if (tag == varint_field(number)) {
    out.push_back(reader.get_uint64());
    return true;
  }
  if (tag != bytes_field(number)) return false;
  for (const std::uint64_t value : reader.get_packed_uint64()) out.push_back(value);
  return true;
}

// --- Writing. Fields with their default value are left out, as proto3 does.

inline void put_varint(std::string& out, std::uint64_t value) {
  protozero::add_varint_to_buffer(&out, value);
}
inline std::size_t varint_bytes(std::uint64_t value) {
  return static_cast<std::size_t>(protozero::length_of_varint(value));
}
inline void put_tag(std::string& out, std::uint32_t tag) {
  put_varint(out, tag);
}
inline void put_uint(std::string& out, std::uint32_t number, std::uint64_t value) {
  if (value == 0) return;
  put_tag(out, varint_field(number));
  put_varint(out, value);
}
// Negative numbers take ten bytes, as protobuf's int32 and int64 do.
inline void put_int(std::string& out, std::uint32_t number, std::int64_t value) {
  put_uint(out, number, static_cast<std::uint64_t>(value));
}
inline void put_bool(std::string& out, std::uint32_t number, bool value) {
  put_uint(out, number, value ? 1 : 0);
}
inline void put_double_always(std::string& out, std::uint32_t number, double value) {
  put_tag(out, double_field(number));
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}
inline void put_double(std::string& out, std::uint32_t number, double value) {
  if (std::bit_cast<std::uint64_t>(value) != 0) put_double_always(out, number, value);
}
// The head of a field whose `size_bytes` bytes follow.
inline void put_head(std::string& out, std::uint32_t number, std::size_t size_bytes) {
  put_tag(out, bytes_field(number));
  put_varint(out, size_bytes);
}
inline std::size_t head_bytes(std::uint32_t number, std::size_t size_bytes) {
  return varint_bytes(bytes_field(number)) + varint_bytes(size_bytes);
}
// Messages are written even when they are empty: their presence means something.
inline void put_message(std::string& out, std::uint32_t number, std::string_view message) {
  put_head(out, number, message.size());
  out += message;
}
inline void put_text(std::string& out, std::uint32_t number, std::string_view text) {
  if (!text.empty()) put_message(out, number, text);
}
inline void put_packed(std::string& out, std::uint32_t number,
                       std::span<const std::uint64_t> values) {
  if (values.empty()) return;
  std::size_t size = 0;
  for (const std::uint64_t value : values) size += varint_bytes(value);
  put_head(out, number, size);
  for (const std::uint64_t value : values) put_varint(out, value);
}

}  // namespace reverie::wire
