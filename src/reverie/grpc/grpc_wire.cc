#include "reverie/grpc/grpc_wire.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace reverie {
namespace {

constexpr std::string_view kHexDigits = "0123456789ABCDEF";
constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u;  // of UTF-8
}

struct Unit {
  char letter;
  std::int64_t ns;
};
// From fine to coarse.
constexpr Unit kUnits[] = {{'n', 1},
                           {'u', 1'000},
                           {'m', 1'000'000},
                           {'S', 1'000'000'000},
                           {'M', 60'000'000'000},
                           {'H', 3'600'000'000'000}};
constexpr std::int64_t kTimeoutMax = 99'999'999;  // eight digits

}  // namespace

std::string percent_encode(std::string_view text, std::size_t size_bytes_max) {
  std::string encoded;
  std::size_t whole = 0;  // how much of `encoded` ends with a character
  for (const char byte : text) {
    if (!continues_character(byte)) whole = encoded.size();
    if (byte >= ' ' && byte <= '~' && byte != '%') {
      encoded += byte;
    } else {
      const auto value = static_cast<unsigned char>(byte);
      encoded += '%';
      encoded += kHexDigits[value >> 4u];
      encoded += kHexDigits[value & 15u];
    }
    if (encoded.size() > size_bytes_max) {
      encoded.resize(whole);
      return encoded;
    }
  }
  return encoded;
}

std::string percent_decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
        hex_value(text[i + 2]) >= 0) {
      decoded += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

Status status_from_wire(std::string_view number, std::string_view message) {
  int code = -1;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), code);
  if (error != std::errc() || stop != number.data() + number.size() || code < 0) {
    return internal_error("the peer sent a status that is not a number: '{}'",
                          number.substr(0, 32));
  }
  if (code == 0) return {};
  std::string text = percent_decode(message);
  if (code == 2) {
    if (text.starts_with("Stream removed")) return {StatusCode::kUnavailable, std::move(text)};
    return internal_error("UNKNOWN: {}", text);
  }
  if (code == 10) return internal_error("ABORTED: {}", text);
  if (code > 16) return internal_error("status {}: {}", code, text);
  return {static_cast<StatusCode>(code), std::move(text)};
}

std::optional<Duration> parse_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  const auto* const unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                        [&](Unit u) { return u.letter == text.back(); });
  if (unit == std::end(kUnits)) return std::nullopt;
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  std::int64_t ns = 0;
  if (__builtin_mul_overflow(static_cast<std::int64_t>(number), unit->ns, &ns)) {
    return Duration::max();
  }
  return Duration(ns);
}

std::string format_timeout(Duration timeout) {
  const std::int64_t ns = std::max<std::int64_t>(timeout.count(), 1);
  for (const Unit unit : kUnits) {
    const std::int64_t count = ns / unit.ns + (ns % unit.ns != 0 ? 1 : 0);
    if (count <= kTimeoutMax) return format("{}{}", count, unit.letter);
  }
  return format("{}H", kTimeoutMax);
}

std::optional<std::string> base64_decode(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int bit_count = 0;
  for (const char digit : text) {
    const std::size_t value = kBase64Digits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6u) | static_cast<std::uint32_t>(value);
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      bytes += static_cast<char>((bits >> static_cast<unsigned>(bit_count)) & 0xFFu);
    }
  }
  if (text.size() % 4 == 1) return std::nullopt;
  return bytes;
}

std::string base64_encode(std::string_view bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int bit_count = 0;
  for (const char byte : bytes) {
    bits = (bits << 8u) | static_cast<unsigned char>(byte);
    bit_count += 8;
    while (bit_count >= 6) {
      bit_count -= 6;
      text += kBase64Digits[(bits >> static_cast<unsigned>(bit_count)) & 63u];
    }
  }
  if (bit_count > 0) text += kBase64Digits[(bits << static_cast<unsigned>(6 - bit_count)) & 63u];
  return text;
}

}  // namespace reverie
