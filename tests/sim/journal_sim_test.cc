#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/checkpoint/journal.h"
#include "reverie/checkpoint_tools/inspection.h"
#include "reverie/checkpoint_tools/reverb_conversion.h"
#include "reverie/durable_files/journal_frames.h"
#include "reverie/durable_files/journal_ring.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"
#include "tests/scale.h"
#include "tests/support/ending_checkpoints.h"
#include "tests/support/eventually.h"
#include "tests/support/hooked_file_system.h"
#include "tests/support/items.h"
#include "tests/support/no_more_memory.h"
#include "tests/support/no_new_threads.h"
#include "tests/support/refusal.h"
#include "tests/support/resident.h"

namespace reverie::checkpoint {
namespace {

using reverie::testing::float_layout;
using reverie::testing::float_schema;
using reverie::testing::HookedFileSystem;
using reverie::testing::item_over;
using reverie::testing::table_options;
using reverie::testing::value_of;

constexpr char kRoot[] = "/data/replay";
constexpr std::uint32_t kChunkRows = 6;
constexpr std::uint64_t kSizeBytesMax = JournalOptions().size_bytes_max;

std::vector<TableOptions> tables() {
  TableOptions uniform = table_options("uniform", "Uniform", "Uniform", 20, {});
  uniform.rate_limiter = RateLimiter::min_size(1);
  uniform.extensions = {{"Statistics", {}}};
  TableOptions best = table_options("best", "Prioritized", "MinHeap", 12, RateLimiter::min_size(1));
  best.max_bytes = 4'000;
  TableOptions queue = table_options("queue", "Fifo", "Fifo", 10, RateLimiter::queue(10));
  queue.max_times_sampled = 1;
  TableOptions thrice = table_options("thrice", "Lifo", "Fifo", 15, RateLimiter::min_size(1));
  thrice.max_times_sampled = 3;
  return {uniform, best, queue, thrice};
}

// Everything about a table that a journal preserves, as text.
std::string text_of(TableSnapshot& snapshot) {
  const TableImage& image = snapshot.image();
  const bool counts_samples = image.options.max_times_sampled >= 1;
  std::string text = format("{}: inserts {} samples {} deletes {} waived {} max {}\n",
                            image.options.name, image.limiter.inserts, image.limiter.samples,
                            image.limiter.deletes, image.limiter.waived, image.max_priority);
  std::size_t slot = 0;
  while (true) {
    const std::vector<SlotRecord> records = snapshot.next().value();
    if (records.empty()) return text;
    for (const SlotRecord& record : records) {
      ++slot;
      if (record.trajectory.layout == nullptr) continue;
      text += format("  {} {} key {} priority {} version {} rows", slot, record.generation,
                     record.key, record.priority, record.version);
      for (const Piece& piece : record.trajectory.pieces()) {
        for (std::uint32_t r = 0; r < piece.length; ++r) {
          text += format(" {}", testing::float_row(*piece.chunk, piece.offset + r));
        }
      }
      text += counts_samples ? format(" sampled {}\n", record.times_sampled) : "\n";
    }
  }
}

// A store with these tables and a journal.
struct Case {
  explicit Case(FileSystem& files, Durability durability, std::uint64_t file_bytes_max = 2'000,
                bool has_thread = false, const std::string& root = kRoot,
                std::vector<TableOptions> made_of = tables(),
                std::uint64_t size_bytes_max = kSizeBytesMax,
                std::uint64_t group_bytes_max = JournalOptions().group_bytes_max,
                std::uint64_t item_bytes_max = JournalOptions().item_bytes_max) {
    CheckpointerOptions options;
    options.files = &files;
    options.keep = 2;
    // A small ring, so that it is often full.
    options.journal = {.durability = durability,
                       .ring_bytes = 6'000,
                       .file_bytes_max = file_bytes_max,
                       .group_bytes_max = group_bytes_max,
                       .item_bytes_max = item_bytes_max,
                       .size_bytes_max = size_bytes_max,
                       .has_thread = has_thread};
    auto opened = Checkpointer::open(root, options);
    status = opened.status();
    if (!status.ok()) return;
    checkpointer = std::move(*opened);
    StoreOptions of_store;
    of_store.clock = &clock;
    auto made = checkpointer->open_store(std::move(made_of), of_store, &loaded);
    status = made.status();
    if (status.ok()) service = *made;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    const auto snapshots = service->freeze().value();
    for (const auto& snapshot : snapshots) all.push_back(text_of(*snapshot));
    return all;
  }
  std::string text() const {
    std::string all;
    const auto snapshots = service->freeze().value();
    for (const auto& snapshot : snapshots) all += text_of(*snapshot);
    return all;
  }

  ManualClock clock;
  Status status;
  std::unique_ptr<Checkpointer> checkpointer;
  std::shared_ptr<LocalService> service;
  std::string loaded;
};

// A program that makes random changes to the whole store.
class User {
 public:
  User(Case& store, std::uint64_t seed) : store_(store), random_(seed) {}

  // Makes one change to a table. `is_confirmed`: something changed, and the change was confirmed.
  Status step(bool* is_confirmed = nullptr) {
    has_changed_ = false;
    const Status status = any();
    if (is_confirmed != nullptr) *is_confirmed = has_changed_ && status.ok();
    return status;
  }

 private:
  Status any() {
    const std::vector<std::string> names = {"uniform", "best", "queue", "thrice"};
    const std::string& table = names[random_.below(names.size())];
    switch (random_.below(12)) {
      case 0:
      case 1:
        return sample(table);
      case 2:
      case 3:
        return update(table);
      case 4:
        return erase(table);
      case 5:
        return random_.below(8) == 0 ? reset(table) : insert(table);
      default:
        return insert(table);
    }
  }

  // Inserts items over a chunk that grows while items refer to it.
  Status insert(const std::string& table) {
    if (!chunk_ || chunk_->rows() == kChunkRows || random_.below(10) == 0) {
      chunk_ = Chunk::open(float_schema(), {random_.next(), random_.next(), 0}, kChunkRows, 0,
                           Allocator::heap())
                   .value();
    }
    const float value = static_cast<float>(++values_);
    const std::uint32_t row = chunk_->rows();
    chunk_->set_row(0, row, std::as_bytes(std::span(&value, 1)));
    chunk_->publish(row + 1);
    std::vector<Item> items;
    for (std::uint64_t i = 0; i <= random_.below(3); ++i) {
      const auto first = static_cast<std::uint32_t>(random_.below(row + 1));
      // Some keys are used again.
      const ItemKey key = random_.below(6) == 0 ? 1 + random_.below(keys_ + 1) : ++keys_;
      Item item =
          item_over(*chunk_, key, static_cast<double>(random_.below(9)), first, row + 1 - first);
      if (random_.below(4) == 0) item.priority.reset();
      item.version = static_cast<std::int64_t>(keys_);
      items.push_back(std::move(item));
    }
    const InsertResult result = insert_and_wait(*store_.service, {table, items, TimePoint{0}});
    has_changed_ = result.applied > 0;
    const bool is_late = result.status.code() == StatusCode::kDeadlineExceeded;
    EXPECT_EQ(result.is_unlogged, has_changed_ && !result.status.ok() && !is_late);
    return is_late ? Status() : result.status;
  }

  Status sample(const std::string& table) {
    SampleRequest request;
    request.table = table;
    request.count = 1 + random_.below(4);
    request.deadline = TimePoint{0};
    SampleResult result = sample_and_wait(*store_.service, std::move(request));
    if (random_.below(3) == 0) (void)store_.service->hand_back(table, result.batch);
    return {};
  }

  Status update(const std::string& table) {
    std::vector<ItemKey> keys;
    std::vector<double> priorities;
    for (int i = 0; i < 4; ++i) {
      keys.push_back(1 + random_.below(keys_ + 1));
      priorities.push_back(static_cast<double>(random_.below(9)));
    }
    MutateRequest request;
    request.table = table;
    request.keys = keys;
    request.key_priorities = priorities;
    return mutate(request);
  }

  Status erase(const std::string& table) {
    const std::vector<ItemKey> keys = {1 + random_.below(keys_ + 1), 1 + random_.below(keys_ + 1)};
    MutateRequest request;
    request.table = table;
    request.deletes = keys;
    return mutate(request);
  }

  Status mutate(const MutateRequest& request) {
    const MutateResult result = mutate_and_wait(*store_.service, request);
    has_changed_ = result.updated + result.deleted > 0;
    return result.status;
  }

  Status reset(const std::string& table) {
    has_changed_ = true;
    return reset_and_wait(*store_.service, table);
  }

  Case& store_;
  Random random_;
  Ref<Chunk> chunk_;
  ItemKey keys_ = 0;
  std::uint64_t values_ = 0;
  bool has_changed_ = false;
};

TEST(Journal, AStoreSurvivesARestartWithAndWithoutCheckpoints) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    sim::FileSystem files(seed);
    const std::uint64_t group_bytes_max = seed % 2 == 0 ? 1 : 10'000;
    for (int life = 0; life < 4; ++life) {
      std::string before;
      {
        Case store(files, life % 2 == 0 ? Durability::kSync : Durability::kInterval, 2'000, false,
                   kRoot, tables(), kSizeBytesMax, group_bytes_max);
        ASSERT_TRUE(store.status.ok()) << store.status.to_string();
        User user(store, 100 * seed + static_cast<std::uint64_t>(life));
        for (int i = 0; i < 150; ++i) {
          ASSERT_TRUE(user.step().ok());
          if (life > 1 && i % 40 == 39) {
            ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
          }
        }
        before = store.text();
      }
      const Case again(files, Durability::kSync);
      ASSERT_TRUE(again.status.ok()) << again.status.to_string();
      ASSERT_EQ(again.text(), before) << "seed " << seed << ", life " << life;
    }
  }
}

// Draws as a server does for a remote client, which later confirms what it received.
std::vector<ItemKey> draw_awaited(Case& store, const std::string& table, std::size_t count,
                                  std::vector<DrawId>& draws,
                                  std::vector<ItemKey>* redelivered = nullptr) {
  SampleRequest request;
  request.table = table;
  request.count = count;
  request.deadline = TimePoint{0};
  request.awaits_receipt = true;
  const SampleResult result = sample_and_wait(*store.service, std::move(request));
  EXPECT_EQ(result.batch.size(), count) << result.status.to_string();
  for (std::size_t i = 0; i < result.batch.size(); ++i) {
    draws.push_back({result.batch.tickets()[i], result.batch.times_sampled()[i]});
    if (redelivered != nullptr && result.batch.is_redelivered(i)) {
      redelivered->push_back(result.batch.keys()[i]);
    }
  }
  return {result.batch.keys().begin(), result.batch.keys().end()};
}

void insert_numbers(Case& store, const std::string& table, ItemKey begin, ItemKey end) {
  for (ItemKey key = begin; key < end; ++key) {
    std::vector<Item> items;
    items.push_back(testing::make_item(key, 1.0, static_cast<float>(key)));
    ASSERT_TRUE(insert_and_wait(*store.service, {table, items, TimePoint{0}}).status.ok());
  }
}

TEST(Journal, CorruptItemsAreCountedAfterARestart) {
  for (const bool has_checkpoint : {false, true}) {
    sim::FileSystem files(1);
    {
      Case store(files, Durability::kSync);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 1, 4));
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "queue", 4, 7));
      SampleRequest one{.table = "queue", .count = 1, .deadline = TimePoint{0}};
      ASSERT_TRUE(sample_and_wait(*store.service, std::move(one)).status.ok());
      const auto report = [&](std::string_view table, std::vector<ItemKey> keys) {
        std::vector<CorruptItem> corrupt;
        for (const ItemKey key : keys) corrupt.push_back({key, 0, "damaged"});
        MutateRequest request;
        request.table = table;
        request.corrupt = corrupt;
        EXPECT_TRUE(mutate_and_wait(*store.service, request).status.ok());
      };
      report("uniform", {1, 2, 99});
      if (has_checkpoint) {
        ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      }
      report("uniform", {3});
      report("queue", {4});  // which has left with its only sample
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "queue", 7, 8));  // confirms it
    }
    const Case again(files, Durability::kSync);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    const std::vector<TableInfo> infos = info_and_wait(*again.service).value();
    EXPECT_EQ(infos[0].corrupt_items, 3);
    EXPECT_EQ(infos[0].current_size, 0);
    EXPECT_EQ(infos[2].corrupt_items, 1);
    EXPECT_EQ(infos[2].current_size, 3);
  }
}

TEST(Journal, UnreceivedDrawsAreDrawnAgainInOrderAfterACrash) {
  enum class Checkpoint { kNone, kBeforeTheReceipt, kAfterIt };
  for (const auto checkpoint :
       {Checkpoint::kNone, Checkpoint::kBeforeTheReceipt, Checkpoint::kAfterIt}) {
    for (const auto durability : {Durability::kSync, Durability::kInterval}) {
      for (const bool is_cut : {false, true}) {
        sim::FileSystem files(1);
        {
          // With a record for each open draw, as for large ones.
          Case store(files, durability, 2'000, false, kRoot, tables(), kSizeBytesMax,
                     /*group_bytes_max=*/is_cut ? 1 : 10'000);
          ASSERT_TRUE(store.status.ok()) << store.status.to_string();
          ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "queue", 1, 9));
          std::vector<DrawId> draws;
          EXPECT_EQ(draw_awaited(store, "queue", 4, draws), (std::vector<ItemKey>{1, 2, 3, 4}));
          // These items reuse the freed slots.
          ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "queue", 9, 12));
          if (checkpoint == Checkpoint::kBeforeTheReceipt) {
            ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
          }
          store.service->receive("queue", std::span(draws).first(2));
          if (checkpoint == Checkpoint::kAfterIt) {
            ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
          }
          ASSERT_TRUE(static_cast<Journal*>(store.service->log())->sync().ok());
          if (is_cut) files.restart();
        }
        if (is_cut) files.restart();
        // The result is the same with an open journal, and then with a checkpoint only.
        for (int life = 0; life < 3; ++life) {
          Case store(files, life == 2 ? Durability::kNone : durability);
          ASSERT_TRUE(store.status.ok()) << store.status.to_string();
          const TableInfo info = info_and_wait(*store.service).value()[2];
          EXPECT_EQ(info.current_size, 9);
          if (life == 1) {
            ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
          }
        }
        Case store(files, durability);
        ASSERT_TRUE(store.status.ok()) << store.status.to_string();
        std::vector<DrawId> draws;
        std::vector<ItemKey> redelivered;
        EXPECT_EQ(draw_awaited(store, "queue", 9, draws, &redelivered),
                  (std::vector<ItemKey>{3, 4, 5, 6, 7, 8, 9, 10, 11}));
        EXPECT_EQ(redelivered, (std::vector<ItemKey>{3, 4}));
      }
    }
  }
}

TEST(Journal, AwaitedDrawsOfItemsThatAreGoneAreForgottenWithTheirReader) {
  sim::FileSystem files(1);
  std::string before;
  {
    Case store(files, Durability::kSync);
    ASSERT_TRUE(store.status.ok()) << store.status.to_string();
    ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "thrice", 1, 2));
    SampleRequest request{.table = "thrice", .count = 1, .deadline = TimePoint{0}};
    request.awaits_receipt = true;
    SampleResult result = sample_and_wait(*store.service, std::move(request));
    ASSERT_EQ(result.batch.size(), 1u) << result.status.to_string();
    ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "thrice", 2, 17));  // evict it
    EXPECT_EQ(store.service->hand_back("thrice", result.batch), 0u);
    ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
    EXPECT_EQ(store.service->log()->size_bytes(), 0u) << "no draw outlives the checkpoint";
    EXPECT_TRUE(journal_files(files, kRoot)->empty());
    before = store.text();
  }
  const Case again(files, Durability::kSync);
  ASSERT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(again.text(), before);
}

// A request is answered with exactly what one breath has drawn, or when it has drawn in several;
// or it still waits when its store ends.
TEST(Journal, DrawsOfARequestAreDrawnAgainUnlessItWasAnswered) {
  constexpr std::size_t kBreath = Table::kBreath;
  TableOptions wide = table_options("queue", "Fifo", "Fifo", 1'000, RateLimiter::queue(1'000));
  wide.max_times_sampled = 1;
  struct Draw {
    std::size_t items;
    std::size_t count;
    std::size_t min_count;
    std::int64_t left;
  };
  for (const Draw& draw : {Draw{kBreath, 2 * kBreath, 1, 0}, Draw{kBreath + 7, kBreath + 7, 1, 0},
                           Draw{7, 8, 1, 0}, Draw{7, 8, 8, 7}, Draw{kBreath + 7, 999, 999, 263}}) {
    sim::FileSystem files(1);
    {
      const Case store(files, Durability::kSync, 100'000, false, kRoot, {wide});
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      std::vector<Item> items;
      for (ItemKey key = 1; key <= draw.items; ++key) {
        items.push_back(testing::make_item(key, 1.0, 0));
      }
      ASSERT_TRUE(insert_and_wait(*store.service, {"queue", items, TimePoint{0}}).status.ok());
      SampleRequest request{.table = "queue", .count = draw.count, .min_count = draw.min_count};
      std::size_t answered = 0;
      (void)store.service->sample(std::move(request), [&answered](const SampleResult& result) {
        if (result.status.ok()) answered = result.batch.size();
      });
      EXPECT_EQ(answered, draw.left > 0 ? 0 : draw.items);
      EXPECT_EQ(info_and_wait(*store.service).value()[0].current_size, 0);
      ASSERT_TRUE(static_cast<Journal*>(store.service->log())->sync().ok());
      store.service->close();  // before `answered` ends
    }
    const Case store(files, Durability::kSync, 100'000, false, kRoot, {wide});
    ASSERT_TRUE(store.status.ok()) << store.status.to_string();
    EXPECT_EQ(info_and_wait(*store.service).value()[0].current_size, draw.left)
        << draw.count << " of " << draw.items << ", at least " << draw.min_count;
  }
}

TEST(Journal, AwaitedDrawsSurviveAnyPowerCutAmongCheckpoints) {
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 5'000));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    files.stop_at(1 + static_cast<std::int64_t>(random.below(300)));
    ItemKey inserted = 0;
    ItemKey asked = 0;
    ItemKey received = 0;
    {
      Case store(files, Durability::kSync);
      while (store.status.ok() && !files.is_stopped()) {
        if (random.below(3) > 0) {
          std::vector<Item> items;
          items.push_back(testing::make_item(++asked, 1.0));
          const auto result = insert_and_wait(*store.service, {"queue", items, TimePoint{0}});
          if (result.status.ok()) inserted = asked;
          if (result.status.code() == StatusCode::kDeadlineExceeded) --asked;  // the queue is full
        } else if (random.below(4) == 0) {
          (void)store.checkpointer->write(*store.service, {});
        } else {
          SampleRequest request;
          request.table = "queue";
          request.count = 1 + random.below(4);
          request.min_count = 1;
          request.deadline = TimePoint{0};
          request.awaits_receipt = true;
          const SampleResult result = sample_and_wait(*store.service, std::move(request));
          std::vector<DrawId> draws;
          for (std::size_t i = 0; i < result.batch.size() && random.below(5) > 0; ++i) {
            draws.push_back({result.batch.tickets()[i], result.batch.times_sampled()[i]});
            received = result.batch.keys()[i];
          }
          if (draws.size() < result.batch.size()) break;  // the client is gone and confirms no more
          store.service->receive("queue", draws);
        }
      }
      while (store.status.ok() && !files.is_stopped()) {
        if (!store.checkpointer->write(*store.service, {}).ok()) break;
      }
    }
    files.restart();
    Case again(files, Durability::kSync);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string() << ", seed " << seed;
    const std::int64_t size = info_and_wait(*again.service).value()[2].current_size;
    std::vector<DrawId> draws;
    const auto keys = draw_awaited(again, "queue", static_cast<std::size_t>(size), draws);
    // All items that were confirmed and not received, in order, after a few received ones at most.
    for (std::size_t i = 1; i < keys.size(); ++i) ASSERT_EQ(keys[i], keys[i - 1] + 1) << seed;
    if (inserted > received) {
      ASSERT_FALSE(keys.empty()) << seed;
      ASSERT_LE(keys.front(), received + 1) << "seed " << seed;
      ASSERT_GE(keys.back(), inserted) << "seed " << seed;
      ASSERT_LE(keys.back(), asked) << "seed " << seed;
    }
  }
}

TEST(Journal, ItemsThatAWriterMayResendAreKnownAfterARestart) {
  const std::string session(32, 'a');
  const auto runs_of = [&](Case& store) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
    for (const SessionNumbers& known : store.service->known_sessions()) {
      EXPECT_EQ(known.session, session);
      for (const NumberSet::Run& run : known.in.runs()) runs.emplace_back(run.begin, run.end);
    }
    return runs;
  };
  const auto insert = [&](Case& store, std::uint64_t number) {
    std::vector<Item> items;
    items.push_back(testing::make_item(number, 1.0));
    InsertRequest request{.table = "queue", .items = items, .deadline = TimePoint{0}};
    request.numbers = {session, number};
    ASSERT_TRUE(insert_and_wait(*store.service, std::move(request)).status.ok());
  };
  using Runs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  for (const bool has_checkpoint : {false, true}) {
    sim::FileSystem files(1);
    {
      Case store(files, Durability::kSync);
      for (const std::uint64_t number : {1u, 2u, 3u, 5u}) {
        ASSERT_NO_FATAL_FAILURE(insert(store, number));
      }
      store.service->settle(session, 2);
      // The items are gone, but their numbers must still be known.
      SampleRequest request{.table = "queue", .count = 4, .deadline = TimePoint{0}};
      EXPECT_EQ(sample_and_wait(*store.service, std::move(request)).batch.size(), 4u);
      if (has_checkpoint) {
        ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      }
      ASSERT_NO_FATAL_FAILURE(insert(store, 6));
      files.stop_at(files.calls() + 1);  // a power cut
      std::vector<Item> items;
      items.push_back(testing::make_item(7, 1.0));
      InsertRequest lost{.table = "queue", .items = items, .deadline = TimePoint{0}};
      lost.numbers = {session, 7};
      EXPECT_FALSE(insert_and_wait(*store.service, std::move(lost)).status.ok());
    }
    files.restart();
    for (int life = 0; life < 3; ++life) {
      Case store(files, Durability::kSync);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      const Runs runs = runs_of(store);
      ASSERT_EQ(runs.size(), 2u);
      EXPECT_EQ(runs[0], (std::pair<std::uint64_t, std::uint64_t>{2, 4}));
      EXPECT_EQ(runs[1].first, 5u);
      const std::int64_t size = info_and_wait(*store.service).value()[2].current_size;
      // The last item is restored together with its number, or neither is.
      EXPECT_EQ(runs[1].second, 6u + static_cast<std::uint64_t>(size));
      if (life == 1) {
        ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      }
      if (life == 2) store.service->settle(session, UINT64_MAX);
    }
    Case store(files, Durability::kSync);
    EXPECT_TRUE(runs_of(store).empty());
  }
}

// A writer chooses its numbers, and may choose any.
TEST(Journal, AStoreReopensWhateverNumbersAWriterSent) {
  for (const bool has_checkpoint : {false, true}) {
    sim::FileSystem files(1);
    {
      Case store(files, Durability::kSync);
      for (const std::uint64_t number : {UINT64_MAX - 1, UINT64_MAX, UINT64_MAX}) {
        std::vector<Item> items;
        items.push_back(testing::make_item(number, 1.0));
        InsertRequest request{.table = "queue", .items = items, .deadline = TimePoint{0}};
        request.numbers = {"a writer", number};
        ASSERT_TRUE(insert_and_wait(*store.service, std::move(request)).status.ok());
      }
      if (has_checkpoint) {
        ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      }
    }
    const Case again(files, Durability::kSync);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    const std::vector<SessionNumbers> known = again.service->known_sessions();
    ASSERT_EQ(known.size(), 1u);
    EXPECT_TRUE(known[0].in.contains(UINT64_MAX - 1));
  }
}

// Runs until a power cut, or for a number of steps; records the state after each step, and how many
// were confirmed.
struct Cut {
  std::vector<std::string> states;
  std::size_t confirmed = 0;
  std::size_t synced = 0;  // the number of states when the last sync() or checkpoint ended

  Cut(sim::FileSystem& files, Durability durability, std::uint64_t seed, int steps = 120,
      std::uint64_t sync_every = 7) {
    Case store(files, durability);
    if (!store.status.ok()) return;
    User user(store, seed);
    states.push_back(store.text());
    auto* const journal = static_cast<Journal*>(store.service->log());
    for (int i = 0; i < steps && !files.is_stopped(); ++i) {
      bool is_confirmed = false;
      (void)user.step(&is_confirmed);
      states.push_back(store.text());
      if (is_confirmed) confirmed = states.size() - 1;
      const bool is_checkpoint = i % 50 == 49;
      const std::uint64_t since = static_cast<std::uint64_t>(i) % sync_every;
      if (is_checkpoint || (durability == Durability::kInterval && since == sync_every - 1)) {
        const bool is_done = is_checkpoint ? store.checkpointer->write(*store.service, {}).ok()
                                           : journal->sync().ok();
        if (is_done) synced = states.size() - 1;
      }
    }
    if (steps < 120) files.stop();
  }
};

void expect_a_state_since(sim::FileSystem& files, const std::vector<std::string>& states,
                          std::size_t least, std::uint64_t seed) {
  const Case again(files, Durability::kSync);
  ASSERT_TRUE(again.status.ok()) << again.status.to_string() << ", seed " << seed;
  if (states.empty()) return;
  const std::string text = again.text();
  // The last equal state, since some steps change nothing.
  const auto found = std::find(states.rbegin(), states.rend(), text);
  ASSERT_NE(found, states.rend()) << "no state that ever was, seed " << seed << "\n" << text;
  const auto index = static_cast<std::size_t>(states.rend() - found) - 1;
  ASSERT_GE(index, least) << "seed " << seed << " of " << states.size();
}

TEST(JournalCrash, WithSyncConfirmedItemsSurviveAnyPowerCut) {
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  std::size_t confirmed = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    files.stop_at(1 + static_cast<std::int64_t>(random.below(700)));
    const Cut cut(files, Durability::kSync, seed);
    files.restart();
    confirmed += cut.confirmed;
    ASSERT_NO_FATAL_FAILURE(expect_a_state_since(files, cut.states, cut.confirmed, seed));
  }
  EXPECT_GT(confirmed, 10 * seeds);
}

TEST(JournalCrash, WithAnIntervalAPowerCutLosesOnlyWhatCameAfterTheLastSync) {
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  std::size_t synced = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    files.stop_at(1 + static_cast<std::int64_t>(random.below(500)));
    const Cut cut(files, Durability::kInterval, seed);
    files.restart();
    synced += cut.synced;
    ASSERT_NO_FATAL_FAILURE(expect_a_state_since(files, cut.states, cut.synced, seed));
  }
  EXPECT_GT(synced, 10 * seeds);
}

// The test requests no sync, so only the bound causes some.
TEST(JournalCrash, WithAnIntervalAPowerCutLosesOnlyChangesOfTwoIntervals) {
  constexpr Duration kBound = std::chrono::milliseconds(200);
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  std::size_t bounded = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    files.stop_at(1 + static_cast<std::int64_t>(random.below(400)));
    std::vector<std::string> states;
    std::vector<TimePoint> made;  // the time of each state
    std::size_t least = 0;
    {
      Case store(files, Durability::kInterval, 2'000 + 10'000 * random.below(2));
      User user(store, seed);
      for (int i = 0; store.status.ok() && !files.is_stopped() && i < 120; ++i) {
        bool is_confirmed = false;
        if (i > 0) (void)user.step(&is_confirmed);
        states.push_back(store.text());
        made.push_back(store.clock.now());
        while (is_confirmed && made[least + 1] + kBound <= made.back()) ++least;
        store.clock.advance(std::chrono::milliseconds(random.below(60)));
        if (i % 50 == 49) (void)store.checkpointer->write(*store.service, {});
      }
    }
    files.restart();
    bounded += least;
    ASSERT_NO_FATAL_FAILURE(expect_a_state_since(files, states, least, seed));
  }
  EXPECT_GT(bounded, 10 * seeds);
}

// The system says once that it could not write a file, and has dropped what it could not.
TEST(JournalCrash, AFileWhoseSyncFailedBeforeARestartIsWholeAfterIt) {
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    const auto durability = random.below(2) == 0 ? Durability::kSync : Durability::kInterval;
    files.fail_at(10 + static_cast<std::int64_t>(random.below(80)), data_loss("device"));
    const Cut failed(files, durability, seed, 45, 1 + random.below(10));
    files.restart(sim::FileSystem::End::kKill);
    ASSERT_NO_FATAL_FAILURE(expect_a_state_since(files, failed.states, failed.confirmed, seed));
    const Cut cut(files, durability, seed + 1, static_cast<int>(random.below(30)), 3);
    ASSERT_FALSE(cut.states.empty());
    files.restart();
    const std::size_t least = durability == Durability::kSync ? cut.confirmed : cut.synced;
    ASSERT_NO_FATAL_FAILURE(expect_a_state_since(files, cut.states, least, seed));
  }
}

// The process ends between two calls of the file system, or during one; some writes may have failed
// before; and the next process is killed while it recovers.
TEST(JournalCrash, WithAnIntervalAKillLosesNothingConfirmed) {
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  std::size_t confirmed = 0;
  std::uint64_t from_the_ring = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    const bool is_in_a_call = random.below(2) == 0;
    if (is_in_a_call) files.stop_at(1 + static_cast<std::int64_t>(random.below(100)));
    if (random.below(3) == 0) {
      files.fail_at(8 + static_cast<std::int64_t>(random.below(60)), data_loss("device"));
    }
    const int steps = is_in_a_call ? 120 : static_cast<int>(random.below(120));
    const Cut cut(files, Durability::kInterval, seed, steps, 1 + random.below(40));
    files.restart(sim::FileSystem::End::kKill);
    confirmed += cut.confirmed;
    const auto left = files.content(kRoot);
    const auto ring = left.find(join_path(kRoot, kRingName));
    if (ring != left.end()) from_the_ring += groups_from(ring->second, 1).empty() ? 0u : 1u;
    while (random.below(2) == 0) {
      files.stop_at(1 + files.calls() + static_cast<std::int64_t>(random.below(25)));
      const Case killed(files, Durability::kInterval);
      files.restart(sim::FileSystem::End::kKill);
    }
    ASSERT_NO_FATAL_FAILURE(expect_a_state_since(files, cut.states, cut.confirmed, seed));
  }
  EXPECT_GT(confirmed, 10 * seeds);
  EXPECT_GT(from_the_ring, seeds / 10);
}

// Groups in a ring that were never written to a file must not be taken for those of a later life.
TEST(JournalCrash, RepeatedCrashesOfAnyKindRestoreOnlyStatesThatExisted) {
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    for (std::uint64_t life = 0; life < 4; ++life) {
      const bool is_in_a_call = random.below(2) == 0;
      if (is_in_a_call) {
        files.stop_at(1 + files.calls() + static_cast<std::int64_t>(random.below(100)));
      }
      const int steps = is_in_a_call ? 60 : static_cast<int>(random.below(60));
      const bool is_synced = random.below(4) == 0;
      const auto durability = is_synced ? Durability::kSync : Durability::kInterval;
      const Cut cut(files, durability, mix64(seed) + life, steps, 1 + random.below(40));
      const bool is_killed = random.below(2) == 0;
      files.restart(is_killed ? sim::FileSystem::End::kKill : sim::FileSystem::End::kPowerCut);
      const std::size_t least = is_killed || is_synced ? cut.confirmed : cut.synced;
      ASSERT_NO_FATAL_FAILURE(expect_a_state_since(files, cut.states, least, seed))
          << "life " << life;
    }
  }
}

// "uniform" is not logged, "best" has an interval, and the others are synced.
std::vector<TableOptions> tables_that_differ() {
  std::vector<TableOptions> made = tables();
  made[0].durability = Durability::kNone;
  made[1].durability = Durability::kInterval;
  return made;
}

TEST(JournalCrash, EachTableKeepsWhatItsDurabilityPromises) {
  const auto seeds = static_cast<std::uint64_t>(scaled_in_release(1'000, 10'000));
  std::size_t confirmed_in_all = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    sim::FileSystem files(seed);
    Random random(mix64(seed));
    files.stop_at(1 + static_cast<std::int64_t>(random.below(600)));
    std::vector<std::vector<std::string>> states;  // of all tables, after each step
    std::size_t synced = 0;                        // the last one confirmed for synced tables
    std::vector<std::size_t> checkpoints = {0};    // that were started; the last may be incomplete
    std::size_t written = 0;                       // the last one that is complete
    {
      Case store(files, Durability::kSync, 2'000, false, kRoot, tables_that_differ());
      if (store.status.ok()) {
        User user(store, seed);
        states.push_back(store.texts());
        for (int i = 0; i < 120 && !files.is_stopped(); ++i) {
          const std::vector<std::string> before = states.back();
          bool is_confirmed = false;
          (void)user.step(&is_confirmed);
          states.push_back(store.texts());
          const bool is_of_synced = before[2] != states.back()[2] || before[3] != states.back()[3];
          if (is_confirmed && is_of_synced) synced = states.size() - 1;
          if (i % 50 != 49) continue;
          checkpoints.push_back(states.size() - 1);
          if (store.checkpointer->write(*store.service, {}).ok()) {
            written = synced = states.size() - 1;
          }
        }
      }
    }
    files.restart();
    const Case again(files, Durability::kSync, 2'000, false, kRoot, tables_that_differ());
    ASSERT_TRUE(again.status.ok()) << again.status.to_string() << ", seed " << seed;
    if (states.empty()) continue;
    confirmed_in_all += synced;
    const std::vector<std::string> found = again.texts();
    ASSERT_TRUE(std::ranges::any_of(
        checkpoints, [&](std::size_t at) { return at >= written && states[at][0] == found[0]; }))
        << "seed " << seed << "\n"
        << found[0];
    // All logged tables are restored to one moment.
    const bool is_one_moment = std::any_of(
        states.begin() + static_cast<std::ptrdiff_t>(synced), states.end(), [&](const auto& state) {
          return state[1] == found[1] && state[2] == found[2] && state[3] == found[3];
        });
    ASSERT_TRUE(is_one_moment) << "seed " << seed;
  }
  EXPECT_GT(confirmed_in_all, 10 * seeds);
}

void expect_failures_cost_nothing(Durability durability) {
  std::int64_t calls = 0;
  {
    sim::FileSystem files(1);
    const Cut whole(files, durability, 9);
    calls = files.calls();
  }
  ASSERT_GT(calls, 60);
  const std::int64_t stride = 5 / scaled_in_release(1, 5);
  for (std::int64_t at = 2; at <= 2 * calls + 1; at += stride) {
    const std::int64_t call = at / 2;
    const bool is_full = at % 2 == 0;  // ENOSPC, otherwise EIO
    sim::FileSystem files(1);
    files.fail_at(call, is_full ? resource_exhausted("no space") : data_loss("device"));
    std::string before;
    {
      Case store(files, durability);
      if (!store.status.ok()) continue;
      User user(store, 9);
      Status refused;
      for (int i = 0; i < 120 && refused.ok(); ++i) {
        refused = user.step();
        if (refused.ok() && i % 50 == 49) (void)store.checkpointer->write(*store.service, {});
      }
      if (!refused.ok()) {
        ASSERT_EQ(refused.code(), is_full ? StatusCode::kResourceExhausted : StatusCode::kDataLoss)
            << refused.to_string();
        // Nothing is confirmed until a checkpoint is written; after it everything is.
        ASSERT_FALSE(store.service->log()->check().ok());
        ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
        ASSERT_TRUE(store.service->log()->check().ok());
        for (int i = 0; i < 20; ++i) ASSERT_TRUE(user.step().ok());
      }
      // Samples do not wait for a sync, so this sync may be the first to fail.
      auto* const journal = static_cast<Journal*>(store.service->log());
      if (!journal->sync().ok()) {
        ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      }
      ASSERT_TRUE(journal->sync().ok()) << "call " << call;
      before = store.text();
      files.restart();  // a power cut
    }
    const Case again(files, durability);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string() << ", call " << call;
    ASSERT_EQ(again.text(), before) << "call " << call;
  }
}

TEST(JournalCrash, ADiskFailureAtAnyCallConfirmsNothingThatIsLost) {
  ASSERT_NO_FATAL_FAILURE(expect_failures_cost_nothing(Durability::kSync));
  ASSERT_NO_FATAL_FAILURE(expect_failures_cost_nothing(Durability::kInterval));
}

// A store with a journal of one file, whose last group was written after the others were synced.
std::vector<std::byte> journal_bytes(sim::FileSystem& files, std::string& path) {
  {
    Case store(files, Durability::kSync, std::uint64_t{1} << 20);
    User user(store, 3);
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(user.step().ok());
  }
  path = join_path(kRoot, journal_name(1));
  return files.content(kRoot).at(path);
}

TEST(JournalDamage, NoFlippedByteAndNoCutIsAcceptedSilently) {
  sim::FileSystem whole(1);
  std::string path;
  const std::vector<std::byte> bytes = journal_bytes(whole, path);
  const JournalFile file = read_journal_file(bytes, true, path, 1).value();
  ASSERT_GT(file.groups.size(), 20u);
  const std::uint64_t last_group = file.groups.back().offset;
  Random random(5);
  const std::int64_t count = scaled_in_release(2'000, 10'000);
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::byte> damaged = bytes;
    const std::uint64_t offset = random.below(bytes.size());
    const bool is_cut = random.below(8) == 0;
    if (is_cut) {
      damaged.resize(offset);
    } else {
      damaged[offset] ^= static_cast<std::byte>(1u << random.below(8));
    }
    const auto read = read_journal_file(damaged, true, path, 1);
    if (is_cut || offset >= last_group) {
      // It looks like the result of a power cut, as does damage that nothing follows.
      if (!read.ok()) {
        ASSERT_EQ(offset / kFileHeaderBytes, 0u) << read.status().to_string();
        continue;
      }
      ASSERT_LE(read->good_bytes, offset) << "what is dropped is reported";
      continue;
    }
    ASSERT_FALSE(read.ok()) << "flip at " << offset;
    ASSERT_TRUE(read.status().code() == StatusCode::kDataLoss ||
                read.status().code() == StatusCode::kUnimplemented);
    ASSERT_NE(read.status().message().find("journal-0000000001"), std::string::npos);
  }
}

// The same in a journal of several files, as a store opens it: a file that others follow has no end
// that a power cut could have interrupted.
TEST(JournalDamage, InSeveralFilesOnlyTheEndOfTheLastOneIsDropped) {
  sim::FileSystem whole(1);
  std::string before;
  {
    Case store(whole, Durability::kSync);
    User user(store, 3);
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(user.step().ok());
    before = store.text();
  }
  const auto content = whole.content(kRoot);
  const std::vector<std::uint64_t> numbers = journal_files(whole, kRoot).value();
  ASSERT_GT(numbers.size(), 2u);
  const std::string last = join_path(kRoot, journal_name(numbers.back()));
  const std::uint64_t last_group =
      read_journal_file(content.at(last), true, last, 1).value().groups.back().offset;
  Random random(5);
  const std::int64_t count = scaled_in_release(600, 3'000);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = journal_name(numbers[random.below(numbers.size())]);
    const std::string path = join_path(kRoot, name);
    const std::uint64_t offset = random.below(content.at(path).size());
    const bool is_cut = random.below(8) == 0;
    sim::FileSystem files(1);
    ASSERT_TRUE(create_folders(files, kRoot).ok());
    for (const auto& [each, bytes] : content) {
      ASSERT_TRUE(files.create(each).value()->append(bytes).ok());
    }
    if (is_cut) {
      files.cut(path, offset);
    } else {
      files.flip(path, offset, static_cast<std::byte>(1u << random.below(8)));
    }
    const std::string what = format("{} at {}, {}", name, offset, is_cut ? "cut" : "flipped");
    const auto inspected = inspect_journal(files, kRoot);
    const Case again(files, Durability::kNone);
    if (path == last && (is_cut || offset >= last_group)) {
      ASSERT_TRUE(inspected.ok()) << what << ": " << inspected.status().to_string();
      ASSERT_TRUE(again.status.ok()) << what << ": " << again.status.to_string();
      // The last group only says that the store was closed.
      if (offset >= last_group) {
        ASSERT_EQ(again.text(), before) << what;
      }
      continue;
    }
    for (const Status& status : {inspected.status(), again.status}) {
      ASSERT_TRUE(status.code() == StatusCode::kDataLoss ||
                  status.code() == StatusCode::kUnimplemented)
          << what << ": " << status.to_string();
      ASSERT_NE(status.message().find("journal-"), std::string::npos) << status.message();
    }
  }
}

TEST(JournalDamage, AFileOfANewerFormatVersionIsReportedWhicheverItIs) {
  sim::FileSystem whole(1);
  {
    Case store(whole, Durability::kSync);
    User user(store, 3);
    for (int i = 0; i < 60; ++i) ASSERT_TRUE(user.step().ok());
  }
  const auto content = whole.content(kRoot);
  const std::vector<std::uint64_t> numbers = journal_files(whole, kRoot).value();
  for (const std::uint64_t number : numbers) {
    const std::string path = join_path(kRoot, journal_name(number));
    sim::FileSystem files(1);
    ASSERT_TRUE(create_folders(files, kRoot).ok());
    for (const auto& [each, bytes] : content) {
      ASSERT_TRUE(files.create(each).value()->append(bytes).ok());
    }
    files.flip(path, 8, std::byte{kFormatVersion ^ (kFormatVersion + 1)});
    const Status inspected = inspect_journal(files, kRoot).status();
    const Case again(files, Durability::kNone);
    for (const Status& status : {inspected, again.status}) {
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.to_string();
      const std::string words = format("'{}' has format version {}", path, kFormatVersion + 1);
      EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    }
    EXPECT_EQ(journal_files(files, kRoot).value(), numbers);
  }
}

TEST(JournalDamage, AJournalOfAnotherCheckpointOrOfOtherTablesIsRefused) {
  sim::FileSystem files(1);
  {
    Case store(files, Durability::kSync);
    User user(store, 3);
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(user.step().ok());
    ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(user.step().ok());
  }
  const auto open = [&](std::vector<TableOptions> given, OnMismatch on_mismatch) {
    CheckpointerOptions options;
    options.files = &files;
    options.on_mismatch = on_mismatch;
    auto checkpointer = Checkpointer::open(kRoot, options).value();
    return checkpointer->open_store(std::move(given), {}).status();
  };
  std::vector<TableOptions> smaller = tables();
  smaller[0].max_size = 5;
  Status refused = open(smaller, OnMismatch::kMine);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("'uniform' is not the one that the journal is of"),
            std::string::npos)
      << refused.message();
  EXPECT_TRUE(open(tables(), OnMismatch::kRefuse).ok());

  // Without its checkpoint, the journal has nothing to start from.
  for (const auto& [path, bytes] : files.content("/data/replay/checkpoint-0000000001")) {
    ASSERT_TRUE(files.remove_file(path).ok());
  }
  ASSERT_TRUE(files.remove_folder("/data/replay/checkpoint-0000000001").ok());
  refused = open(tables(), OnMismatch::kRefuse);
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
  EXPECT_NE(refused.message().find("record 1 or a later one is missing"), std::string::npos)
      << refused.message();
}

TEST(Journal, AJournalIsNotContinuedFromAnOlderCheckpoint) {
  sim::FileSystem files(1);
  {
    Case store(files, Durability::kSync);
    User user(store, 3);
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(user.step().ok());
      ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
    }
  }
  CheckpointerOptions options;
  options.files = &files;
  options.journal = {.durability = Durability::kSync, .has_thread = false};
  const auto open = [&](const std::string& path) {
    return Checkpointer::open(path, options).value()->open_store(tables(), {}).status();
  };
  EXPECT_EQ(open("/data/replay/checkpoint-0000000001").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(open("/data/replay/checkpoint-0000000002").ok());
}

TEST(Journal, ASyncDoesNotFailWhenACheckpointRemovesItsFile) {
  sim::FileSystem inner(1);
  HookedFileSystem files(inner);
  Case store(files, Durability::kInterval);
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  User user(store, 3);
  auto* const journal = static_cast<Journal*>(store.service->log());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(user.step().ok());
  bool has_run = false;
  files.before_sync_file = [&] {
    ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
    EXPECT_TRUE(journal_files(files, kRoot)->empty());
    has_run = true;
  };
  const Status synced = journal->sync();
  EXPECT_TRUE(has_run);
  EXPECT_TRUE(synced.ok()) << synced.to_string();
  EXPECT_TRUE(journal->check().ok()) << journal->check().to_string();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(user.step().ok());
  const std::string before = store.text();
  store.service.reset();
  store.checkpointer.reset();
  const Case again(files, Durability::kInterval);
  ASSERT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(again.text(), before);
}

TEST(Journal, ASyncConfirmsNothingIfTheWritersSyncOfTheFileFailedMeanwhile) {
  sim::FileSystem inner(1);
  HookedFileSystem files(inner);
  Case store(files, Durability::kSync, std::uint64_t{1} << 20, /*has_thread=*/false, kRoot,
             tables_that_differ());
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  auto* const journal = static_cast<Journal*>(store.service->log());
  const auto insert = [&](std::string_view table, ItemKey key) {
    std::vector<Item> items;
    items.push_back(testing::make_item(key, 1.0));
    return insert_and_wait(*store.service, {.table = table, .items = items}).status;
  };
  ASSERT_TRUE(insert("best", 1).ok());  // is not synced yet
  const std::uint64_t position = journal->position();
  constexpr std::uint32_t kQueue = 2;
  ASSERT_FALSE(journal->is_durable(kQueue, position));
  files.before_sync_file = [&] {
    inner.fail_at(inner.calls() + 2, data_loss("device"));  // after a write
    EXPECT_FALSE(insert("queue", 2).ok());
  };
  const Status synced = journal->sync();
  EXPECT_EQ(synced.code(), StatusCode::kDataLoss) << synced.to_string();
  EXPECT_FALSE(journal->is_durable(kQueue, position));
  ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
  EXPECT_TRUE(journal->is_durable(kQueue, position));
}

// The checkpoint is written, but files of the journal cannot be removed, so the journal stays
// unusable; an insert that has waited since before the failure has no record.
TEST(Journal, AnInsertThatWaitedIsNotConfirmedAfterARepairThatFailed) {
  sim::FileSystem inner(1);
  HookedFileSystem files(inner);
  bool is_broken = false;
  files.before_append = [&](std::size_t) { return is_broken ? data_loss("device") : Status(); };
  Case store(files, Durability::kSync, std::uint64_t{1} << 20);
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "queue", 1, 11));  // it is full
  const auto insert = [&](std::string_view table, ItemKey key) {
    std::vector<Item> items;
    items.push_back(testing::make_item(key, 1.0));
    return insert_and_wait(*store.service, {table, items, TimePoint{0}}).status;
  };
  std::vector<Item> waiting;
  waiting.push_back(testing::make_item(11, 1.0));
  std::optional<InsertResult> answer;
  store.service->insert({"queue", waiting, TimePoint::max()},
                        [&](InsertResult result) { answer = std::move(result); });
  is_broken = true;
  EXPECT_EQ(insert("uniform", 12).code(), StatusCode::kDataLoss);
  is_broken = false;
  files.before_remove_file = [](const std::string& path) {
    return path.find("journal") != std::string::npos ? data_loss("busy") : Status();
  };
  ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
  EXPECT_FALSE(store.service->log()->check().ok());
  ASSERT_FALSE(answer);
  SampleRequest one{.table = "queue", .count = 1, .deadline = TimePoint{0}};
  (void)sample_and_wait(*store.service, std::move(one));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status.code(), StatusCode::kDataLoss) << answer->status.to_string();
  EXPECT_TRUE(answer->is_unlogged);
  files.before_remove_file = nullptr;
  ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
  EXPECT_TRUE(store.service->log()->check().ok());
  EXPECT_TRUE(insert("uniform", 13).ok());
}

// On the journal's thread that writes, and on the one that only syncs.
TEST(Journal, TheCompletionOfAChangeMayDropTheLastReferenceToItsStore) {
  for (const bool differ : {false, true}) {
    SCOPED_TRACE(differ);
    const auto folder =
        std::filesystem::temp_directory_path() / format("reverie-journal-{}-last", getpid());
    const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
    std::promise<std::thread::id> completed;
    std::promise<std::thread::id> ended;
    std::promise<void> is_last;
    const std::shared_future<void> may_write = is_last.get_future().share();
    std::atomic<bool> waits{false};
    HookedFileSystem files(FileSystem::system());
    files.before_append = [&](std::size_t) {
      if (waits) may_write.wait();
      return Status();
    };
    Case store(files, Durability::kSync, std::uint64_t{1} << 20, /*has_thread=*/true,
               folder.string(), differ ? tables_that_differ() : tables());
    ASSERT_TRUE(store.status.ok()) << store.status.to_string();
    store.service->set_checkpoints(std::make_unique<testing::EndingCheckpoints>(ended));
    waits = true;
    Item item = testing::make_item(1, 1.0);
    (void)store.service->insert(
        {.table = "queue", .items = {&item, 1}},
        [&completed, held = store.service](const InsertResult& result) mutable {
          EXPECT_TRUE(result.status.ok()) << result.status.to_string();
          held.reset();
          completed.set_value(std::this_thread::get_id());
        });
    store.service.reset();
    is_last.set_value();
    const std::thread::id own = completed.get_future().get();
    EXPECT_NE(own, std::this_thread::get_id());
    EXPECT_NE(ended.get_future().get(), own) << "it would wait for itself";
  }
}

TEST(Journal, AnIntervalIsConfirmedDuringASync) {
  const auto folder =
      std::filesystem::temp_directory_path() / format("reverie-journal-{}-mixed", getpid());
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  HookedFileSystem files(FileSystem::system());
  std::atomic<bool> is_in_sync{false};
  std::atomic<bool> was_confirmed{false};
  const auto insert = [](Case& store, std::string_view table, ItemKey key) {
    std::vector<Item> items;
    items.push_back(testing::make_item(key, 1.0));
    return insert_and_wait(*store.service, {.table = table, .items = items}).status;
  };
  Case store(files, Durability::kSync, std::uint64_t{1} << 20, /*has_thread=*/true, folder.string(),
             tables_that_differ());
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  // Runs on the thread that syncs, which cannot confirm anything meanwhile.
  files.before_sync_file = [&] {
    is_in_sync = true;
    EXPECT_TRUE(insert(store, "best", 1).ok());
    EXPECT_TRUE(insert(store, "uniform", 2).ok());
    was_confirmed = true;
  };
  EXPECT_TRUE(insert(store, "queue", 3).ok());
  EXPECT_TRUE(is_in_sync && was_confirmed);
  // Tables that are not logged must not wait for a closed journal either.
  store.service->close();
}

TEST(Journal, AnIntervalWaitsForTheSyncOfADiskThatIsTwoIntervalsBehind) {
  const auto folder =
      std::filesystem::temp_directory_path() / format("reverie-journal-{}-slow", getpid());
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  HookedFileSystem files(FileSystem::system());
  Case store(files, Durability::kInterval, std::uint64_t{1} << 20, /*has_thread=*/true,
             folder.string());
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  std::promise<void> has_begun;
  std::promise<void> may_end;
  files.before_sync_file = [&] {
    has_begun.set_value();
    may_end.get_future().wait();
  };
  std::atomic<int> confirmed{0};
  const auto insert = [&](ItemKey key) {
    std::vector<Item> items;
    items.push_back(testing::make_item(key, 1.0));
    (void)store.service->insert({.table = "uniform", .items = items}, [&](const auto& result) {
      EXPECT_TRUE(result.status.ok()) << result.status.to_string();
      ++confirmed;
    });
  };
  insert(1);
  ASSERT_TRUE(test::eventually([&] { return confirmed == 1; }));
  has_begun.get_future().wait();
  store.clock.advance(std::chrono::milliseconds(150));
  insert(2);
  EXPECT_TRUE(test::eventually([&] { return confirmed == 2; })) << "the sync is not late yet";
  store.clock.advance(std::chrono::milliseconds(50));
  insert(3);
  EXPECT_EQ(confirmed, 2);
  auto* const journal = static_cast<Journal*>(store.service->log());
  EXPECT_FALSE(journal->is_durable(0, journal->position()));
  may_end.set_value();
  EXPECT_TRUE(test::eventually([&] { return confirmed == 3; }));
  store.service->close();
}

// The journal's thread is busy meanwhile, so that it completes nothing.
TEST(Journal, ACheckpointCompletesNoChangeWhileItHoldsItsFolder) {
  const auto folder =
      std::filesystem::temp_directory_path() / format("reverie-journal-{}-holds", getpid());
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  std::promise<void> is_asked;
  std::promise<void> has_begun;
  std::promise<void> may_end;
  const std::shared_future<void> may_write = is_asked.get_future().share();
  std::atomic<bool> waits{false};
  std::atomic<bool> is_completed{false};
  HookedFileSystem files(FileSystem::system());
  files.before_append = [&](std::size_t) {
    if (waits) may_write.wait();
    return Status();
  };
  Case store(files, Durability::kSync, std::uint64_t{1} << 20, /*has_thread=*/true,
             folder.string());
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  const auto insert = [&](ItemKey key, std::function<void()> completed) {
    Item item = testing::make_item(key, 1.0);
    (void)store.service->insert({.table = "uniform", .items = {&item, 1}},
                                [completed = std::move(completed)](const InsertResult& result) {
                                  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
                                  completed();
                                });
  };
  waits = true;
  insert(1, [&] {
    has_begun.set_value();
    may_end.get_future().wait();
  });
  is_asked.set_value();
  has_begun.get_future().wait();
  insert(2, [&] { is_completed = true; });
  ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
  EXPECT_FALSE(is_completed);
  may_end.set_value();
  EXPECT_TRUE(test::eventually([&] { return is_completed.load(); }));
  store.service->close();
}

// Memory whose pages can be made unreadable, with a chunk over it.
struct GuardedChunk {
  static constexpr std::size_t kRowFloats = 1024;
  static constexpr std::size_t kSize = 4 * kRowFloats * sizeof(float);

  explicit GuardedChunk(float value) {
    memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    std::fill_n(static_cast<float*>(memory), kSize / sizeof(float), value);
    const auto schema =
        make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kFloat32, {kRowFloats}}});
    layout = make_ref<Layout>(std::vector<LayoutColumn>{{schema->column(0), 0, 0, 1}}, "x");
    chunk = Chunk::of_rows(schema, {}, 4, Buffer(static_cast<std::byte*>(memory), kSize, nullptr));
  }
  GuardedChunk(const GuardedChunk&) = delete;
  GuardedChunk& operator=(const GuardedChunk&) = delete;
  ~GuardedChunk() { munmap(memory, kSize); }

  Item item(ItemKey key) const {
    const Piece piece{chunk.get(), 0, 4};
    return {key, 1.0, Trajectory(layout, {&piece, 1})};
  }
  void set_readable(bool is_readable) {
    ASSERT_EQ(mprotect(memory, kSize, is_readable ? PROT_READ : PROT_NONE), 0);
  }

  void* memory = nullptr;
  Ref<const Layout> layout;
  Ref<const Chunk> chunk;
};

// A store makes these calls while it holds locks, so they must not read large rows.
TEST(Journal, LargeRowsAreNotCopiedUnderTheLocksOfTables) {
  GuardedChunk drawn(1);
  GuardedChunk handed_back(2);
  GuardedChunk inserted(3);
  sim::FileSystem files(1);
  std::string before;
  {
    Case store(files, Durability::kSync, std::uint64_t{1} << 20);
    ASSERT_TRUE(store.status.ok()) << store.status.to_string();
    auto* const journal = static_cast<Journal*>(store.service->log());
    std::vector<Item> items;
    items.push_back(drawn.item(1));
    items.push_back(handed_back.item(2));
    ASSERT_TRUE(insert_and_wait(*store.service, {.table = "queue", .items = items}).status.ok());
    const auto draw = [&](bool is_awaited) {
      SampleRequest request{.table = "queue", .count = 1, .deadline = TimePoint{0}};
      request.awaits_receipt = is_awaited;
      return sample_and_wait(*store.service, std::move(request));
    };
    SampleResult awaited = draw(true);
    SampleResult other = draw(false);
    ASSERT_EQ(awaited.batch.size() + other.batch.size(), 2u);
    for (GuardedChunk* const chunk : {&drawn, &handed_back, &inserted}) chunk->set_readable(false);
    (void)journal->cut();  // its file repeats the open draw
    EXPECT_EQ(store.service->hand_back("queue", other.batch), 1u);
    items.clear();
    items.push_back(inserted.item(3));
    EXPECT_TRUE(journal->prepare(items).ok());
    for (GuardedChunk* const chunk : {&drawn, &handed_back, &inserted}) chunk->set_readable(true);
    EXPECT_GT(journal->size_bytes(), 5 * GuardedChunk::kSize) << "what is not copied yet counts";
    EXPECT_TRUE(journal->before_publish().ok());
    journal->end_checkpoint(/*is_written=*/false);
    ASSERT_TRUE(insert_and_wait(*store.service, {.table = "queue", .items = items}).status.ok());
    EXPECT_EQ(store.service->hand_back("queue", awaited.batch), 1u);
    before = store.text();
  }
  const Case again(files, Durability::kSync);
  ASSERT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(again.text(), before);
  EXPECT_NE(before.find("rows 3 3 3 3"), std::string::npos) << before;
}

TEST(Journal, OneAsLargeAsItMayBecomeRefusesChangesUntilACheckpoint) {
  constexpr std::uint64_t kBound = 20'000;
  for (const auto durability : {Durability::kSync, Durability::kInterval}) {
    sim::FileSystem files(1);
    std::string before;
    {
      Case store(files, durability, 2'000, /*has_thread=*/false, kRoot, tables(), kBound);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      ItemKey key = 0;
      const auto insert = [&] {
        std::vector<Item> items;
        items.push_back(testing::make_item(++key, 1.0, 0, 50));
        return insert_and_wait(*store.service, {.table = "uniform", .items = items}).status;
      };
      Status refused;
      while (refused.ok() && key < 1'000) refused = insert();
      EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.to_string();
      EXPECT_NE(refused.message().find("the bound is 20000"), std::string::npos);
      EXPECT_NE(refused.message().find("write a checkpoint"), std::string::npos);
      StoreLog& log = *store.service->log();
      EXPECT_TRUE(log.check().ok()) << "the journal has not failed";
      EXPECT_LT(log.size_bytes(), kBound + 4'000);

      before = store.text();
      const std::vector<ItemKey> keys = {key - 1};
      const std::vector<double> priorities = {2.0};
      MutateRequest update{.table = "uniform"};
      update.keys = keys;
      update.key_priorities = priorities;
      MutateRequest erase{.table = "uniform"};
      erase.deletes = keys;
      for (const MutateRequest& request : {update, erase}) {
        const MutateResult result = mutate_and_wait(*store.service, request);
        EXPECT_EQ(result.status.code(), StatusCode::kResourceExhausted);
      }
      EXPECT_EQ(reset_and_wait(*store.service, "uniform").code(), StatusCode::kResourceExhausted);
      EXPECT_EQ(store.text(), before) << "what is refused changes nothing";
      SampleRequest request{.table = "uniform", .count = 3};
      EXPECT_EQ(sample_and_wait(*store.service, std::move(request)).batch.size(), 3u);

      ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      EXPECT_TRUE(insert().ok());
      before = store.text();
    }
    const Case again(files, durability);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    EXPECT_EQ(again.text(), before);
  }
}

TEST(Journal, AClosedStoreLeavesNoRing) {
  const std::string ring = join_path(kRoot, kRingName);
  for (const bool has_changes : {false, true}) {
    for (const bool has_checkpoint : {false, true}) {
      sim::FileSystem files(1);
      {
        Case store(files, Durability::kInterval);
        ASSERT_TRUE(store.status.ok()) << store.status.to_string();
        if (has_changes) {
          ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 1, 6));
        }
        if (has_checkpoint) {
          ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
        }
        EXPECT_TRUE(files.content(kRoot).contains(ring));
      }
      EXPECT_FALSE(files.content(kRoot).contains(ring)) << has_changes << has_checkpoint;
    }
  }
}

// Groups of records that fit into the ring and others that do not take turns in the same memory.
TEST(Journal, GroupsInsideAndOutsideTheRingAreReplayed) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    sim::FileSystem files(1);
    std::string before;
    {
      Case store(files, Durability::kInterval, std::uint64_t{1} << 20);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      auto* const journal = static_cast<Journal*>(store.service->log());
      Random random(seed);
      for (ItemKey key = 1; key <= 18; ++key) {
        const std::uint32_t rows = random.below(2) == 0 ? 1 : 2'000;
        std::vector<Item> items;
        items.push_back(testing::make_item(key, 1.0, static_cast<float>(key), rows));
        const InsertRequest request{.table = "uniform", .items = items};
        ASSERT_TRUE(insert_and_wait(*store.service, request).status.ok());
        if (random.below(2) == 0) {
          ASSERT_TRUE(journal->sync().ok());
        }
      }
      before = store.text();
    }
    const Case again(files, Durability::kInterval);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string() << ", seed " << seed;
    EXPECT_EQ(again.text(), before) << "seed " << seed;
  }
}

TEST(Journal, AChunkThatGrewWithTextTakesNoMoreMemoryAfterARestart) {
  constexpr std::uint32_t kRows = 8;
  const auto schema = make_ref<ChunkSchema>(
      std::vector<TensorSpec>{{"text", DType::kBytes, {}}, {"x", DType::kFloat32, {256}}});
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{schema->column(0), 0, 0, 1}, {schema->column(1), 1, 0, 1}}, "s");
  const std::string cell("\x05\0\0\0hello", 9);
  const std::vector<float> numbers(256, 1.0f);
  sim::FileSystem files(1);
  std::int64_t before = 0;
  {
    Case store(files, Durability::kSync, std::uint64_t{1} << 20);
    ASSERT_TRUE(store.status.ok()) << store.status.to_string();
    const Ref<Chunk> chunk = Chunk::open(schema, {}, kRows, 1'000, Allocator::heap()).value();
    for (std::uint32_t row = 0; row < kRows; ++row) {
      chunk->set_row(0, row, std::as_bytes(std::span(cell)));
      chunk->set_row(1, row, std::as_bytes(std::span(numbers)));
      chunk->publish(row + 1);
      const Piece piece{chunk.get(), 0, row + 1};
      std::vector<Item> items;
      items.push_back({row + 1, 1.0, Trajectory(layout, {&piece, 1})});
      ASSERT_TRUE(insert_and_wait(*store.service, {"uniform", items, TimePoint{0}}).status.ok());
    }
    before = store.service->used_bytes();
  }
  const Case again(files, Durability::kSync);
  ASSERT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_LE(again.service->used_bytes(), before);
  SampleRequest request{.table = "uniform"};
  const SampleResult drawn = sample_and_wait(*again.service, std::move(request));
  ASSERT_EQ(drawn.batch.size(), 1u);
  const Piece& piece = drawn.batch.trajectories()[0].pieces()[0];
  ASSERT_EQ(piece.chunk->rows(), kRows);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    EXPECT_TRUE(std::ranges::equal(piece.chunk->row_bytes(0, row), std::as_bytes(std::span(cell))));
    EXPECT_TRUE(
        std::ranges::equal(piece.chunk->row_bytes(1, row), std::as_bytes(std::span(numbers))));
  }
}

TEST(Journal, AChunkThatNoRecordCanHoldIsRefusedBeforeAnythingIsInserted) {
  constexpr std::size_t kRowBytes = std::size_t{1} << 20;
  constexpr std::uint32_t kRows = 4096;
  constexpr std::size_t kSize = kRows * kRowBytes;
  // Addresses without memory: its rows cannot be read.
  void* const nowhere = mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nowhere, MAP_FAILED);
  const std::shared_ptr<void> clean(nullptr, [&](void*) { munmap(nowhere, kSize); });
  const auto schema =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kUInt8, {kRowBytes}}});
  const auto layout =
      make_ref<Layout>(std::vector<LayoutColumn>{{schema->column(0), 0, 0, 1}}, "x");
  const Ref<Chunk> chunk =
      Chunk::of_rows(schema, {}, kRows, Buffer(static_cast<std::byte*>(nowhere), kSize, nullptr));
  sim::FileSystem files(1);
  std::string before;
  {
    Case store(files, Durability::kSync);
    ASSERT_TRUE(store.status.ok()) << store.status.to_string();
    ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 1, 3));
    before = store.text();
    const Piece piece{chunk.get(), 7, 1};
    std::vector<Item> items;
    items.push_back(testing::make_item(3, 1.0));
    items.push_back({4, 1.0, Trajectory(layout, {&piece, 1})});
    const InsertResult refused = insert_and_wait(*store.service, {"uniform", items, TimePoint{0}});
    EXPECT_EQ(refused.applied, 0u);
    EXPECT_EQ(refused.status.code(), StatusCode::kInvalidArgument) << refused.status.to_string();
    EXPECT_NE(refused.status.message().find(format("{}", kRecordedChunkBytesMax)),
              std::string::npos)
        << refused.status.message();
    EXPECT_EQ(store.text(), before);
  }
  const Case again(files, Durability::kSync);
  ASSERT_TRUE(again.status.ok()) << again.status.to_string();
  EXPECT_EQ(again.text(), before);
}

// The loss is found by a change that writes to the ring, or by a sync that reads what is in it.
TEST(Journal, AnItemWhoseRowsAreNotAllThereIsRefusedBeforeAnythingIsInserted) {
  sim::FileSystem files(1);
  Case store(files, Durability::kSync);
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  const Ref<Chunk> chunk = Chunk::open(float_schema(), {1, 2, 0}, 4, 0, Allocator::heap()).value();
  for (std::uint32_t row = 0; row < 4; ++row) {
    const auto value = static_cast<float>(row);
    chunk->set_row(0, row, std::as_bytes(std::span(&value, 1)));
  }
  chunk->publish(3);
  const auto insert = [&](std::uint32_t length) {
    std::vector<Item> items;
    items.push_back(item_over(*chunk, 1, 1.0, 0, 2));
    items.push_back(item_over(*chunk, 2, 1.0, 1, length));
    return insert_and_wait(*store.service, {"uniform", items, TimePoint{0}}).status;
  };
  expect_refused(insert(3), StatusCode::kFailedPrecondition,
                 {"4 rows", "has 3 so far", "durability \"none\""});
  EXPECT_EQ(info_and_wait(*store.service).value()[0].current_size, 0);
  EXPECT_TRUE(insert(2).ok());
}

TEST(Journal, AFailedRingEndsTheJournalUntilTheNextCheckpoint) {
  for (const bool is_found_by_sync : {false, true}) {
    SCOPED_TRACE(is_found_by_sync);
    const auto folder =
        std::filesystem::temp_directory_path() / format("reverie-journal-{}-lost", getpid());
    const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
    std::string before;
    {
      Case store(FileSystem::system(), Durability::kInterval, std::uint64_t{1} << 20,
                 /*has_thread=*/false, folder.string());
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      const auto ring = folder / std::string(kRingName);
      if (!std::filesystem::exists(ring)) GTEST_SKIP() << "no ring on this file system";
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 1, 6));
      std::filesystem::resize_file(ring, 0);  // simulates a failed disk
      Status refused;
      if (is_found_by_sync) {
        refused = static_cast<Journal*>(store.service->log())->sync();
      } else {
        std::vector<Item> items;
        items.push_back(testing::make_item(6, 1.0));
        refused = insert_and_wait(*store.service, {.table = "uniform", .items = items}).status;
      }
      EXPECT_EQ(refused.code(), StatusCode::kDataLoss) << refused.to_string();
      EXPECT_NE(refused.message().find("journal-ring"), std::string::npos) << refused.to_string();
      ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 7, 12));
      before = store.text();
    }
    const Case again(FileSystem::system(), Durability::kInterval, std::uint64_t{1} << 20,
                     /*has_thread=*/true, folder.string());
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    EXPECT_EQ(again.text(), before);
  }
}

// On the thread that writes, and on the one that waits for its confirmation.
TEST(Journal, WithoutMemoryForAGroupItFailsUntilTheNextCheckpoint) {
  for (const bool is_waited_for : {false, true}) {
    SCOPED_TRACE(is_waited_for);
    const auto folder =
        std::filesystem::temp_directory_path() / format("reverie-journal-{}-short", getpid());
    const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
    std::atomic<bool> is_short{false};
    HookedFileSystem files(FileSystem::system());
    files.before_append = [&](std::size_t) {
      if (is_short) throw std::bad_alloc();
      return Status();
    };
    std::string before;
    {
      Case store(files, Durability::kSync, std::uint64_t{1} << 20, /*has_thread=*/true,
                 folder.string());
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 1, 4));
      is_short = true;
      Item item = testing::make_item(4, 1.0);
      InsertRequest request{.table = "uniform", .items = {&item, 1}};
      request.is_waited_for = is_waited_for;
      std::promise<InsertResult> answer;
      (void)store.service->insert(request, [&](InsertResult result) { answer.set_value(result); });
      const InsertResult result = answer.get_future().get();
      expect_refused(result.status, StatusCode::kResourceExhausted,
                     {"memory", "once a checkpoint can be written"});
      EXPECT_TRUE(result.is_unlogged);
      is_short = false;
      EXPECT_FALSE(store.service->log()->check().ok());
      ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      EXPECT_TRUE(store.service->log()->check().ok());
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 5, 8));
      before = store.text();
      store.service->close();
    }
    const Case again(FileSystem::system(), Durability::kSync, std::uint64_t{1} << 20,
                     /*has_thread=*/true, folder.string());
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    EXPECT_EQ(again.text(), before);
  }
}

// Before the items are inserted, and with a record that has begun.
TEST(Journal, WithoutMemoryForARecordItFailsUntilTheNextCheckpoint) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "a sanitizer maps memory of its own";
  constexpr std::size_t kLargeBytes = std::size_t{96} << 20;  // has to be mapped
  for (const bool is_prepared : {false, true}) {
    SCOPED_TRACE(is_prepared);
    sim::FileSystem files(1);
    std::string before;
    {
      Case store(files, Durability::kSync);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 1, 4));
      StoreLog& log = *store.service->log();
      const std::uint64_t position = log.position();
      if (is_prepared) {
        constexpr std::uint32_t kRows = 1000;  // so few are copied into the record
        std::vector<Ref<Chunk>> chunks;
        std::vector<Piece> pieces;
        for (std::size_t bytes = 0; bytes < kLargeBytes; bytes += kRows * sizeof(float)) {
          chunks.push_back(testing::float_chunk(0, kRows, {chunks.size() + 1, 1, 0}));
          pieces.push_back({chunks.back().get(), 0, kRows});
        }
        const auto layout = make_ref<Layout>(
            std::vector<LayoutColumn>{
                {{"x", DType::kFloat32, {}}, 0, 0, static_cast<std::uint16_t>(pieces.size())}},
            "x");
        Item item{4, 1.0, Trajectory(layout, pieces)};
        const testing::NoMoreMemory none;
        const Status refused =
            insert_and_wait(*store.service, {"uniform", {&item, 1}, TimePoint{0}}).status;
        expect_refused(refused, StatusCode::kResourceExhausted, {"memory"});
      } else {
        const std::vector<Slot> evicted(kLargeBytes / sizeof(Slot));
        const Item item = testing::make_item(4, 1.0);
        LoggedInsert logged;
        logged.key = item.key;
        logged.trajectory = item.trajectory.view();
        logged.evicted = evicted;
        const testing::NoMoreMemory none;
        log.on_insert(0, TimePoint{0}, logged);
      }
      EXPECT_EQ(log.check().code(), StatusCode::kResourceExhausted) << log.check().to_string();
      EXPECT_FALSE(log.is_durable(0, log.position()));
      EXPECT_GT(log.position(), position);
      EXPECT_EQ(info_and_wait(*store.service).value()[0].current_size, 3);
      ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      EXPECT_TRUE(log.check().ok()) << log.check().to_string();
      ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "uniform", 5, 8));
      before = store.text();
    }
    const Case again(files, Durability::kSync);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    EXPECT_EQ(again.text(), before);
  }
}

// A damaged file of a journal that a checkpoint made obsolete but could not remove, with and
// without a file after it.
TEST(JournalDamage, ADamagedFileCoveredByTheCheckpointIsIgnored) {
  const std::string old = join_path(kRoot, journal_name(1));
  for (const bool is_followed : {false, true}) {
    for (const bool is_header : {false, true}) {
      sim::FileSystem files(1);
      std::string before;
      {
        Case store(files, Durability::kSync, std::uint64_t{1} << 20);
        User user(store, 3);
        for (int i = 0; i < 30; ++i) ASSERT_TRUE(user.step().ok());
        const std::vector<std::byte> bytes = files.content(kRoot).at(old);
        ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
        ASSERT_TRUE(journal_files(files, kRoot)->empty());
        for (int i = 0; i < (is_followed ? 30 : 0); ++i) ASSERT_TRUE(user.step().ok());
        ASSERT_TRUE(files.create(old).value()->append(bytes).ok());
        files.flip(old, is_header ? 3 : bytes.size() / 2, std::byte{1});
        before = store.text();
      }
      for (int life = 0; life < 3; ++life) {
        Case again(files, Durability::kSync);
        if (is_header && !is_followed) {
          // Its records are unknown, so the damage cannot be ignored.
          ASSERT_EQ(again.status.code(), StatusCode::kDataLoss);
          break;
        }
        ASSERT_TRUE(again.status.ok()) << again.status.to_string();
        ASSERT_EQ(again.text(), before);
        User user(again, 4);
        for (int i = 0; i < 5; ++i) ASSERT_TRUE(user.step().ok());
        if (life == 1) {
          ASSERT_TRUE(again.checkpointer->write(*again.service, {}).ok());
          EXPECT_FALSE(files.content(kRoot).contains(old));
        }
        before = again.text();
      }
    }
  }
}

// As a store opens it.
TEST(JournalDamage, ADamagedFileCoveredByTheCheckpointDoesNotPreventAConversion) {
  const std::string old = join_path(kRoot, journal_name(1));
  TableOptions table = table_options("t", "Fifo", "Fifo", 20, RateLimiter::min_size(1));
  sim::FileSystem files(1);
  Case store(files, Durability::kSync, std::uint64_t{1} << 20, /*has_thread=*/false, kRoot,
             {table});
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  ASSERT_NO_FATAL_FAILURE(insert_numbers(store, "t", 1, 6));
  const std::vector<std::byte> bytes = files.content(kRoot).at(old);
  ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
  ASSERT_TRUE(files.create(old).value()->append(bytes).ok());
  files.flip(old, bytes.size() / 2, std::byte{1});
  const auto converted = convert_checkpoint(files, kRoot, "/data/reverb", {});
  ASSERT_TRUE(converted.ok()) << converted.status().to_string();
  EXPECT_EQ(converted->items, 5u);
  EXPECT_EQ(inspect_journal(files, kRoot).status().code(), StatusCode::kDataLoss)
      << "an inspection reports it";
}

TEST(Journal, WaitingAndContinuingThreadsAreConfirmedOnceEach) {
  for (const auto durability : {Durability::kInterval, Durability::kSync}) {
    const auto folder = std::filesystem::temp_directory_path() /
                        format("reverie-journal-{}-{}", getpid(), static_cast<int>(durability));
    const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
    constexpr int kThreads = 4;
    constexpr ItemKey kEach = 150;
    {
      Case store(FileSystem::system(), durability, 20'000, /*has_thread=*/true, folder.string(),
                 tables(), kSizeBytesMax, /*group_bytes_max=*/500);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      std::atomic<int> confirmed{0};
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          for (ItemKey i = 0; i < kEach; ++i) {
            std::vector<Item> items;
            items.push_back(testing::make_item(1 + i * kThreads + thread, 1.0));
            InsertRequest request{.table = "best", .items = items};
            request.is_waited_for = thread % 2 == 0;
            (void)store.service->insert(request, [&](const InsertResult& result) {
              EXPECT_TRUE(result.status.ok()) << result.status.to_string();
              confirmed.fetch_add(1);
            });
          }
        });
      }
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(store.checkpointer->write(*store.service, {}).ok());
      }
      for (std::thread& thread : threads) thread.join();
      store.service->close();
      EXPECT_EQ(confirmed.load(), kThreads * static_cast<int>(kEach));
    }
    const Case again(FileSystem::system(), Durability::kNone, 20'000, false, folder.string());
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    const TableInfo info = info_and_wait(*again.service).value()[1];
    EXPECT_EQ(info.inserts, kThreads * static_cast<int>(kEach));
  }
}

TEST(Journal, AStoreWhoseJournalHasNoThreadIsRefusedAndOpensOnceItHas) {
  for (const auto durability : {Durability::kInterval, Durability::kSync}) {
    const auto folder = std::filesystem::temp_directory_path() /
                        format("reverie-threads-{}-{}", getpid(), static_cast<int>(durability));
    const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
    const auto open = [&] {
      return std::make_unique<Case>(FileSystem::system(), durability, 20'000, /*has_thread=*/true,
                                    folder.string());
    };
    {
      const auto store = open();
      ASSERT_TRUE(store->status.ok()) << store->status.to_string();
      Item item = testing::make_item(1, 1.0);
      ASSERT_TRUE(insert_and_wait(*store->service, {"best", {&item, 1}}).status.ok());
      store->service->close();
    }
    {
      const test::NoNewThreads none;
      expect_refused(open()->status, StatusCode::kResourceExhausted, {"the journal", "ulimit -u"});
    }
    const auto again = open();
    ASSERT_TRUE(again->status.ok()) << again->status.to_string();
    EXPECT_EQ(info_and_wait(*again->service).value()[1].inserts, 1);
  }
}

TEST(Journal, ACheckpointRemovesTheFilesThatItCovers) {
  sim::FileSystem files(1);
  Case store(files, Durability::kSync);
  User user(store, 3);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(user.step().ok());
  EXPECT_GT(journal_files(files, kRoot)->size(), 2u) << "files are ended when they are large";
  ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
  EXPECT_TRUE(journal_files(files, kRoot)->empty());
  EXPECT_EQ(store.service->log()->size_bytes(), 0u);
  for (bool is_confirmed = false; !is_confirmed;) ASSERT_TRUE(user.step(&is_confirmed).ok());
  EXPECT_EQ(journal_files(files, kRoot)->size(), 1u);
}

// Items over a chunk each, which takes more than 800 bytes.
std::vector<Item> items_of_chunks(ItemKey begin, ItemKey end) {
  std::vector<Item> items;
  for (ItemKey key = begin; key < end; ++key) {
    items.push_back(testing::make_item(key, 1.0, static_cast<float>(key), /*rows=*/200));
  }
  return items;
}

std::uint64_t longest_journal_file(sim::FileSystem& files) {
  std::uint64_t longest = 0;
  const std::vector<std::uint64_t> numbers = journal_files(files, kRoot).value();
  for (const std::uint64_t number : numbers) {
    const std::string path = join_path(kRoot, journal_name(number));
    longest = std::max<std::uint64_t>(longest, read_file(files, path, 1u << 30).value().size());
  }
  return longest;
}

TEST(Journal, WhatOneCallRecordsIsDividedAmongFilesOfBoundedSize) {
  for (const auto durability : {Durability::kSync, Durability::kInterval}) {
    SCOPED_TRACE(static_cast<int>(durability));
    sim::FileSystem files(1);
    std::string before;
    {
      Case store(files, durability, 1'000, false, kRoot, tables(), kSizeBytesMax,
                 /*group_bytes_max=*/700);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      std::vector<Item> items = items_of_chunks(1, 19);
      const InsertResult inserted =
          insert_and_wait(*store.service, {"uniform", items, TimePoint{0}});
      ASSERT_TRUE(inserted.status.ok()) << inserted.status.to_string();
      ASSERT_EQ(inserted.applied, 18u);
      EXPECT_GT(store.service->log()->size_bytes(), 16'000u);
      // Groups of less than 1,000 bytes; one of up to twice its first change, which also defines
      // the tables; and a last change.
      EXPECT_LT(longest_journal_file(files), 7'000u);
      before = store.text();
    }
    EXPECT_LT(longest_journal_file(files), 7'000u);
    const Case again(files, durability);
    ASSERT_TRUE(again.status.ok()) << again.status.to_string();
    EXPECT_EQ(again.text(), before);
  }
}

TEST(JournalCrash, GroupsOfOneCallSurviveAPowerCutInTheirOrder) {
  constexpr ItemKey kCall = 9;
  for (const auto durability : {Durability::kSync, Durability::kInterval}) {
    int restored_parts = 0;
    bool is_stopped = true;
    for (std::int64_t stop = 1; is_stopped; ++stop) {
      SCOPED_TRACE(format("{}, stopped at {}", static_cast<int>(durability), stop));
      sim::FileSystem files(static_cast<std::uint64_t>(stop));
      files.stop_at(stop);
      ItemKey confirmed = 0;
      {
        Case store(files, durability, 1'000, false, kRoot, tables(), kSizeBytesMax,
                   /*group_bytes_max=*/700);
        for (ItemKey begin = 1; store.status.ok() && begin < 2 * kCall; begin += kCall) {
          std::vector<Item> items = items_of_chunks(begin, begin + kCall);
          const bool is_confirmed =
              insert_and_wait(*store.service, {"uniform", items, TimePoint{0}}).status.ok();
          if (is_confirmed && durability == Durability::kSync) confirmed += kCall;
        }
        is_stopped = files.is_stopped();
      }
      files.restart();
      const Case again(files, durability);
      ASSERT_TRUE(again.status.ok()) << again.status.to_string();
      const auto inserts = static_cast<ItemKey>(info_and_wait(*again.service).value()[0].inserts);
      ASSERT_GE(inserts, confirmed);
      if (inserts % kCall != 0) ++restored_parts;
      for (ItemKey key = 1; key <= 2 * kCall; ++key) {
        const std::string row = format(" key {} priority 1 version 0 rows {}", key, key);
        ASSERT_EQ(again.text().find(row) != std::string::npos, key <= inserts) << again.text();
      }
    }
    EXPECT_GT(restored_parts, 0) << "of a call, by a power cut between its groups";
  }
}

// A file repeats a chunk, so a group must not end after each item over a large one.
TEST(Journal, ItemsOverALargeChunkDoNotRepeatItEach) {
  sim::FileSystem files(1);
  Case store(files, Durability::kSync, 1'000, false, kRoot, tables(), kSizeBytesMax,
             /*group_bytes_max=*/700);
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  constexpr std::uint32_t kRows = 1'000;
  const Ref<Chunk> chunk = testing::float_chunk(0, kRows);
  std::vector<Item> items;
  for (ItemKey key = 1; key < 19; ++key) {
    items.push_back(item_over(*chunk, key, 1.0, static_cast<std::uint32_t>(key), 1));
  }
  ASSERT_TRUE(insert_and_wait(*store.service, {"uniform", items, TimePoint{0}}).status.ok());
  EXPECT_LT(store.service->log()->size_bytes(), 2 * kRows * sizeof(float));
}

TEST(Journal, AnItemThatNoFileCanHoldIsRefusedBeforeAnythingIsInserted) {
  sim::FileSystem files(1);
  Case store(files, Durability::kSync, 1'000, false, kRoot, tables(), kSizeBytesMax,
             JournalOptions().group_bytes_max, /*item_bytes_max=*/5'000);
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  const std::string before = store.text();
  // Two columns over the same two chunks, which count once each.
  const Ref<Chunk> first = testing::float_chunk(0, 500);
  const Ref<Chunk> second = testing::float_chunk(1, 500);
  const Ref<Chunk> third = testing::float_chunk(2, 500);
  const TensorSpec x = float_schema()->column(0);
  const TensorSpec y{"y", DType::kFloat32, {}};
  const auto insert = [&](const Ref<const Layout>& layout, const std::vector<Piece>& pieces) {
    std::vector<Item> items = items_of_chunks(1, 2);
    items.push_back({2, 1.0, Trajectory(layout, pieces)});
    return insert_and_wait(*store.service, {"thrice", items, TimePoint{0}});
  };
  const InsertResult refused =
      insert(make_ref<Layout>(std::vector<LayoutColumn>{{x, 0, 0, 3}}, "x"),
             {{first.get(), 0, 1}, {second.get(), 0, 1}, {third.get(), 0, 1}});
  expect_refused(refused.status, StatusCode::kInvalidArgument,
                 {"the chunks of an item take 6", "bytes; the bound", "5000"});
  EXPECT_EQ(refused.applied, 0u);
  EXPECT_EQ(store.text(), before);
  const InsertResult taken = insert(
      make_ref<Layout>(std::vector<LayoutColumn>{{x, 0, 0, 2}, {y, 0, 2, 4}}, "xy"),
      {{first.get(), 0, 1}, {second.get(), 0, 1}, {first.get(), 1, 1}, {second.get(), 1, 1}});
  EXPECT_TRUE(taken.status.ok()) << taken.status.to_string();
}

TEST(Journal, BoundsThatAllowFilesThatCannotBeReadAreRefused) {
  sim::FileSystem files(1);
  const Case store(files, Durability::kSync, 1'000, false, kRoot, tables(), kSizeBytesMax,
                   JournalOptions().group_bytes_max, kJournalFileBytesMax / 2);
  expect_refused(store.status, StatusCode::kInvalidArgument,
                 {"item_bytes_max 17179869184", "the bound is 34359738368 bytes"});
}

TEST(Journal, AStoreThatEndsItsJournalKeepsItsState) {
  sim::FileSystem files(1);
  std::string before;
  {
    Case store(files, Durability::kSync);
    User user(store, 3);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(user.step().ok());
    before = store.text();
  }
  for (int life = 0; life < 2; ++life) {
    const Case store(files, Durability::kNone);
    ASSERT_TRUE(store.status.ok()) << store.status.to_string();
    EXPECT_EQ(store.text(), before);
    EXPECT_EQ(journal_files(files, kRoot)->empty(), life == 1);
    ASSERT_TRUE(store.checkpointer->write(*store.service, {}).ok());
  }
  const Case store(files, Durability::kSync);  // starts another file
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  EXPECT_EQ(store.text(), before);
}

}  // namespace
}  // namespace reverie::checkpoint
