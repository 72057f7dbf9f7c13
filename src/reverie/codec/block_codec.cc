#include "reverie/codec/block_codec.h"

#include <memory>

#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>

#include "reverie/base/check.h"

namespace reverie {
namespace {

// Chosen on Atari frames behind the row filter, which leaves few bytes. Level 9 takes longer and
// saves 1 % more with lz4, 5 % with zstd. See docs/decisions/0002-compressed-chunks.md.
constexpr int kLz4Level = 6;
constexpr int kZstdLevel = 3;

struct FreeCompressor {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};
struct FreeDecompressor {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

ZSTD_CCtx* compressor() {
  thread_local const std::unique_ptr<ZSTD_CCtx, FreeCompressor> context(ZSTD_createCCtx());
  REVERIE_CHECK(context != nullptr);
  return context.get();
}

ZSTD_DCtx* decompressor() {
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeDecompressor> context(ZSTD_createDCtx());
  REVERIE_CHECK(context != nullptr);
  return context.get();
}

void* lz4_state() {
  thread_local const std::unique_ptr<char[]> state(
      new char[static_cast<std::size_t>(LZ4_sizeofStateHC())]);
  return state.get();
}

}  // namespace

void compress_block(CodecId codec, std::span<const std::byte> plain, std::vector<std::byte>& out) {
  REVERIE_CHECK(plain.size() <= kBlockBytesMax);
  const std::size_t begin = out.size();
  if (codec == CodecId::kLz4) {
    const int bound = LZ4_compressBound(static_cast<int>(plain.size()));
    out.resize(begin + static_cast<std::size_t>(bound));
    const int size =
        LZ4_compress_HC_extStateHC(lz4_state(), reinterpret_cast<const char*>(plain.data()),
                                   reinterpret_cast<char*>(out.data() + begin),
                                   static_cast<int>(plain.size()), bound, kLz4Level);
    REVERIE_CHECK(size > 0);
    out.resize(begin + static_cast<std::size_t>(size));
    return;
  }
  REVERIE_CHECK(codec == CodecId::kZstd);
  out.resize(begin + ZSTD_compressBound(plain.size()));
  const std::size_t size = ZSTD_compressCCtx(compressor(), out.data() + begin, out.size() - begin,
                                             plain.data(), plain.size(), kZstdLevel);
  REVERIE_CHECK(!ZSTD_isError(size));
  out.resize(begin + size);
}

bool decompress_block(CodecId codec, std::span<const std::byte> bytes, std::span<std::byte> plain) {
  REVERIE_CHECK(plain.size() <= kBlockBytesMax);
  std::byte none{};  // the libraries want an address even for nothing
  std::byte* const to = plain.empty() ? &none : plain.data();
  if (codec == CodecId::kLz4) {
    if (bytes.empty() || bytes.size() > kBlockBytesMax + kBlockBytesMax / 128) return false;
    const int size = LZ4_decompress_safe(
        reinterpret_cast<const char*>(bytes.data()), reinterpret_cast<char*>(to),
        static_cast<int>(bytes.size()), static_cast<int>(plain.size()));
    return size >= 0 && static_cast<std::size_t>(size) == plain.size();
  }
  REVERIE_CHECK(codec == CodecId::kZstd);
  const std::size_t size =
      ZSTD_decompressDCtx(decompressor(), to, plain.size(), bytes.data(), bytes.size());
  return !bytes.empty() && !ZSTD_isError(size) && size == plain.size();
}

}  // namespace reverie
