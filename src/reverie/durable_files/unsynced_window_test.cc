#include "reverie/durable_files/unsynced_window.h"

#include <deque>
#include <utility>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie::checkpoint {
namespace {

constexpr Duration kBound{1'600};
constexpr std::int64_t kSpan = 100;

// Against a model that knows the time of every change.
TEST(UnsyncedWindow, IsFullAtItsBoundOrLessThanASpanBefore) {
  Random random(3);
  int full = 0;
  for (int life = 0; life < 100; ++life) {
    UnsyncedWindow window(kBound);
    std::deque<std::pair<std::uint64_t, std::int64_t>> unsynced;
    std::uint64_t record = 0;
    std::int64_t now = 1'000'000;
    for (int step = 0; step < 200; ++step) {
      if (random.below(8) > 0) {
        record += 1 + random.below(3);
        now += static_cast<std::int64_t>(random.below(60));
        window.add(record, TimePoint{now});
        unsynced.emplace_back(record, now);
      } else if (!unsynced.empty() && random.below(4) == 0) {
        const std::size_t count = 1 + random.below(unsynced.size());
        window.sync(count < unsynced.size() ? unsynced[count].first - 1 : record);
        unsynced.erase(unsynced.begin(), unsynced.begin() + static_cast<std::ptrdiff_t>(count));
      }
      const std::int64_t time = unsynced.empty() ? 0 : now - unsynced.front().second;
      if (time >= kBound.count()) {
        ASSERT_TRUE(window.is_full()) << time;
      } else if (time + kSpan <= kBound.count()) {
        ASSERT_FALSE(window.is_full()) << time;
      }
      full += window.is_full() ? 1 : 0;
    }
  }
  EXPECT_GT(full, 100);
}

TEST(UnsyncedWindow, StaysFullUntilASyncHoweverManyChangesFollow) {
  UnsyncedWindow window(kBound);
  for (std::uint64_t record = 1; record <= 10'000; ++record) {
    window.add(record, TimePoint{static_cast<std::int64_t>(kSpan * record)});
    ASSERT_EQ(window.is_full(), record > 16);
  }
  window.sync(9'999);
  EXPECT_TRUE(window.is_full());
  window.sync(10'000);
  EXPECT_FALSE(window.is_full());
}

}  // namespace
}  // namespace reverie::checkpoint
