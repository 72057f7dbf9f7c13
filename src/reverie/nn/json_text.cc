// Tested in safetensors_test.cc.
#include "reverie/nn/json_text.h"

#include <limits>

namespace reverie::nn {
namespace {

void append_utf8(std::uint32_t code, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3f));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// The character that a backslash and `letter` stand for; 0 for none.
char escaped(char letter) {
  switch (letter) {
    case '"':
    case '\\':
    case '/':
      return letter;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (static_cast<unsigned char>(letter) < 0x20) {
      quoted += format("\\u{:04x}", static_cast<unsigned>(letter));
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

void JsonReader::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
    ++at_;
  }
}

Status JsonReader::error(std::string_view what) const {
  return data_loss("the header is malformed at byte {}: {}", at_, what);
}

bool JsonReader::take(char symbol) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != symbol) return false;
  ++at_;
  return true;
}

Status JsonReader::expect(char symbol) {
  if (take(symbol)) return {};
  return error(format("'{}' is missing", symbol));
}

Status JsonReader::expect_end() {
  skip_space();
  if (at_ == text_.size()) return {};
  return error("there is more after the last '}'");
}

Result<std::uint32_t> JsonReader::hex4() {
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char digit = at_ < text_.size() ? text_[at_] : '\0';
    if (digit >= '0' && digit <= '9') {
      code = code * 16 + static_cast<std::uint32_t>(digit - '0');
    } else if ((digit | 0x20) >= 'a' && (digit | 0x20) <= 'f') {
      code = code * 16 + static_cast<std::uint32_t>((digit | 0x20) - 'a' + 10);
    } else {
      return error("\\u needs four hexadecimal digits");
    }
  }
  return code;
}

Result<std::string> JsonReader::string() {
  REVERIE_RETURN_IF_ERROR(expect('"'));
  std::string value;
  for (;;) {
    if (at_ == text_.size()) return error("a string does not end");
    const char letter = text_[at_++];
    if (letter == '"') return value;
    if (static_cast<unsigned char>(letter) < 0x20) return error("a string holds a control byte");
    if (letter != '\\') {
      value += letter;
      continue;
    }
    const char kind = at_ < text_.size() ? text_[at_++] : '\0';
    if (kind == 'u') {
      REVERIE_ASSIGN_OR_RETURN(std::uint32_t code, hex4());
      if (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair
        if (text_.substr(at_, 2) != "\\u") return error("half of a surrogate pair is missing");
        at_ += 2;
        REVERIE_ASSIGN_OR_RETURN(const std::uint32_t low, hex4());
        if (low < 0xdc00 || low > 0xdfff) return error("half of a surrogate pair is missing");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else if (code >= 0xdc00 && code < 0xe000) {
        return error("half of a surrogate pair is missing");
      }
      append_utf8(code, value);
    } else if (const char meant = escaped(kind)) {
      value += meant;
    } else {
      return error("an unknown escape");
    }
  }
}

Result<std::uint64_t> JsonReader::number() {
  skip_space();
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::size_t begin = at_;
  std::uint64_t value = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
    const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
    if (value > (kMax - digit) / 10) return error("a number is too large");
    value = value * 10 + digit;
  }
  if (at_ == begin) return error("a whole number is missing");
  return value;
}

}  // namespace reverie::nn
