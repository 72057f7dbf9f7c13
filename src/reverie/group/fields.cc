// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/fields.h"

namespace reverie {

Result<ValueToken> FieldReader::next(ValueKind kind) {
  if (reader_.done()) return data_loss("a message of a group ends before its last field");
  REVERIE_ASSIGN_OR_RETURN(ValueToken token, reader_.next());
  if (token.kind != kind) {
    return data_loss("a field of a group's message is of kind {}; it must be of kind {}",
                     static_cast<int>(token.kind), static_cast<int>(kind));
  }
  return token;
}

Status FieldReader::begin(std::size_t count) {
  REVERIE_ASSIGN_OR_RETURN(const ValueToken token, next(ValueKind::kTuple));
  if (token.count != count) {
    return data_loss("a group's message has {} fields; it must have {}", token.count, count);
  }
  return {};
}

Result<std::size_t> FieldReader::list(std::size_t count_max) {
  REVERIE_ASSIGN_OR_RETURN(const ValueToken token, next(ValueKind::kList));
  if (token.count > count_max) {
    return data_loss("a list of a group's message has {} entries; the bound is {}", token.count,
                     count_max);
  }
  return token.count;
}

Result<std::int64_t> FieldReader::integer() {
  REVERIE_ASSIGN_OR_RETURN(const ValueToken token, next(ValueKind::kInteger));
  return token.integer;
}

Result<std::uint64_t> FieldReader::number() {
  REVERIE_ASSIGN_OR_RETURN(const std::int64_t value, integer());
  return static_cast<std::uint64_t>(value);
}

Result<std::size_t> FieldReader::size(std::size_t most) {
  REVERIE_ASSIGN_OR_RETURN(const std::uint64_t value, number());
  if (value > most) {
    return data_loss("a number of a group's message is {}; the bound is {}", value, most);
  }
  return static_cast<std::size_t>(value);
}

Result<bool> FieldReader::flag() {
  REVERIE_ASSIGN_OR_RETURN(const std::size_t value, size(1));
  return value == 1;
}

Result<std::string> FieldReader::text(std::size_t size_max) {
  REVERIE_ASSIGN_OR_RETURN(const ValueToken token, next(ValueKind::kText));
  if (token.bytes.size() > size_max) {
    return data_loss("a text of a group's message has {} bytes; the bound is {}",
                     token.bytes.size(), size_max);
  }
  return std::string(reinterpret_cast<const char*>(token.bytes.data()), token.bytes.size());
}

Result<std::span<const std::byte>> FieldReader::bytes() {
  REVERIE_ASSIGN_OR_RETURN(const ValueToken token, next(ValueKind::kBytes));
  return token.bytes;
}

Status FieldReader::end() const {
  if (!reader_.done()) return data_loss("a group's message has more than its fields");
  return {};
}

}  // namespace reverie
