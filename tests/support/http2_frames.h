// HTTP/2 frames as bytes, valid or not, for tests that act as a hostile peer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reverie::test {

inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : std::uint8_t {
  kDataFrame = 0,
  kHeadersFrame = 1,
  kPriorityFrame = 2,
  kResetFrame = 3,
  kSettingsFrame = 4,
  kPingFrame = 6,
  kGoawayFrame = 7,
  kWindowFrame = 8,
  kContinuationFrame = 9,
};
inline constexpr std::uint8_t kEndStream = 1;
inline constexpr std::uint8_t kEndHeaders = 4;

inline std::string big_endian(std::uint32_t value, int bytes) {
  std::string text;
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
    text += static_cast<char>(value >> static_cast<unsigned>(shift));
  }
  return text;
}

inline std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                         std::string_view payload) {
  std::string text = big_endian(static_cast<std::uint32_t>(payload.size()), 3);
  text += static_cast<char>(type);
  text += static_cast<char>(flags);
  return text.append(big_endian(stream, 4)).append(payload);
}

// Literal header fields. Requires names and values below 127 bytes.
inline std::string fields(const std::vector<std::pair<std::string, std::string>>& list) {
  std::string text;
  for (const auto& [name, value] : list) {
    text += '\0';
    text += static_cast<char>(name.size());
    text += name;
    text += static_cast<char>(value.size());
    text += value;
  }
  return text;
}

inline std::string call_fields(const std::string& path) {
  return fields({{":method", "POST"},
                 {":scheme", "http"},
                 {":path", path},
                 {":authority", "x"},
                 {"te", "trailers"},
                 {"content-type", "application/grpc"}});
}

inline std::string grpc_message(std::string_view text) {
  std::string message(1, '\0');
  return message.append(big_endian(static_cast<std::uint32_t>(text.size()), 4)).append(text);
}

inline std::string hello() {
  return std::string(kPreface).append(frame(kSettingsFrame, 0, 0, ""));
}

}  // namespace reverie::test
