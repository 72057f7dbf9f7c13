// One block of bytes through lz4 or zstd, and back.
//
// The size of the result is never taken from the compressed bytes: the caller says how many bytes
// there must be, and gets them all or an error.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reverie/codec/codec.h"

namespace reverie {

// The largest block: what lz4 takes.
inline constexpr std::size_t kBlockBytesMax = 0x7E000000;

// Appends the compressed form of `plain` to `out`. Requires at most kBlockBytesMax bytes, and
// kLz4 or kZstd. Any thread; each keeps what the libraries work with, about 1 MB.
void compress_block(CodecId codec, std::span<const std::byte> plain, std::vector<std::byte>& out);

// True if `bytes` are a block of exactly `plain.size()` bytes. Else what `plain` holds is
// undefined. Requires the same as compress_block.
[[nodiscard]] bool decompress_block(CodecId codec, std::span<const std::byte> bytes,
                                    std::span<std::byte> plain);

}  // namespace reverie
