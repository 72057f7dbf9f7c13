// Writes and reads the numbers and texts of a writer's records (insert_records.h): little-endian,
// unaligned.
//
// Tested in insert_mirror_test.cc.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reverie/base/status.h"

namespace reverie {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

// Appends to bytes that outlive it. Not thread-safe.
class StoreBytesOut {
 public:
  explicit StoreBytesOut(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    raw(std::as_bytes(std::span(&value, 1)));
  }
  void raw(std::span<const std::byte> bytes) {
    const std::size_t at = out_.size();
    out_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(out_.data() + at, bytes.data(), bytes.size());
  }
  void text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    raw(std::as_bytes(std::span(text)));
  }
  template <typename T>
  void array(std::span<const T> values) {
    put(static_cast<std::uint32_t>(values.size()));
    raw(std::as_bytes(values));
  }
  std::size_t size_bytes() const { return out_.size(); }
  // Overwrites the value at `at`.
  template <typename T>
  void patch(std::size_t at, const T& value) {
    std::memcpy(out_.data() + at, &value, sizeof(T));
  }

 private:
  std::vector<std::byte>& out_;
};

// Takes values from the front of bytes from another process. If bytes are missing, all further
// values are 0 or empty, and status() says so. Allocates nothing for a length before its bytes are
// there. Not thread-safe.
class StoreBytesIn {
 public:
  explicit StoreBytesIn(std::span<const std::byte> bytes) : left_(bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (const auto bytes = raw(sizeof(T)); !bytes.empty()) {
      std::memcpy(&value, bytes.data(), sizeof(T));
    }
    return value;
  }
  // Empty if the bytes are missing.
  std::span<const std::byte> raw(std::size_t size_bytes) {
    if (size_bytes > left_.size()) {
      is_short_ = true;
      left_ = {};
      return {};
    }
    const auto taken = left_.first(size_bytes);
    left_ = left_.subspan(size_bytes);
    return taken;
  }
  std::string_view text() {
    const auto bytes = raw(get<std::uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  template <typename T>
  std::vector<T> array() {
    const std::size_t count = get<std::uint32_t>();
    std::vector<T> values;
    const auto bytes = raw(count * sizeof(T));
    if (bytes.empty()) return values;
    values.resize(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  bool is_short() const { return is_short_; }
  std::size_t left_bytes() const { return left_.size(); }
  // DATA_LOSS if bytes were missing, or if any are left.
  Status status(std::string_view what) const {
    if (is_short_) return data_loss("{} ends before all of it was read", what);
    if (!left_.empty()) return data_loss("{} has {} bytes too many", what, left_.size());
    return {};
  }

 private:
  std::span<const std::byte> left_;
  bool is_short_ = false;
};

}  // namespace reverie
