#include "reverie/client/chunk_tuner.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

constexpr double kHeader = 112;

// Streams episodes of `episode` steps with an item over `item` rows every `stride` steps, and
// returns the bytes kept per byte of used rows, over the second half of `steps` rows. It models
// memory as the chunk tuner does: a chunk is kept while one of its rows is used.
double bytes_kept_per_byte_used(double step_bytes, std::uint64_t episode, std::uint64_t item,
                                std::uint64_t stride, std::uint64_t steps) {
  ChunkTuner tuner;
  double kept = 0;
  std::uint64_t used = 0;
  std::uint64_t row = 0;
  std::uint64_t used_until = 0;
  while (row < steps) {
    const std::uint64_t episode_begin = row;
    std::uint64_t chunk_begin = row;
    std::uint64_t capacity = 0;
    bool chunk_used = false;
    const auto end_chunk = [&] {
      if (chunk_used && chunk_begin > steps / 2) {
        kept += kHeader + static_cast<double>(capacity) * step_bytes;
      }
      chunk_used = false;
    };
    for (std::uint64_t t = 0; t < episode; ++t, ++row) {
      if (row == chunk_begin + capacity) {
        end_chunk();
        chunk_begin = row;
        capacity = tuner.chunk_length(step_bytes, std::min(row - episode_begin, item));
      }
      if ((t + 1) % stride == 0 && t + 1 >= item) {
        tuner.use_rows(row + 1 - item, row + 1);
      }
      // Whether one of the stream's items will use the row: the last `item` rows of each stride.
      const bool is_used = (t % stride) + item >= stride && t + (stride - 1 - t % stride) < episode;
      chunk_used = chunk_used || is_used;
      if (is_used && row >= used_until && chunk_begin > steps / 2) ++used;
    }
    end_chunk();
    tuner.end_episode();
  }
  return kept / (static_cast<double>(used) * step_bytes);
}

TEST(ChunkTuner, LongEpisodesCostAtMostTenBytesPerStep) {
  for (const std::uint64_t episode : {1'000u, 5'000u}) {
    const double kept = bytes_kept_per_byte_used(400, episode, 1, 1, 40'000);
    EXPECT_LE((kept - 1) * 400, 10) << "episodes of " << episode;
  }
}

TEST(ChunkTuner, ShortEpisodesWasteAtMostAThird) {
  for (std::uint64_t episode = 10; episode <= 20; ++episode) {
    EXPECT_LE(bytes_kept_per_byte_used(400, episode, 1, 1, 4'000), 1.35)
        << "episodes of " << episode;
  }
}

TEST(ChunkTuner, SparseItemsKeepAtMostTwiceTheirRows) {
  EXPECT_LE(bytes_kept_per_byte_used(400, 1'000, 4, 40, 40'000), 2.0);
  EXPECT_LE(bytes_kept_per_byte_used(4'000, 1'000, 4, 40, 40'000), 2.0);
}

TEST(ChunkTuner, TheLengthIsBoundedByRowsBytesAndTheRun) {
  ChunkTuner tuner;
  tuner.use_rows(0, 1'000'000);
  EXPECT_EQ(tuner.chunk_length(4, 1), 256u);
  EXPECT_EQ(tuner.chunk_length(1024, 1), 64u);
  EXPECT_EQ(tuner.chunk_length(40'000, 1), 1u);
  EXPECT_EQ(tuner.chunk_length(1e9, 1), 1u);
  EXPECT_EQ(tuner.chunk_length(0, 1), 256u);
  ChunkTuner short_runs;
  for (std::uint64_t i = 0; i < 100; ++i) {
    short_runs.use_rows(10 * i, 10 * i + 3);
    short_runs.end_episode();
  }
  EXPECT_EQ(short_runs.chunk_length(64, 1'000), 3u);
  EXPECT_EQ(short_runs.chunk_length(1, 1'000), 16u) << "a block has 16 bytes at least";
}

TEST(ChunkTuner, CompressedChunksAreLonger) {
  ChunkTuner tuner;
  tuner.use_rows(0, 10'000);
  EXPECT_EQ(tuner.chunk_length(7'080, 1), 9u);
  EXPECT_EQ(tuner.packed_chunk_length(7'080, 0, 1), 64u) << "not one was packed yet";
  EXPECT_EQ(tuner.packed_chunk_length(7'080, 150, 1), 64u);
  EXPECT_EQ(tuner.packed_chunk_length(28'224, 500, 1), 18u) << "512 KiB while it is open";
  EXPECT_EQ(tuner.packed_chunk_length(1e9, 1e6, 1), 1u);
  ChunkTuner short_runs;
  short_runs.use_rows(0, 20);
  short_runs.end_episode();
  EXPECT_EQ(short_runs.packed_chunk_length(7'080, 150, 1), 15u);  // sqrt(2 * 20 * 820 / 150)
}

TEST(ChunkTuner, RowsUsedAgainAreCountedOnce) {
  ChunkTuner once;
  ChunkTuner often;
  for (std::uint64_t i = 0; i < 200; ++i) {
    once.use_rows(i, i + 1);
    for (std::uint64_t n = 0; n <= std::min<std::uint64_t>(i, 10); ++n)
      often.use_rows(i - n, i + 1);
  }
  EXPECT_EQ(often.chunk_length(100, 1), once.chunk_length(100, 1));
}

TEST(ChunkTuner, FollowsEpisodesThatBecomeShorter) {
  ChunkTuner tuner;
  std::uint64_t row = 0;
  const auto run_of = [&](std::uint64_t rows) {
    tuner.use_rows(row, row + rows);
    row += rows;
    tuner.end_episode();
  };
  for (int i = 0; i < 50; ++i) run_of(1'000);
  EXPECT_EQ(tuner.chunk_length(400, 1), 24u);      // sqrt(2 * 1000 * 112 / 400)
  EXPECT_EQ(tuner.chunk_length(400, 1'000), 25u);  // the most that fit a block of 10,048 bytes
  for (int i = 0; i < 50; ++i) run_of(15);
  EXPECT_LE(tuner.chunk_length(400, 1), 4u);  // sqrt(2 * 15 * 112 / 400) = 2.9, with a tolerance
}

TEST(ChunkTuner, BeforeTheFirstItemAllReferableRowsCountAsARun) {
  const ChunkTuner tuner;
  EXPECT_EQ(tuner.chunk_length(400, 0), 2u);       // for runs of 8
  EXPECT_EQ(tuner.chunk_length(400, 1'000), 25u);  // an item may use the whole episode
}

}  // namespace
}  // namespace reverie
