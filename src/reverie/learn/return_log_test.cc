#include "reverie/learn/return_log.h"

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

TEST(ReturnLog, TheMeanCoversTheLastEpisodes) {
  ReturnLog log(7);
  Random random(std::uint64_t{1});
  std::vector<double> all;
  EXPECT_FALSE(log.mean().has_value());
  for (std::uint64_t i = 0; i < 100; ++i) {
    all.push_back(random.uniform() * 1e6);
    log.add({i, all.back(), 1});
    const std::size_t count = std::min<std::size_t>(7, all.size());
    double sum = 0;
    for (std::size_t k = all.size() - count; k < all.size(); ++k) sum += all[k];
    EXPECT_NEAR(*log.mean(), sum / static_cast<double>(count), 1e-6);
    EXPECT_EQ(log.window_mean().has_value(), all.size() >= 7);
  }
  EXPECT_EQ(log.count(), 100u);
}

TEST(ReturnLog, SinceReturnsLaterEpisodes) {
  ReturnLog log(2);
  for (std::uint64_t i = 0; i < 5; ++i) log.add({i, static_cast<double>(i), i});
  const std::vector<EpisodeRecord> last = log.since(3);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0].step, 3u);
  EXPECT_TRUE(log.since(9).empty());
}

}  // namespace
}  // namespace reverie
