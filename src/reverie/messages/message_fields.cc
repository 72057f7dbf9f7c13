#include "reverie/messages/message_fields.h"

namespace reverie {
namespace {

bool is_known_code(std::uint64_t code) {
  constexpr std::uint64_t kUnknown = 2;  // one of gRPC's codes; Reverie never returns it
  constexpr std::uint64_t kAborted = 10;
  constexpr std::uint64_t kLast = 16;
  return code <= kLast && code != kUnknown && code != kAborted;
}

}  // namespace

// The tuple begins with the number of fields.
void FieldsOut::finish() {
  Payload tuple;
  ValueWriter(tuple).begin(ValueKind::kTuple, count_);
  payload_.head.insert(payload_.head.begin(), tuple.head.begin(), tuple.head.end());
}

FieldsIn::FieldsIn(const Payload& payload, std::string_view what) : reader_(payload), what_(what) {
  ValueToken tuple;
  if (next(ValueKind::kTuple, tuple)) left_ = tuple.count;
}

bool FieldsIn::next(ValueKind kind, ValueToken& token) {
  if (!ok()) return false;
  if (left_ == 0 || reader_.done()) {
    fail(data_loss("{} ends before its last field", what_));
    return false;
  }
  Result<ValueToken> read = reader_.next();
  if (!read.ok()) {
    fail(read.status().with_context(what_));
    return false;
  }
  if (read->kind != kind) {
    fail(data_loss("a field of {} is of kind {}; it must be of kind {}", what_,
                   static_cast<int>(read->kind), static_cast<int>(kind)));
    return false;
  }
  --left_;
  token = std::move(*read);
  return true;
}

bool FieldsIn::integer(std::uint64_t& value, std::uint64_t most) {
  ValueToken token;
  if (!next(ValueKind::kInteger, token)) return false;
  value = static_cast<std::uint64_t>(token.integer);
  if (value <= most) return true;
  fail(data_loss("a number of {} is {}; the bound is {}", what_, value, most));
  return false;
}

void FieldsIn::out_of_range(std::uint64_t value) {
  fail(data_loss("a number of {} is {}, which its kind cannot hold", what_,
                 static_cast<std::int64_t>(value)));
}

void FieldsIn::real(double& value) {
  ValueToken token;
  if (next(ValueKind::kReal, token)) value = token.real;
}

void FieldsIn::flag(bool& value) {
  std::uint64_t read = 0;
  if (integer(read, 1)) value = read == 1;
}

void FieldsIn::text(std::string& text, std::size_t size_max) {
  std::string_view view;
  this->text(view, size_max);
  if (ok()) text = view;
}

void FieldsIn::text(std::string_view& text, std::size_t size_max) {
  ValueToken token;
  if (!next(ValueKind::kText, token)) return;
  if (token.bytes.size() > size_max) {
    return fail(data_loss("a text of {} has {} bytes; the bound is {}", what_, token.bytes.size(),
                          size_max));
  }
  text = {reinterpret_cast<const char*>(token.bytes.data()), token.bytes.size()};
}

void FieldsIn::texts(std::vector<std::string>& all, std::size_t count_max, std::size_t size_max) {
  ValueToken list;
  if (!next(ValueKind::kList, list)) return;
  if (list.count > count_max) {
    return fail(
        data_loss("a list of {} has {} entries; the bound is {}", what_, list.count, count_max));
  }
  left_ += list.count;
  for (std::size_t i = 0; i < list.count && ok(); ++i) text(all.emplace_back(), size_max);
}

bool FieldsIn::array_bytes(std::span<const std::byte>& bytes, std::size_t value_bytes) {
  ValueToken token;
  if (!next(ValueKind::kBytes, token)) return false;
  bytes = token.bytes;
  if (bytes.size() % value_bytes == 0) return true;
  fail(data_loss("an array of {} has {} bytes, which is no multiple of {}", what_, bytes.size(),
                 value_bytes));
  return false;
}

void FieldsIn::status(Status& status) {
  std::uint64_t code = 0;
  std::string read;
  number(code);
  text(read, kStatusTextMax);
  if (!ok()) return;
  if (!is_known_code(code)) {
    return fail(data_loss("{} has the code {}, which is unknown", what_, code));
  }
  if (code != 0) status = Status(static_cast<StatusCode>(code), std::move(read));
}

Status FieldsIn::finish() {
  if (ok() && (left_ > 0 || !reader_.done())) fail(data_loss("{} has more than its fields", what_));
  return status_;
}

}  // namespace reverie
