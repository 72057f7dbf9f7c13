// A rate limiter's bounds hold at every step, also with checkpoints, kills, power cuts, restarts.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"
#include "tests/scale.h"
#include "tests/support/items.h"

namespace reverie::checkpoint {
namespace {

constexpr RateLimiterSpec kRatio{2.5, 5, 5.5, 19.5};
constexpr std::int64_t kQueueSize = 10;

std::vector<TableOptions> limited_tables() {
  TableOptions ratio = testing::table_options("ratio", "Uniform", "Fifo", 50, kRatio);
  TableOptions queue =
      testing::table_options("queue", "Fifo", "Fifo", kQueueSize, RateLimiter::queue(kQueueSize));
  queue.max_times_sampled = 1;
  return {ratio, queue};
}

class LimitedLife {
 public:
  LimitedLife(sim::FileSystem& files, Durability durability) {
    CheckpointerOptions options;
    options.files = &files;
    options.journal = {.durability = durability,
                       .ring_bytes = 8'192,
                       .file_bytes_max = 50'000,
                       .has_thread = false};
    checkpointer_ = Checkpointer::open("/data", options).value();
    store_ = checkpointer_->open_store(limited_tables(), {}).value();
  }

  // Makes one call; returns whether it respected all bounds. `holds()` is not enough for that,
  // since it checks a state and not a transition. Whether the limiters allow the state.
  bool step(Random& random, std::string& why) {
    const std::string table = random.below(2) == 0 ? "ratio" : "queue";
    const TableInfo before = info(table);
    const std::uint64_t kind = random.below(20);
    if (kind < 9) {
      std::vector<Item> items;
      for (std::uint64_t i = 0; i <= random.below(3); ++i) {
        items.push_back(testing::make_item(1 + random.next() % 1'000'000, 1.0));
      }
      (void)insert_and_wait(*store_, {.table = table, .items = items, .deadline = TimePoint{0}});
    } else if (kind < 18) {
      SampleRequest request;
      request.table = table;
      request.count = 1 + random.below(4);
      request.deadline = TimePoint{0};
      SampleResult result = sample_and_wait(*store_, std::move(request));
      const TableInfo after = info(table);
      if (after.samples > before.samples && table == "ratio") {
        const double diff = static_cast<double>(after.inserts) * kRatio.samples_per_insert -
                            static_cast<double>(after.samples);
        if (diff < kRatio.min_diff || before.current_size < kRatio.min_size_to_sample) {
          why = format("a sample at {} items left {}", before.current_size, diff);
          return false;
        }
      }
      if (random.below(4) == 0) (void)store_->hand_back(table, result.batch);
      keys_.assign(result.batch.keys().begin(), result.batch.keys().end());
    } else if (!keys_.empty()) {
      MutateRequest request;
      request.table = table;
      request.deletes = std::span(keys_).first(1);
      (void)mutate_and_wait(*store_, request);
    }
    return holds(why);
  }

  // Whether the state is one that the limiters allow.
  bool holds(std::string& why) {
    const TableInfo ratio = info("ratio");
    const double diff = static_cast<double>(ratio.inserts) * kRatio.samples_per_insert -
                        static_cast<double>(ratio.samples);
    if (diff > kRatio.max_diff && ratio.current_size > kRatio.min_size_to_sample) {
      why = format("{} items and a difference of {}", ratio.current_size, diff);
      return false;
    }
    const TableInfo queue = info("queue");
    if (queue.current_size > kQueueSize || queue.samples > queue.inserts) {
      why = format("the queue holds {}, sampled {} of {}", queue.current_size, queue.samples,
                   queue.inserts);
      return false;
    }
    return true;
  }

  bool checkpoint() { return checkpointer_->write(*store_, {}).ok(); }

 private:
  TableInfo info(const std::string& table) { return store_->table(table).value()->info(); }

  std::unique_ptr<Checkpointer> checkpointer_;
  std::shared_ptr<LocalService> store_;
  std::vector<ItemKey> keys_;
};

TEST(LimiterBounds, HoldAtEveryStepWithCheckpointsKillsAndRestores) {
  const auto steps = static_cast<std::int64_t>(scaled_in_release(200'000, 10'000'000));
  Random random(11);
  std::int64_t done = 0;
  int lives = 0;
  int checkpoints = 0;
  std::string why;
  for (std::uint64_t disk = 0; done < steps; ++disk) {
    sim::FileSystem files(disk);
    for (int life = 0; life < 20 && done < steps; ++life, ++lives) {
      const bool has_power_cut = random.below(2) == 0;
      auto store = std::make_unique<LimitedLife>(
          files, random.below(3) == 0 ? Durability::kInterval : Durability::kSync);
      ASSERT_TRUE(store->holds(why)) << "after a restart: " << why << ", disk " << disk;
      const std::uint64_t count = 100 + random.below(3'000);
      for (std::uint64_t i = 0; i < count; ++i, ++done) {
        ASSERT_TRUE(store->step(random, why)) << why << ", step " << done << ", disk " << disk;
        if (random.below(700) == 0) checkpoints += store->checkpoint() ? 1 : 0;
      }
      if (has_power_cut) {
        files.stop_at(files.calls() + 1);  // before what closing the store would write
        store.reset();
        files.restart();
      }
    }
  }
  EXPECT_GT(lives, steps / 4'000);
  EXPECT_GT(checkpoints, steps / 2'000);
}

}  // namespace
}  // namespace reverie::checkpoint
