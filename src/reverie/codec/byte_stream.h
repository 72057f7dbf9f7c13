// Numbers and strings one after another, little-endian, unaligned: the format of our files.
//
//     ByteWriter(out).u32(7).text("replay").f64(0.5);
//
//     ByteReader in(bytes);
//     const std::uint32_t count = in.u32();
//     const std::string name = in.text();
//     if (!in.is_done()) return data_loss(...);
//
// A reader that runs out of bytes returns zeros and empty strings from there on, and ok() becomes
// false: so callers check once, at the end. Any bytes are safe to read.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reverie {

// Appends to a vector, which outlives it.
class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(out) {}

  ByteWriter& u8(std::uint8_t value) { return number(value); }
  ByteWriter& u32(std::uint32_t value) { return number(value); }
  ByteWriter& u64(std::uint64_t value) { return number(value); }
  ByteWriter& i64(std::int64_t value) { return number(static_cast<std::uint64_t>(value)); }
  ByteWriter& f64(double value) { return number(std::bit_cast<std::uint64_t>(value)); }
  ByteWriter& f32(float value) { return number(std::bit_cast<std::uint32_t>(value)); }
  ByteWriter& raw(std::span<const std::byte> bytes) {
    if (bytes.empty()) return *this;
    const std::size_t at = out_.size();
    out_.resize(at + bytes.size());
    std::memcpy(out_.data() + at, bytes.data(), bytes.size());
    return *this;
  }
  // Preceded by its size in bytes, as 32 bits.
  ByteWriter& text(std::string_view value) {
    u32(static_cast<std::uint32_t>(value.size()));
    return raw(std::as_bytes(std::span(value)));
  }

 private:
  template <std::unsigned_integral T>
  ByteWriter& number(T value) {
    std::byte bytes[sizeof(T)];
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
    return raw(bytes);
  }

  std::vector<std::byte>& out_;
};

// Views bytes, which outlive it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  double f64() { return std::bit_cast<double>(u64()); }
  float f32() { return std::bit_cast<float>(u32()); }
  // If fewer bytes are left: empty, and the reader fails.
  std::span<const std::byte> raw(std::uint64_t size) {
    if (size > rest_.size()) {
      fail();
      return {};
    }
    const auto bytes = rest_.first(static_cast<std::size_t>(size));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }
  std::string text() {
    const auto bytes = raw(u32());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // How many elements follow. If the bytes left cannot hold so many of at least `each_bytes`: 0,
  // and the reader fails. So no memory is taken for more than the bytes can hold.
  std::size_t count32(std::size_t each_bytes) { return count(u32(), each_bytes); }
  std::size_t count64(std::size_t each_bytes) { return count(u64(), each_bytes); }

  std::size_t left() const { return rest_.size(); }
  // Whether everything that was read was there.
  bool ok() const { return ok_; }
  // The same, and no byte is left.
  bool is_done() const { return ok_ && rest_.empty(); }
  void fail() {
    ok_ = false;
    rest_ = {};
  }

 private:
  template <std::unsigned_integral T>
  T number() {
    const auto bytes = raw(sizeof(T));
    T value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[i]) << (8 * i)));
    }
    return value;
  }
  std::size_t count(std::uint64_t stated, std::size_t each_bytes) {
    if (stated > rest_.size() / each_bytes) {
      fail();
      return 0;
    }
    return static_cast<std::size_t>(stated);
  }

  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace reverie
