// Tested in column_codec_test.cc and column_decoder_test.cc.
#include "reverie/codec/block_codec.h"

#include <algorithm>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "reverie/base/check.h"
#include "reverie/base/mutex.h"

namespace reverie {
namespace {

// Chosen on Atari frames behind the row filter, which leaves few bytes. Level 9 takes longer and
// saves 1 % more with lz4, 5 % with zstd. See docs/decisions/0002-compressed-chunks.md.
constexpr int kLz4Level = 6;
constexpr int kZstdLevel = 3;

// Working memory of the libraries, about a megabyte, lent for each call: if each thread kept one,
// those of 64 writers would take more than the data that they compress.
template <typename Context>
class ContextPool {
 public:
  using Owned = std::unique_ptr<Context, void (*)(Context*)>;
  using Make = Owned (*)();

  // Giving a context back takes no memory then.
  explicit ContextPool(Make make) : make_(make) { idle_.reserve(idle_max_); }

  // Returns it at the end of its scope.
  class PooledContext {
   public:
    explicit PooledContext(ContextPool& pool) : pool_(pool), context_(pool.take()) {}
    ~PooledContext() { pool_.give_back(std::move(context_)); }
    PooledContext(const PooledContext&) = delete;
    PooledContext& operator=(const PooledContext&) = delete;
    Context* get() const { return context_.get(); }

   private:
    ContextPool& pool_;
    Owned context_;
  };

 private:
  Owned take() {
    {
      const MutexLock lock(mutex_);
      if (!idle_.empty()) {
        Owned context = std::move(idle_.back());
        idle_.pop_back();
        return context;
      }
    }
    Owned context = make_();
    if (context == nullptr) throw std::bad_alloc();
    return context;
  }
  void give_back(Owned context) {
    const MutexLock lock(mutex_);
    if (idle_.size() < idle_max_) idle_.push_back(std::move(context));
  }

  const Make make_;
  const std::size_t idle_max_ = std::max(1u, std::thread::hardware_concurrency());
  Mutex mutex_;
  std::vector<Owned> idle_ REVERIE_GUARDED_BY(mutex_);
};

// zstd allocates most of a context's memory in its first call.
void check_memory(std::size_t result) {
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
}

// Never destroyed: threads may compress while the process ends.
ContextPool<ZSTD_CCtx>& compressors() {
  static auto* const pool = new ContextPool<ZSTD_CCtx>([] {
    return ContextPool<ZSTD_CCtx>::Owned(ZSTD_createCCtx(), [](ZSTD_CCtx* c) { ZSTD_freeCCtx(c); });
  });
  return *pool;
}

ContextPool<ZSTD_DCtx>& decompressors() {
  static auto* const pool = new ContextPool<ZSTD_DCtx>([] {
    return ContextPool<ZSTD_DCtx>::Owned(ZSTD_createDCtx(), [](ZSTD_DCtx* c) { ZSTD_freeDCtx(c); });
  });
  return *pool;
}

ContextPool<char>& lz4_states() {
  static auto* const pool = new ContextPool<char>([] {
    return ContextPool<char>::Owned(new char[static_cast<std::size_t>(LZ4_sizeofStateHC())],
                                    [](char* state) { delete[] state; });
  });
  return *pool;
}

}  // namespace

void compress_block(CodecId codec, std::span<const std::byte> plain, std::vector<std::byte>& out) {
  REVERIE_CHECK(plain.size() <= kBlockBytesMax);
  const std::size_t begin = out.size();
  if (codec == CodecId::kLz4) {
    const int bound = LZ4_compressBound(static_cast<int>(plain.size()));
    out.resize(begin + static_cast<std::size_t>(bound));
    const ContextPool<char>::PooledContext state(lz4_states());
    const int size =
        LZ4_compress_HC_extStateHC(state.get(), reinterpret_cast<const char*>(plain.data()),
                                   reinterpret_cast<char*>(out.data() + begin),
                                   static_cast<int>(plain.size()), bound, kLz4Level);
    REVERIE_CHECK(size > 0);
    out.resize(begin + static_cast<std::size_t>(size));
    return;
  }
  REVERIE_CHECK(codec == CodecId::kZstd);
  out.resize(begin + ZSTD_compressBound(plain.size()));
  const ContextPool<ZSTD_CCtx>::PooledContext context(compressors());
  const std::size_t size = ZSTD_compressCCtx(context.get(), out.data() + begin, out.size() - begin,
                                             plain.data(), plain.size(), kZstdLevel);
  check_memory(size);
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
  const ContextPool<ZSTD_DCtx>::PooledContext context(decompressors());
  const std::size_t size =
      ZSTD_decompressDCtx(context.get(), to, plain.size(), bytes.data(), bytes.size());
  check_memory(size);
  return !bytes.empty() && !ZSTD_isError(size) && size == plain.size();
}

}  // namespace reverie
