// The cost of compressing a chunk of images, and of decoding its rows.
//
// Frames: a file of 84 x 84 bytes each, named by the environment variable REVERIE_FRAMES
// (benchmarks/atari_replay.py --out writes one per game); without it, a constant background over
// which a few sprites move. A chunk is 40 frames; bytes/s count raw frames; `ratio` is stored bytes
// per raw byte.
//
// Estimates. Undoing the row filter: one pass of 7 KB to copy, 0.1 us in L2, and about 15 blocks of
// 3 ns: about 50 GB/s. Decoding the block before: 20 KB of records at 4 GB/s (lz4) or 1.5 GB/s
// (zstd), 5 or 13 us per chunk of 282 KB. In total 25 GB/s with lz4 and 15 GB/s with zstd.
// (zstd), 5 or 13 us a chunk of 282 KB. In sum 25 GB/s with lz4 and 15 with zstd.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include <benchmark/benchmark.h>

#include "reverie/base/random.h"
#include "reverie/codec/column_decoder.h"
#include "reverie/codec/row_diff.h"

namespace reverie {
namespace {

constexpr std::size_t kSide = 84;
constexpr std::size_t kFrameBytes = kSide * kSide;
constexpr std::size_t kChunkRows = 40;
constexpr std::size_t kChunks = 40;

std::vector<std::byte> drawn_frames() {
  Random random(std::uint64_t{7});
  std::vector<std::byte> background(kFrameBytes);
  for (std::size_t i = 0; i < kFrameBytes; ++i) {
    background[i] = static_cast<std::byte>(i / kSide / 8 * 16);
  }
  std::vector<std::byte> frames;
  for (std::size_t f = 0; f < kChunks * kChunkRows; ++f) {
    std::vector<std::byte> frame = background;
    for (std::size_t sprite = 0; sprite < 6; ++sprite) {
      const std::size_t x = (f * (sprite + 1) + 13 * sprite) % (kSide - 8);
      const std::size_t y = (f / (sprite + 1) + 11 * sprite) % (kSide - 8);
      for (std::size_t i = 0; i < 64; ++i) {
        frame[(y + i / 8) * kSide + x + i % 8] = static_cast<std::byte>(200 + i % 7);
      }
    }
    frames.insert(frames.end(), frame.begin(), frame.end());
  }
  return frames;
}

const std::vector<std::byte>& frames() {
  static const std::vector<std::byte> loaded = [] {
    const char* const path = std::getenv("REVERIE_FRAMES");
    if (path == nullptr) return drawn_frames();
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    REVERIE_CHECK(bytes.size() >= kChunkRows * kFrameBytes);
    std::vector<std::byte> all(bytes.size());
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }();
  return loaded;
}

const TensorSpec kSpec{"frame", DType::kUInt8, {84, 84}};

std::size_t chunk_count() {
  return std::min(kChunks, frames().size() / (kChunkRows * kFrameBytes));
}

std::vector<std::byte> encoded_chunk(CodecId codec, std::size_t chunk) {
  std::vector<RowSpan> rows;
  for (std::size_t r = 0; r < kChunkRows; ++r) {
    rows.emplace_back(frames().data() + (chunk * kChunkRows + r) * kFrameBytes, kFrameBytes);
  }
  std::vector<std::byte> out;
  REVERIE_CHECK(encode_column(codec, kSpec, rows, out).ok());
  return out;
}

// Encodes one chunk. Args: codec.
void BM_EncodeChunk(benchmark::State& state) {
  const auto codec = static_cast<CodecId>(state.range(0));
  std::size_t chunk = 0;
  std::size_t bytes = 0;
  for (auto _ : state) {
    bytes += encoded_chunk(codec, chunk++ % chunk_count()).size();
  }
  const auto raw = static_cast<double>(state.iterations()) * kChunkRows * kFrameBytes;
  state.SetBytesProcessed(static_cast<std::int64_t>(raw));
  state.counters["ratio"] = static_cast<double>(bytes) / raw;
}
BENCHMARK(BM_EncodeChunk)->Arg(1)->Arg(2);

// Decodes all rows of chunks in the last-level cache, into one place. Args: codec.
void BM_DecodeChunk(benchmark::State& state) {
  const auto codec = static_cast<CodecId>(state.range(0));
  std::vector<std::vector<std::byte>> chunks;
  for (std::size_t c = 0; c < chunk_count(); ++c) chunks.push_back(encoded_chunk(codec, c));
  std::vector<std::byte> out(kChunkRows * kFrameBytes);
  ColumnDecoder decoder;
  std::size_t chunk = 0;
  for (auto _ : state) {
    REVERIE_CHECK(decoder.open(codec, kSpec, kChunkRows, chunks[chunk++ % chunks.size()]).ok());
    for (std::size_t r = 0; r < kChunkRows; ++r) {
      const Result<RowSpan> row = decoder.row(r);
      REVERIE_CHECK(row.ok());
      std::memcpy(out.data() + r * kFrameBytes, row->data(), kFrameBytes);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kChunkRows * kFrameBytes));
}
BENCHMARK(BM_DecodeChunk)->Arg(0)->Arg(1)->Arg(2);

// Decodes five frames from the middle of a chunk, as one transition needs. Args: codec.
void BM_DecodeFiveRows(benchmark::State& state) {
  const auto codec = static_cast<CodecId>(state.range(0));
  std::vector<std::vector<std::byte>> chunks;
  for (std::size_t c = 0; c < chunk_count(); ++c) chunks.push_back(encoded_chunk(codec, c));
  std::vector<std::byte> out(5 * kFrameBytes);
  ColumnDecoder decoder;
  std::size_t draw = 0;
  for (auto _ : state) {
    REVERIE_CHECK(decoder.open(codec, kSpec, kChunkRows, chunks[draw % chunks.size()]).ok());
    const std::size_t first = draw++ * 7 % (kChunkRows - 5);
    for (std::size_t r = 0; r < 5; ++r) {
      const Result<RowSpan> row = decoder.row(first + r);
      REVERIE_CHECK(row.ok());
      std::memcpy(out.data() + r * kFrameBytes, row->data(), kFrameBytes);
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_DecodeFiveRows)->Arg(1)->Arg(2);

// Only the row filter, with the best code for this processor (0) and the portable code (1).
void BM_UndoRowFilter(benchmark::State& state) {
  const RowDiff diff(kFrameBytes, static_cast<RowDiff::Kernel>(state.range(0)));
  std::vector<std::byte> records;
  for (std::size_t r = 0; r < kChunkRows; ++r) {
    const std::byte* const row = frames().data() + r * kFrameBytes;
    diff.append(r == 0 ? nullptr : row - kFrameBytes, row, records);
  }
  std::vector<std::byte> row(diff.padded_bytes());
  std::vector<std::byte> out(kChunkRows * kFrameBytes);
  for (auto _ : state) {
    std::ranges::fill(row, std::byte{0});
    const std::byte* at = records.data();
    for (std::size_t r = 0; r < kChunkRows; ++r) {
      at = diff.apply(at, records.data() + records.size(), row.data());
      REVERIE_CHECK(at != nullptr);
      std::memcpy(out.data() + r * kFrameBytes, row.data(), kFrameBytes);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kChunkRows * kFrameBytes));
}
BENCHMARK(BM_UndoRowFilter)->Arg(0)->Arg(1);

}  // namespace
}  // namespace reverie
