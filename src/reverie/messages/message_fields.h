// The fields of a message, defined once for writing and reading.
//
//     constexpr auto kAskFields = [](auto& fields, auto& ask) {
//       fields.number(ask.version);
//       fields.text(ask.host, kHostMax);
//     };
//     payload = write_fields(ask, kAskFields);
//     REVERIE_ASSIGN_OR_RETURN(ask, read_fields<Ask>(payload, "a request", kAskFields));
// A message is a tuple of values (value_writer.h). A message that is read is not trusted: malformed
// bytes give DATA_LOSS, and reading stops at the first wrong field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {

inline constexpr std::size_t kStatusTextMax = std::size_t{64} << 10;

// Writes fields. Not thread-safe.
class FieldsOut {
 public:
  // The payload is empty and outlives this.
  explicit FieldsOut(Payload& payload) : payload_(payload), writer_(payload) {}

  // An integer or an enumerator; the reader checks that it is at most `most`.
  template <typename T>
  void number(const T& value, std::uint64_t most = 0) {
    (void)most;
    ++count_;
    writer_.integer(static_cast<std::int64_t>(value));
  }
  void real(double value) {
    ++count_;
    writer_.real(value);
  }
  void flag(bool value) { number(value ? 1 : 0); }
  // Cut to `size_max` bytes.
  void text(std::string_view text, std::size_t size_max = std::string_view::npos) {
    ++count_;
    writer_.text(text.substr(0, size_max));
  }
  void texts(const std::vector<std::string>& all, std::size_t count_max, std::size_t size_max) {
    (void)count_max;
    ++count_;
    writer_.begin(ValueKind::kList, all.size());
    for (const std::string& one : all) writer_.text(std::string_view(one).substr(0, size_max));
  }
  // Values as they lie in memory.
  template <typename Values>
  void array(const Values& values) {
    ++count_;
    writer_.bytes(std::as_bytes(std::span(values)));
  }
  void status(const Status& status) {
    number(status.code());
    text(status.message(), kStatusTextMax);
  }
  // `visit(fields, entry)` writes one entry.
  template <typename Entries, typename Visit>
  void entries(const Entries& all, const Visit& visit) {
    number(all.size());
    for (const auto& entry : all) visit(*this, entry);
  }
  template <typename T, typename Visit>
  void optional(const std::optional<T>& value, const Visit& visit) {
    flag(value.has_value());
    if (value) visit(*this, *value);
  }
  // Whether the fields that only a part of the messages has, at their end, are to be written.
  bool has_more(bool are_there) const { return are_there; }
  // Call it after the last field.
  void finish();

 private:
  Payload& payload_;
  ValueWriter writer_;
  std::size_t count_ = 0;
};

// Reads fields in the order in which they were written. After a wrong field the following ones are
// left unchanged. Not thread-safe; the payload outlives this and the returned views.
class FieldsIn {
 public:
  // `what` is the message's name in errors.
  FieldsIn(const Payload& payload, std::string_view what);

  template <typename T>
  void number(T& value, std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    std::uint64_t read = 0;
    if (!integer(read, most)) return;
    value = static_cast<T>(read);
    if (static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) != read) out_of_range(read);
  }
  void real(double& value);
  void flag(bool& value);
  void text(std::string& text, std::size_t size_max = std::string::npos);
  void text(std::string_view& text, std::size_t size_max = std::string_view::npos);
  void texts(std::vector<std::string>& all, std::size_t count_max, std::size_t size_max);
  template <typename T>
  void array(std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::span<const std::byte> bytes;
    if (!array_bytes(bytes, sizeof(T))) return;
    values.resize(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  // A code that this version does not know is wrong.
  void status(Status& status);
  template <typename T, typename Visit>
  void entries(std::vector<T>& all, const Visit& visit) {
    std::uint64_t count = 0;
    number(count);
    for (std::uint64_t i = 0; i < count && ok(); ++i) visit(*this, all.emplace_back());
  }
  template <typename T, typename Visit>
  void optional(std::optional<T>& value, const Visit& visit) {
    bool is_there = false;
    flag(is_there);
    if (is_there) visit(*this, value.emplace());
  }

  // Whether more fields follow.
  bool has_more(bool) const { return ok() && left_ > 0; }

  bool ok() const { return status_.ok(); }
  // Ok if all fields were valid and nothing is left.
  Status finish();

 private:
  bool next(ValueKind kind, ValueToken& token);
  bool integer(std::uint64_t& value, std::uint64_t most);
  void out_of_range(std::uint64_t value);
  bool array_bytes(std::span<const std::byte>& bytes, std::size_t value_bytes);
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  ValueReader reader_;
  const std::string_view what_;
  std::size_t left_ = 1;  // values: the tuple first
  Status status_;
};

// `visit(fields)` writes all fields.
template <typename Visit>
Payload write_fields(const Visit& visit) {
  Payload payload;
  FieldsOut out(payload);
  visit(out);
  out.finish();
  return payload;
}

// `visit(fields, message)` writes all fields.
template <typename T, typename Visit>
Payload write_fields(const T& message, const Visit& visit) {
  return write_fields([&](auto& fields) { visit(fields, message); });
}

template <typename T, typename Visit>
Result<T> read_fields(const Payload& payload, std::string_view what, const Visit& visit) {
  FieldsIn in(payload, what);
  T message{};
  visit(in, message);
  REVERIE_RETURN_IF_ERROR(in.finish());
  return message;
}

}  // namespace reverie
