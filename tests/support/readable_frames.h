// The HTTP/2 frames of a server's answer, as text that a test can search.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nghttp2/nghttp2.h>

#include "tests/support/http2_frames.h"

namespace reverie::test {

// Frames as text: headers as "name: value", the payloads of others unchanged.
inline std::string readable(std::string_view bytes) {
  nghttp2_hd_inflater* inflater = nullptr;
  nghttp2_hd_inflate_new(&inflater);
  std::string text;
  while (bytes.size() >= 9) {
    const auto* const header = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const std::size_t size =
        (std::size_t{header[0]} << 16u) | (std::size_t{header[1]} << 8u) | header[2];
    if (bytes.size() < 9 + size) break;
    const std::string_view payload = bytes.substr(9, size);
    const auto* at = reinterpret_cast<const std::uint8_t*>(payload.data());
    std::size_t left = header[3] == kHeadersFrame ? size : 0;
    text += left > 0 ? "" : payload;
    while (left > 0) {
      nghttp2_nv field{};
      int flags = 0;
      const ssize_t used = nghttp2_hd_inflate_hd2(inflater, &field, &flags, at, left, 1);
      if (used < 0) break;
      at += used;
      left -= static_cast<std::size_t>(used);
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        text.append(reinterpret_cast<const char*>(field.name), field.namelen);
        text.append(": ").append(reinterpret_cast<const char*>(field.value), field.valuelen);
        text += '\n';
      }
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
    }
    nghttp2_hd_inflate_end_headers(inflater);
    bytes.remove_prefix(9 + size);
  }
  nghttp2_hd_inflate_del(inflater);
  return text;
}

// Whether a stream has ended: a frame of headers says so.
inline bool has_trailers(std::string_view bytes) {
  while (bytes.size() >= 9) {
    const auto* const header = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const std::size_t size =
        (std::size_t{header[0]} << 16u) | (std::size_t{header[1]} << 8u) | header[2];
    if (bytes.size() < 9 + size) return false;
    if (header[3] == kHeadersFrame && (header[4] & kEndStream) != 0) return true;
    bytes.remove_prefix(9 + size);
  }
  return false;
}

}  // namespace reverie::test
