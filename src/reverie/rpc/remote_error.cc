// Tested in peer_test.cc and tests/fuzz/rpc_fuzz.cc.
#include "reverie/rpc/remote_error.h"

#include <string_view>

#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

constexpr std::size_t kErrorTextMax = std::size_t{64} << 10;

// Cut where a character begins.
std::string_view shortened(std::string_view text) {
  if (text.size() <= kErrorTextMax) return text;
  std::size_t size = kErrorTextMax;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0u) == 0x80u) --size;
  return text.substr(0, size);
}

bool is_code(std::int64_t code) {
  return code > 0 && code <= 16 && code != 2 && code != 10;
}

}  // namespace

Payload encode_error(const RemoteError& error) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 4);
  writer.integer(static_cast<std::int64_t>(error.code));
  for (const std::string* text : {&error.type, &error.text, &error.traceback}) {
    writer.text(shortened(*text));
  }
  return payload;
}

RemoteError decode_error(const Payload& payload) {
  RemoteError unreadable{StatusCode::kDataLoss, "", "an error that cannot be read", ""};
  ValueReader reader(payload);
  std::string texts[3];
  if (reader.done()) return unreadable;
  const Result<ValueToken> tuple = reader.next();
  if (!tuple.ok() || tuple->kind != ValueKind::kTuple || tuple->count != 4) return unreadable;
  const Result<ValueToken> code = reader.next();
  if (!code.ok() || code->kind != ValueKind::kInteger || !is_code(code->integer)) {
    return unreadable;
  }
  for (std::string& text : texts) {
    const Result<ValueToken> token = reader.next();
    if (!token.ok() || token->kind != ValueKind::kText) return unreadable;
    text.assign(reinterpret_cast<const char*>(token->bytes.data()), token->bytes.size());
  }
  return {static_cast<StatusCode>(code->integer), texts[0], texts[1], texts[2]};
}

}  // namespace reverie
