// Tested in message_reader_test.cc.
#include "reverie/grpc/gzip.h"

#include <algorithm>
#include <climits>
#include <cstdint>

#include <zlib.h>

namespace reverie {
namespace {

constexpr int kGzip = 15 + 16;              // zlib's value for a gzip stream with any window
constexpr std::size_t kEnvelopeBytes = 18;  // header and trailer at least
constexpr std::size_t kRatioMax = 1032;     // of deflate: a stream that claims more is refused

// Zlib counts in unsigned int.
uInt at_most(std::size_t size) {
  return static_cast<uInt>(std::min<std::size_t>(size, INT_MAX));
}

}  // namespace

Result<std::size_t> inflated_bytes(std::span<const std::byte> compressed,
                                   std::size_t size_bytes_max) {
  if (compressed.size() < kEnvelopeBytes) {
    return internal_error("a compressed message of {} bytes is not a gzip stream",
                          compressed.size());
  }
  std::size_t size_bytes = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    size_bytes |= std::to_integer<std::size_t>(compressed[compressed.size() - 4 + i]) << (8 * i);
  }
  if (size_bytes / kRatioMax > compressed.size()) {
    return internal_error("a gzip stream of {} bytes cannot contain the {} that it announces",
                          compressed.size(), size_bytes);
  }
  if (size_bytes > size_bytes_max) {
    return resource_exhausted(
        "a compressed message inflates to {} bytes; {} are allowed for one of {}", size_bytes,
        size_bytes_max, compressed.size());
  }
  return size_bytes;
}

Result<Ref<GrpcMessage>> gunzip(std::span<const std::byte> compressed, std::size_t size_bytes,
                                const Ref<MessagePool>& pool) {
  REVERIE_ASSIGN_OR_RETURN(Ref<GrpcMessage> message, GrpcMessage::make(pool, size_bytes));
  z_stream stream{};
  if (inflateInit2(&stream, kGzip) != Z_OK) return resource_exhausted("no memory to inflate with");
  const std::span<std::byte> out = message->writable();
  std::size_t read = 0;
  std::size_t written = 0;
  int outcome = Z_OK;
  while (outcome == Z_OK) {
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(compressed.data() + read));
    stream.avail_in = at_most(compressed.size() - read);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = at_most(out.size() - written);
    const uInt in_before = stream.avail_in;
    const uInt out_before = stream.avail_out;
    outcome = inflate(&stream, Z_NO_FLUSH);
    read += in_before - stream.avail_in;
    written += out_before - stream.avail_out;
  }
  inflateEnd(&stream);
  if (outcome != Z_STREAM_END || written != size_bytes || read != compressed.size()) {
    return internal_error("a compressed message of {} bytes is not a complete gzip stream",
                          compressed.size());
  }
  return message;
}

}  // namespace reverie
