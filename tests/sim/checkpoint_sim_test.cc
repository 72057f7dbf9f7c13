#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/checkpoint_tools/comparison.h"
#include "reverie/codec/crc32c.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/record/compact.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"
#include "reverie/tensor/chunk_memory.h"
#include "tests/scale.h"
#include "tests/support/hooked_file_system.h"
#include "tests/support/items.h"
#include "tests/support/values.h"

namespace reverie::checkpoint {
namespace {

using reverie::testing::float_chunk;
using reverie::testing::float_layout;
using reverie::testing::table_options;
using reverie::testing::value_of;

constexpr char kRoot[] = "/data/replay";

std::vector<TableOptions> tables() {
  TableOptions uniform = table_options("uniform", "Uniform", "Fifo", 100, RateLimiter::min_size(1));
  uniform.sampler.options["seed"] = std::int64_t{5};
  uniform.extensions = {{"Statistics", {}}};
  TableOptions best = table_options("best", "Prioritized", "MinHeap", 40, RateLimiter::min_size(1));
  best.sampler.options["seed"] = std::int64_t{6};
  return {uniform, best};
}

// A store with these tables and a checkpointer.
struct Case {
  explicit Case(sim::FileSystem& files, CheckpointerOptions options = {}, Clock* clock = nullptr) {
    options.files = &files;
    auto opened = Checkpointer::open(kRoot, options);
    status = opened.status();
    if (!status.ok()) return;
    checkpointer = std::move(*opened);
    StoreOptions store;
    store.clock = clock;
    auto made = checkpointer->open_store(tables(), store, &loaded);
    status = made.status();
    if (status.ok()) service = *made;
  }

  // Inserts items `first` to `last` into both tables; up to four share a chunk of `rows` rows.
  void insert(ItemKey first, ItemKey last, std::uint32_t rows = 4) const {
    Ref<Chunk> chunk;
    for (ItemKey key = first; key < last; ++key) {
      if (!chunk || key % 4 == 0) {
        chunk = float_chunk(static_cast<float>(key / 4 * 4), rows, {key / 4 + 1, key / 16, 0});
      }
      for (const char* const table : {"uniform", "best"}) {
        Item item = reverie::testing::item_over(*chunk, key, static_cast<double>(key % 7),
                                                static_cast<std::uint32_t>(key % 4), 1);
        item.version = static_cast<std::int64_t>(key);
        ASSERT_EQ(insert_and_wait(*service, {table, {&item, 1}, TimePoint{0}}).applied, 1u);
      }
    }
  }
  // What `count` draws from both tables return.
  std::vector<std::uint64_t> sample(std::size_t count) const {
    std::vector<std::uint64_t> told;
    for (const char* const table : {"uniform", "best"}) {
      SampleRequest request;
      request.table = table;
      request.count = count;
      request.deadline = TimePoint{0};
      const SampleResult result = sample_and_wait(*service, std::move(request));
      const SampleBatch& batch = result.batch;
      for (std::size_t i = 0; i < batch.size(); ++i) {
        told.push_back(batch.keys()[i]);
        told.push_back(batch.tickets()[i]);
        told.push_back(static_cast<std::uint64_t>(batch.times_sampled()[i]));
        told.push_back(static_cast<std::uint64_t>(batch.versions()[i]));
        told.push_back(static_cast<std::uint64_t>(value_of(batch.trajectories()[i])));
      }
    }
    return told;
  }
  std::int64_t inserts() const { return info_and_wait(*service).value()[0].inserts; }
  Result<Written> write(std::string_view payload = "") const {
    return checkpointer->write(*service, std::as_bytes(std::span(payload)));
  }

  Status status;
  std::unique_ptr<Checkpointer> checkpointer;
  std::shared_ptr<LocalService> service;
  std::string loaded;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Checkpointer, ALoadedStoreDrawsTheSameItemsAsTheSavedOne) {
  constexpr std::size_t kDraws = 100'000;  // per table
  sim::FileSystem files(1);
  std::vector<std::uint64_t> told;
  {
    const Case saved(files);
    ASSERT_TRUE(saved.status.ok()) << saved.status.to_string();
    EXPECT_EQ(saved.loaded, "");
    saved.insert(0, 150);
    saved.sample(60);
    const Written written = saved.write("step 7").value();
    EXPECT_EQ(written.folder, "/data/replay/checkpoint-0000000001");
    told = saved.sample(kDraws);
    EXPECT_EQ(told.size(), 10 * kDraws);
  }
  const Case loaded(files);
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.to_string();
  EXPECT_EQ(loaded.loaded, "/data/replay/checkpoint-0000000001");
  EXPECT_EQ(text_of(loaded.checkpointer->loaded_payload()), "step 7");
  EXPECT_EQ(loaded.inserts(), 150);
  EXPECT_TRUE(loaded.sample(kDraws) == told);
}

// Large chunks, which are written directly, must come after small ones that were buffered before.
TEST(Checkpointer, ChunksOfAllSizesSurviveARoundTrip) {
  constexpr std::uint32_t kRows[] = {1, 50'000, 80'000, 3, 200'000, 66'000, 400'000, 90'000, 7};
  sim::FileSystem files(1);
  {
    const Case saved(files);
    ItemKey key = 0;
    for (const std::uint32_t rows : kRows) {
      const Ref<Chunk> chunk = float_chunk(static_cast<float>(key), rows, {key + 1, key, 0});
      Item item = reverie::testing::item_over(*chunk, key++, 1.0, 0, rows);
      ASSERT_EQ(insert_and_wait(*saved.service, {"uniform", {&item, 1}, TimePoint{0}}).applied, 1u);
    }
    ASSERT_TRUE(saved.write().ok());
  }
  const Case loaded(files);
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.to_string();
  const SampleBatch batch = loaded.service->table("uniform").value()->read(0, 100);
  ASSERT_EQ(batch.size(), std::size(kRows));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Piece& piece = batch.trajectories()[i].pieces().front();
    ASSERT_EQ(piece.length, kRows[i]);
    for (std::uint32_t row = 0; row < piece.length; ++row) {
      ASSERT_EQ(reverie::testing::float_row(*piece.chunk, row), static_cast<float>(i + row));
    }
  }
}

TEST(Checkpointer, RowsOfAsManyAxesAsAWriterMaySendSurviveARoundTrip) {
  const TensorSpec spec{"x", DType::kFloat32, Shape(254, 1)};
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{spec});
  const auto layout = make_ref<Layout>(std::vector<LayoutColumn>{{spec, 0, 0, 1}}, "x");
  const Ref<Chunk> chunk = Chunk::open(schema, {}, 1, 0, Allocator::heap()).value();
  const float value = 7;
  chunk->set_row(0, 0, std::as_bytes(std::span(&value, 1)));
  chunk->publish(1);
  sim::FileSystem files(1);
  {
    const Case saved(files);
    const Piece piece{chunk.get(), 0, 1};
    std::vector<Item> items;
    items.push_back({1, 1.0, Trajectory(layout, {&piece, 1})});
    ASSERT_TRUE(insert_and_wait(*saved.service, {"uniform", items, TimePoint{0}}).status.ok());
    ASSERT_TRUE(saved.write().ok());
  }
  const Case loaded(files);
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.to_string();
  SampleRequest request{.table = "uniform"};
  const SampleResult result = sample_and_wait(*loaded.service, std::move(request));
  ASSERT_EQ(result.batch.size(), 1u) << result.status.to_string();
  const TrajectoryView& item = result.batch.trajectories()[0];
  EXPECT_EQ(item.layout->columns()[0].spec, spec);
  EXPECT_EQ(value_of(item), value);
}

TEST(Checkpointer, SavingALoadedCheckpointGivesTheSameBytes) {
  sim::FileSystem first(1);
  sim::FileSystem second(2);
  {
    const Case saved(first);
    saved.insert(0, 150);
    saved.sample(60);
    ASSERT_TRUE(saved.write().ok());
  }
  {
    const Case loaded(first);
    ASSERT_TRUE(loaded.status.ok());
    auto elsewhere = Checkpointer::open(kRoot, {.files = &second}).value();
    ASSERT_TRUE(elsewhere->write(*loaded.service, {}).ok());
    // Also into the folder of the first checkpoint, where files are linked.
    ASSERT_TRUE(loaded.write().ok());
  }
  const auto a = first.content("/data/replay/checkpoint-0000000002");
  const auto b = second.content("/data/replay/checkpoint-0000000001");
  const auto at = [](const auto& content, const std::string& name) {
    for (const auto& [path, bytes] : content) {
      if (path.ends_with(name)) return bytes;
    }
    return std::vector<std::byte>();
  };
  EXPECT_FALSE(at(a, "tables").empty());
  EXPECT_EQ(at(a, "tables"), at(b, "tables"));
  EXPECT_EQ(at(a, "chunks-0000000001"), at(b, "chunks-0000000001"));
  EXPECT_EQ(a.size(), 3u) << "nothing was written twice";
}

TEST(Checkpointer, TheNextCheckpointWritesOnlyNewChunksAndEachIsComplete) {
  sim::FileSystem files(1);
  const Case store(files, {.keep = 3});
  store.insert(0, 40);
  const Written one = store.write().value();
  store.insert(40, 44);
  const Written two = store.write().value();
  const std::string chunks = "/data/replay/checkpoint-0000000002/chunks-0000000002";
  EXPECT_EQ(files.content("/data/replay").at(chunks).size(), 16u + 23u + 4 * sizeof(float));
  // Both names are links to one file, until the older checkpoint is removed.
  EXPECT_EQ(files.content("/data/replay").at(two.folder + "/chunks-0000000001"),
            files.content("/data/replay").at(one.folder + "/chunks-0000000001"));
  ASSERT_TRUE(remove_checkpoint(files, kRoot, 1).ok());
  EXPECT_TRUE(read_checkpoint(files, two.folder).ok());
}

TEST(Checkpointer, FilesWithFewReferencedChunksAreDropped) {
  sim::FileSystem files(1);
  const Case store(files);
  std::size_t most = 0;
  for (ItemKey key = 0; key < 2'000; key += 20) {
    store.insert(key, key + 20);
    ASSERT_TRUE(store.write().ok());
    std::size_t bytes = 0;
    for (const auto& [path, content] : files.content(kRoot)) bytes += content.size();
    most = std::max(most, bytes);
  }
  // Items refer to 25 chunks of 39 bytes each; the tables take 8 KB.
  EXPECT_LT(most, 20'000u);
}

TEST(Checkpointer, KeepsTheGivenNumberAndLeavesOtherFilesUntouched) {
  sim::FileSystem files(1);
  const Case store(files, {.keep = 2});
  (void)files.create("/data/replay/zzz");
  ASSERT_TRUE(files.create_folder("/data/replay/checkpoint-of-mine").ok());
  (void)files.create("/data/replay/checkpoint-of-mine/notes");
  store.insert(0, 10);
  ASSERT_TRUE(store.write().ok());
  (void)files.create("/data/replay/checkpoint-0000000001/notes");  // a foreign file in our folder
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store.write().ok());
  EXPECT_EQ(files.list(kRoot).value(),
            (std::vector<std::string>{"checkpoint-0000000001", "checkpoint-0000000004",
                                      "checkpoint-0000000005", "checkpoint-of-mine", "reverie.lock",
                                      "zzz"}));
  EXPECT_EQ(store.checkpointer->latest().value(), "/data/replay/checkpoint-0000000005");
}

TEST(Checkpointer, ASecondStoreInAFolderIsRefused) {
  sim::FileSystem files(1);
  const Case store(files);
  const Case second(files);
  EXPECT_EQ(second.status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status.message().find("reverie.lock"), std::string::npos);
}

TEST(Checkpointer, LoadsARootOrOneOfItsCheckpointsAndRefusesAFile) {
  sim::FileSystem files(1);
  {
    const Case store(files, {.keep = 5});
    store.insert(0, 10);
    ASSERT_TRUE(store.write().ok());
    store.insert(10, 20);
    ASSERT_TRUE(store.write().ok());
  }
  const auto inserts = [&](const std::string& path) {
    auto checkpointer = Checkpointer::open(path, {.keep = 5, .files = &files});
    if (!checkpointer.ok()) return std::int64_t{-1};
    auto store = (*checkpointer)->open_store(tables(), {});
    return store.ok() ? info_and_wait(**store).value()[0].inserts : -1;
  };
  EXPECT_EQ(inserts(kRoot), 20);
  EXPECT_EQ(inserts("/data/replay/checkpoint-0000000001"), 10);
  EXPECT_EQ(inserts("/data/replay/checkpoint-0000000001/"), 10);
  EXPECT_EQ(inserts("/data/replay/checkpoint-0000000009"), -1);
  EXPECT_EQ(Checkpointer::open("/data/replay/reverie.lock", {.files = &files}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Checkpointer::open(kRoot, {.keep = 0, .files = &files}).status().code(),
            StatusCode::kInvalidArgument);
  // A new checkpoint continues the numbering, whichever one was loaded.
  auto checkpointer =
      Checkpointer::open("/data/replay/checkpoint-0000000001", {.keep = 5, .files = &files})
          .value();
  auto store = checkpointer->open_store(tables(), {}).value();
  EXPECT_EQ(checkpointer->write(*store, {}).value().folder, "/data/replay/checkpoint-0000000003");
}

TEST(Checkpointer, TheFallbackIsUsedOnlyForAFolderWithoutCheckpoints) {
  sim::FileSystem files(1);
  {
    const Case store(files);
    store.insert(0, 10);
    ASSERT_TRUE(store.write().ok());
  }
  auto checkpointer = Checkpointer::open("/data/new", {.fallback = kRoot, .files = &files}).value();
  std::string loaded;
  auto store = checkpointer->open_store(tables(), {}, &loaded).value();
  EXPECT_EQ(loaded, "/data/replay/checkpoint-0000000001");
  EXPECT_EQ(info_and_wait(*store).value()[0].inserts, 10);
}

TEST(Checkpointer, DifferingTablesAreRefusedByNameOrMadeToFit) {
  sim::FileSystem files(1);
  {
    const Case store(files);
    store.insert(0, 100);
    ASSERT_TRUE(store.write().ok());
  }
  const auto open = [&](std::vector<TableOptions> given, OnMismatch on_mismatch) {
    auto checkpointer =
        Checkpointer::open(kRoot, {.on_mismatch = on_mismatch, .files = &files}).value();
    return checkpointer->open_store(std::move(given), {});
  };
  std::vector<TableOptions> smaller = tables();
  smaller[0].max_size = 60;
  smaller[0].sampler = {"Lifo", {}};
  const Status refused = open(smaller, OnMismatch::kRefuse).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("max_size is 60, and 100 in the checkpoint"), std::string::npos)
      << refused.message();
  EXPECT_NE(refused.message().find("sampler is Lifo()"), std::string::npos) << refused.message();

  const auto mine = open(smaller, OnMismatch::kMine).value();
  TableInfo info = info_and_wait(*mine).value()[0];
  EXPECT_EQ(info.current_size, 60);
  EXPECT_EQ(info.options.sampler.name, "Lifo");
  SampleRequest request;
  request.table = "uniform";
  EXPECT_EQ(sample_and_wait(*mine, std::move(request)).batch.keys()[0], 99u);

  info = info_and_wait(*open(smaller, OnMismatch::kTheirs).value()).value()[0];
  EXPECT_EQ(info.current_size, 100);
  EXPECT_EQ(info.options.max_size, 100);

  const auto dropped = open(smaller, OnMismatch::kDrop).value();
  EXPECT_EQ(info_and_wait(*dropped).value()[0].current_size, 0);
  EXPECT_EQ(info_and_wait(*dropped).value()[1].current_size, 40);

  std::vector<TableOptions> fewer = tables();
  fewer.pop_back();
  const Status lacking = open(fewer, OnMismatch::kRefuse).status();
  EXPECT_NE(lacking.message().find("table 'best'"), std::string::npos) << lacking.message();
  EXPECT_TRUE(open(fewer, OnMismatch::kDrop).ok());
  std::vector<TableOptions> more = tables();
  more.push_back(table_options("new", "Fifo", "Fifo", 5, RateLimiter::min_size(1)));
  EXPECT_EQ(info_and_wait(*open(more, OnMismatch::kRefuse).value()).value()[2].current_size, 0);
  // A different seed does not make a table different.
  std::vector<TableOptions> reseeded = tables();
  reseeded[0].sampler.options["seed"] = std::int64_t{77};
  EXPECT_TRUE(open(reseeded, OnMismatch::kRefuse).ok());
}

// Chunks of at least this many rows get a mark in StoredChunks.
constexpr std::uint32_t kMarkedRows = StoredChunks::kMarkedBytesMin / sizeof(float);

// The chunks of the items `first` to `last` of a table.
std::vector<const Chunk*> chunks_of(const Case& store, std::size_t first, std::size_t last) {
  const SampleBatch batch = store.service->table("uniform").value()->read(0, 100);
  std::vector<const Chunk*> chunks;
  for (std::size_t i = first; i < last; ++i) {
    chunks.push_back(batch.trajectories()[i].pieces().front().chunk);
  }
  return chunks;
}

std::vector<std::uint32_t> marks_of(const Case& store, std::size_t first, std::size_t last) {
  std::vector<std::uint32_t> marks;
  for (const Chunk* const chunk : chunks_of(store, first, last)) {
    marks.push_back(chunk->checkpoint_mark());
  }
  return marks;
}

TEST(Checkpointer, AWrittenChunkIsRecognisedByItsMark) {
  sim::FileSystem files(1);
  {
    const Case store(files);
    store.insert(0, 20, kMarkedRows);
    EXPECT_EQ(marks_of(store, 0, 20), std::vector<std::uint32_t>(20, 0));
    ASSERT_TRUE(store.write().ok());
    const std::vector<std::uint32_t> marks = marks_of(store, 0, 20);
    EXPECT_EQ(std::set(marks.begin(), marks.end()).size(), 5u);
    store.insert(20, 40, kMarkedRows);
    ASSERT_TRUE(store.write().ok());
    EXPECT_EQ(marks_of(store, 0, 20), marks) << "they were looked up, and not hashed";
  }
  const Case loaded(files);
  const std::vector<std::uint32_t> marks = marks_of(loaded, 0, 40);
  EXPECT_EQ(std::set(marks.begin(), marks.end()).size(), 10u);
  const Written written = loaded.write().value();
  EXPECT_EQ(marks_of(loaded, 0, 40), marks);
  EXPECT_FALSE(files.content(written.folder).contains(written.folder + "/chunks-0000000003"));
}

// Memory whose prefetch() is a hook: a checkpoint calls it after it has looked at a chunk and
// before it reads the rows.
class HookedMemory final : public ChunkMemory {
 public:
  std::function<void()> on_prefetch;

  Result<Buffer> allocate(std::size_t size_bytes) override {
    return Allocator::heap().allocate(size_bytes);
  }
  void prefetch(std::span<const Range>) override {
    if (on_prefetch) std::exchange(on_prefetch, nullptr)();
  }
  std::optional<std::int64_t> memory_bytes() const override { return std::nullopt; }
  Status set_bound(Group, std::int64_t) override { return {}; }
  void assign(std::span<const Range>, Group) override {}
  void shrink() override {}
};

TEST(Checkpointer, AChunkThatIsEncodedWithMoreRowsWhileItIsWrittenCanBeLoaded) {
  const Ref<Chunk> chunk = Chunk::open(testing::float_schema(), {1, 2, 0}, 4, 0, Allocator::heap(),
                                       Chunk::Kind::kCompressible)
                               .value();
  for (std::uint32_t row = 0; row < 3; ++row) {
    const auto value = static_cast<float>(row);
    chunk->set_row(0, row, std::as_bytes(std::span(&value, 1)));
  }
  chunk->publish(2);
  sim::FileSystem files(1);
  {
    const auto memory = std::make_shared<HookedMemory>();
    StoreOptions options;
    options.memory = memory;
    const auto service = LocalService::open(tables(), options).value();
    Item item = testing::item_over(*chunk, 1, 1.0, 1, 1);
    ASSERT_TRUE(insert_and_wait(*service, {"best", {&item, 1}, TimePoint{0}}).status.ok());
    const auto checkpointer = Checkpointer::open(kRoot, {.files = &files}).value();
    // Its writer ends the chunk with a third row, and encodes it.
    memory->on_prefetch = [&] {
      chunk->publish(3);
      const ColumnTry lz4{.codec = CodecId::kLz4};
      chunk->replace_rows(encode_columns(*chunk, {&lz4, 1}, Allocator::heap()).value());
    };
    ASSERT_TRUE(checkpointer->write(*service, {}).ok());
    ASSERT_FALSE(chunk->is_raw());
  }
  const Case loaded(files);
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.to_string();
  SampleRequest request{.table = "best"};
  const SampleResult drawn = sample_and_wait(*loaded.service, std::move(request));
  ASSERT_EQ(drawn.batch.size(), 1u) << drawn.status.to_string();
  EXPECT_EQ(value_of(drawn.batch.trajectories()[0]), 1);
}

// Alternates between two folders, one of which loses its newest checkpoint: a mark of the other
// folder, or of a removed checkpoint, must not be used.
TEST(Checkpointer, AMarkOfAnotherFolderOrOfARemovedCheckpointIsIgnored) {
  sim::FileSystem files(1);
  const Case store(files, {.keep = 2});
  auto other = Checkpointer::open("/data/other", {.files = &files}).value();
  for (ItemKey key = 0; key < 80; key += 4) {
    store.insert(key, key + 4, kMarkedRows);
    std::string mine = store.write().value().folder;
    if (key % 12 == 8) {
      const auto number = checkpoint_number(mine.substr(mine.rfind('/') + 1));
      ASSERT_TRUE(remove_checkpoint(files, kRoot, number.value()).ok());
      const std::string again = store.write().value().folder;
      EXPECT_NE(std::exchange(mine, again), again) << "its files are known by its name";
    }
    const std::string others = other->write(*store.service, {}).value().folder;
    for (const std::string& folder : {mine, others}) {
      const auto loaded = read_checkpoint(files, folder);
      ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
      ASSERT_EQ(loaded->tables[0].records.size(), key + 4);
    }
  }
}

// A store of 40 items, whose second checkpoint follows a first one of 20.
struct Crash {
  explicit Crash(std::uint64_t seed, std::uint32_t rows = 4) : files(seed), store(files) {
    store.insert(0, 20, rows);
    EXPECT_TRUE(store.write("one").ok());
    store.insert(20, 40, rows);
  }
  sim::FileSystem files;
  Case store;
};

// Checks that the newest complete checkpoint is loaded, and no other.
void expect_loads(sim::FileSystem& files, bool second_was_confirmed, std::uint64_t seed) {
  const Case loaded(files);
  ASSERT_TRUE(loaded.status.ok()) << loaded.status.to_string() << ", seed " << seed;
  const std::int64_t inserts = loaded.inserts();
  ASSERT_TRUE(inserts == 40 || (inserts == 20 && !second_was_confirmed))
      << inserts << ", seed " << seed;
  ASSERT_EQ(text_of(loaded.checkpointer->loaded_payload()), inserts == 40 ? "two" : "one");
  // The store works after loading.
  loaded.insert(40, 44);
  ASSERT_TRUE(loaded.write("three").ok());
}

TEST(CheckpointCrash, APowerCutAtAnyCallLeavesTheNewestCompleteCheckpoint) {
  std::int64_t calls = 0;
  {
    Crash whole(0);
    const std::int64_t before = whole.files.calls();
    ASSERT_TRUE(whole.store.write("two").ok());
    calls = whole.files.calls() - before;
  }
  ASSERT_GT(calls, 20);
  for (std::int64_t stop = 1; stop <= calls; ++stop) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Crash crash(seed, seed % 2 == 0 ? 4 : kMarkedRows);
      crash.files.stop_at(crash.files.calls() + stop);
      const bool is_ok = crash.store.write("two").ok();
      EXPECT_TRUE(crash.files.is_stopped());
      crash.files.restart();
      ASSERT_NO_FATAL_FAILURE(expect_loads(crash.files, is_ok, seed)) << "stop " << stop;
    }
  }
}

TEST(CheckpointCrash, BytesAndNamesLostInAnyOrderLeaveTheNewestCompleteCheckpoint) {
  const auto seeds = static_cast<std::uint64_t>(scaled(1'000, 10'000));
  std::int64_t second = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Random random(seed);
    Crash crash(seed, seed % 2 == 0 ? 4 : kMarkedRows);
    crash.files.stop_at(crash.files.calls() + 1 + static_cast<std::int64_t>(random.below(60)));
    const bool is_ok = crash.store.write("two").ok();
    second += is_ok ? 1 : 0;
    crash.files.restart();
    ASSERT_NO_FATAL_FAILURE(expect_loads(crash.files, is_ok, seed));
  }
  EXPECT_GT(second, 10);
}

// After `cp`, programs see a complete checkpoint that is not yet on the disk.
TEST(CheckpointCrash, ACopiedCheckpointIsSyncedWithTheFirstOneWrittenAfterIt) {
  std::map<std::string, std::vector<std::byte>> content;
  {
    sim::FileSystem files(1);
    const Case store(files);
    store.insert(0, 40, kMarkedRows);
    content = files.content(store.write("one").value().folder);
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    sim::FileSystem files(seed);
    ASSERT_TRUE(create_folders(files, "/data/replay/checkpoint-0000000001").ok());
    for (const auto& [path, bytes] : content) {
      ASSERT_TRUE(files.create(path).value()->append(bytes).ok());
    }
    {
      const Case store(files);
      ASSERT_TRUE(store.status.ok()) << store.status.to_string();
      for (std::uint64_t more = 0; more <= seed % 3; ++more) ASSERT_TRUE(store.write("two").ok());
    }
    files.restart();
    ASSERT_NO_FATAL_FAILURE(expect_loads(files, true, seed));
  }
}

TEST(CheckpointCrash, TheSameSeedGivesTheSameTrace) {
  const auto run = [] {
    Crash crash(11);
    crash.files.stop_at(crash.files.calls() + 9);
    (void)crash.store.write("two");
    crash.files.restart();
    return crash.files.trace();
  };
  EXPECT_EQ(run(), run());
}

TEST(CheckpointCrash, ADiskFailureAtAnyCallCostsOnlyThatCheckpoint) {
  std::int64_t calls = 0;
  {
    Crash whole(0);
    const std::int64_t before = whole.files.calls();
    ASSERT_TRUE(whole.store.write("two").ok());
    calls = whole.files.calls() - before;
  }
  for (const bool is_full : {false, true}) {
    for (std::int64_t call = 1; call <= calls; ++call) {
      Crash crash(3);
      crash.files.fail_at(crash.files.calls() + call,
                          is_full ? resource_exhausted("no space") : data_loss("device"));
      const Result<Written> written = crash.store.write("two");
      if (!written.ok()) {
        EXPECT_TRUE(written.status().code() == StatusCode::kResourceExhausted ||
                    written.status().code() == StatusCode::kDataLoss)
            << written.status().to_string();
      }
      // The store works in memory, and the next checkpoint succeeds.
      crash.store.insert(40, 44);
      ASSERT_EQ(crash.store.sample(5).size(), 50u);
      ASSERT_TRUE(crash.store.write("three").ok()) << "call " << call;
      crash.files.restart();
      const Case loaded(crash.files);
      ASSERT_TRUE(loaded.status.ok()) << loaded.status.to_string();
      ASSERT_EQ(loaded.inserts(), 44);
    }
  }
}

TEST(CheckpointCrash, AFullDiskIsReportedAndItsSpaceFreed) {
  Crash crash(1);
  std::uint64_t used = 0;
  for (const auto& [path, bytes] : crash.files.content("/")) used += bytes.size();
  crash.files.set_disk_bytes(used + 2'000);
  const Status status = crash.store.write("two").status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("tmp-"), std::string::npos) << status.message();
  std::uint64_t after = 0;
  for (const auto& [path, bytes] : crash.files.content("/")) after += bytes.size();
  EXPECT_EQ(after, used) << "nothing of it is left";
  crash.files.set_disk_bytes(~std::uint64_t{0});
  EXPECT_TRUE(crash.store.write("two").ok());
}

TEST(CheckpointCrash, ACancelledCheckpointLeavesNothing) {
  Crash crash(1);
  const std::atomic<bool> is_cancelled{true};
  EXPECT_EQ(
      crash.store.checkpointer->write(*crash.store.service, {}, &is_cancelled).status().code(),
      StatusCode::kCancelled);
  EXPECT_EQ(crash.files.list(kRoot).value(),
            (std::vector<std::string>{"checkpoint-0000000001", "reverie.lock"}));
}

// A sync cannot be cancelled, so a checkpoint writes in pieces and lets the disk follow.
TEST(CheckpointCrash, ACheckpointIsCancelledBetweenThePiecesOfALargeChunk) {
  constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
  constexpr std::uint32_t kRows = 5 * kPieceBytes / sizeof(float);
  sim::FileSystem inner(1);
  testing::HookedFileSystem files(inner);
  const auto service = LocalService::open(tables(), {}).value();
  const auto chunk = float_chunk(0, kRows, {1, 2, 0});
  Item item = testing::item_over(*chunk, 1, 1.0, 0, kRows);
  ASSERT_TRUE(insert_and_wait(*service, {"uniform", {&item, 1}, TimePoint{0}}).status.ok());
  const auto checkpointer = Checkpointer::open(kRoot, {.files = &files}).value();
  std::atomic<bool> is_cancelled{false};
  std::size_t large = 0;
  files.before_append = [&](std::size_t size_bytes) {
    EXPECT_LE(size_bytes, kPieceBytes);
    if (size_bytes == kPieceBytes && ++large == 2) is_cancelled = true;
    return Status();
  };
  EXPECT_EQ(checkpointer->write(*service, {}, &is_cancelled).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(large, 2u);
  EXPECT_EQ(inner.list(kRoot).value(), std::vector<std::string>{"reverie.lock"});
  is_cancelled = false;
  EXPECT_TRUE(checkpointer->write(*service, {}, &is_cancelled).ok());
}

// A folder with the bytes of another one.
void put(sim::FileSystem& files, const std::string& folder,
         const std::map<std::string, std::vector<std::byte>>& content) {
  ASSERT_TRUE(create_folders(files, folder).ok());
  for (const auto& [name, bytes] : content) {
    ASSERT_TRUE(files.create(name).value()->append(bytes).ok());
  }
}

// Every row of every item.
std::string rows_of(const LoadedCheckpoint& loaded) {
  std::string text;
  for (const RestoredTable& table : loaded.tables) {
    for (const Trajectory& trajectory : table.trajectories) {
      if (trajectory.empty()) continue;
      for (const Piece& piece : trajectory.pieces()) {
        for (std::uint32_t row = 0; row < piece.length; ++row) {
          text += format("{} ", testing::float_row(*piece.chunk, piece.offset + row));
        }
      }
      text += '\n';
    }
  }
  return text;
}

// A checkpoint with raw chunks and a compressed one. Its older file of chunks has some that no item
// refers to any more.
std::map<std::string, std::vector<std::byte>> checkpoint_of_all_kinds(const std::string& folder) {
  sim::FileSystem files(1);
  const Case store(files);
  store.insert(0, 150);
  const Ref<Chunk> chunk = Chunk::open(testing::float_schema(), {1'000, 2, 0}, 64, 0,
                                       Allocator::heap(), Chunk::Kind::kCompressible)
                               .value();
  for (std::uint32_t row = 0; row < 64; ++row) {
    const auto value = static_cast<float>(row);
    chunk->set_row(0, row, std::as_bytes(std::span(&value, 1)));
  }
  chunk->publish(64);
  const ColumnTry lz4{.codec = CodecId::kLz4};
  chunk->replace_rows(encode_columns(*chunk, {&lz4, 1}, Allocator::heap()).value());
  EXPECT_FALSE(chunk->is_raw());
  Item item = testing::item_over(*chunk, 1'000, 100.0, 0, 64);
  EXPECT_TRUE(insert_and_wait(*store.service, {"best", {&item, 1}, TimePoint{0}}).status.ok());
  const Ref<Chunk> dropped = float_chunk(7, 128, {2'000, 2, 0});
  Item gone = testing::item_over(*dropped, 2'000, 100.0, 0, 128);
  EXPECT_TRUE(insert_and_wait(*store.service, {"best", {&gone, 1}, TimePoint{0}}).status.ok());
  EXPECT_TRUE(store.write("payload").ok());
  const std::vector<ItemKey> deleted = {2'000};
  MutateRequest request;
  request.table = "best";
  request.deletes = deleted;
  EXPECT_EQ(mutate_and_wait(*store.service, request).deleted, 1u);
  store.insert(150, 160);
  EXPECT_EQ(store.write("payload").value().folder, folder);
  return files.content(folder);
}

// Loading checks all that it returns; verifying checks the rest, too.
TEST(CheckpointDamage, NoFlippedByteAndNoCutIsAcceptedSilently) {
  const std::string folder = "/data/replay/checkpoint-0000000002";
  const auto content = checkpoint_of_all_kinds(folder);
  ASSERT_EQ(content.size(), 4u);
  std::string rows;
  {
    sim::FileSystem files(1);
    ASSERT_NO_FATAL_FAILURE(put(files, folder, content));
    ASSERT_TRUE(verify_checkpoint(files, folder).ok());
    rows = rows_of(read_checkpoint(files, folder).value());
  }
  std::vector<std::pair<std::string, std::uint64_t>> sizes;
  for (const auto& [path, bytes] : content) sizes.emplace_back(path, bytes.size());
  Random random(5);
  const std::int64_t count = scaled(2'000, 10'000);
  std::int64_t loaded_count = 0;
  std::int64_t chunk_count = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& [name, size] = sizes[random.below(sizes.size())];
    const std::string& path = name;  // clang 14 does not let a lambda capture `name`
    const std::uint64_t offset = random.below(size);
    const auto bit = static_cast<std::byte>(1u << random.below(8));
    const bool is_cut = random.below(8) == 0;
    const std::string what = format("{} at {}, {}", path, offset, is_cut ? "cut" : "flipped");
    sim::FileSystem damaged(1);
    ASSERT_NO_FATAL_FAILURE(put(damaged, folder, content));
    if (is_cut) {
      damaged.cut(path, offset);
    } else {
      damaged.flip(path, offset, bit);
    }
    const auto refused = [&](const Status& status) {
      ASSERT_TRUE(status.code() == StatusCode::kDataLoss ||
                  status.code() == StatusCode::kUnimplemented)
          << what << ": " << status.to_string();
      ASSERT_NE(status.message().find(path.substr(path.rfind('/') + 1)), std::string::npos)
          << what << ": " << status.message();
    };
    ASSERT_NO_FATAL_FAILURE(refused(verify_checkpoint(damaged, folder).status()));
    const auto loaded = read_checkpoint(damaged, folder);
    if (!loaded.ok()) {
      chunk_count +=
          loaded.status().message().find("does not have its checksum") != std::string::npos &&
          loaded.status().message().starts_with("chunk ");
      ASSERT_NO_FATAL_FAILURE(refused(loaded.status()));
      continue;
    }
    // The byte belongs to a chunk that no item refers to.
    ASSERT_TRUE(path.find("chunks-") != std::string::npos && !is_cut) << what;
    ASSERT_TRUE(rows_of(*loaded) == rows) << what;
    ++loaded_count;
  }
  EXPECT_GT(loaded_count, count / 100);
  EXPECT_GT(chunk_count, count / 20);
}

TEST(CheckpointDamage, AFileOfANewerFormatVersionIsReportedWhicheverItIs) {
  const std::string folder = "/data/replay/checkpoint-0000000002";
  const auto content = checkpoint_of_all_kinds(folder);
  for (const auto& [path, bytes] : content) {
    sim::FileSystem files(1);
    ASSERT_NO_FATAL_FAILURE(put(files, folder, content));
    files.flip(path, 8, std::byte{kFormatVersion ^ (kFormatVersion + 1)});
    for (const Status& status :
         {read_checkpoint(files, folder).status(), verify_checkpoint(files, folder).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.to_string();
      const std::string words = format("'{}' has format version {}", path, kFormatVersion + 1);
      EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    }
  }
}

// A release that wrote no checksum for whole files of chunks; a linked file stays without.
TEST(CheckpointDamage, ChecksumsOfWholeFilesOfChunksAreKeptByTheNextCheckpoints) {
  sim::FileSystem files(1);
  std::map<std::string, std::uint32_t> crcs;
  const auto note = [&](const std::string& folder) {
    const Manifest manifest = read_manifest(files, join_path(folder, kManifestName)).value();
    for (const ManifestFile& file : manifest.files) {
      if (file.name == kTablesName) continue;
      EXPECT_NE(file.crc, 0u);
      EXPECT_EQ(crcs.emplace(file.name, file.crc).first->second, file.crc) << file.name;
      EXPECT_EQ(crc32c(files.content(folder).at(join_path(folder, file.name))), file.crc);
    }
  };
  for (ItemKey key = 0; key < 40; key += 10) {
    const Case store(files);
    store.insert(key, key + 5);
    note(store.write().value().folder);
    store.insert(key + 5, key + 10);
    note(store.write().value().folder);
  }
  EXPECT_GT(crcs.size(), 4u);

  const std::string folder = Case(files).checkpointer->latest().value().value();
  Manifest manifest = read_manifest(files, join_path(folder, kManifestName)).value();
  for (std::size_t i = 1; i < manifest.files.size(); ++i) manifest.files[i].crc = 0;
  ASSERT_TRUE(files.remove_file(join_path(folder, kManifestName)).ok());
  ASSERT_TRUE(write_manifest(files, join_path(folder, kManifestName), manifest).ok());
  EXPECT_TRUE(verify_checkpoint(files, folder).ok());
  const Case store(files);
  ASSERT_TRUE(store.status.ok()) << store.status.to_string();
  const std::string next = store.write().value().folder;
  EXPECT_EQ(read_manifest(files, join_path(next, kManifestName))->files[1].crc, 0u);
  EXPECT_TRUE(verify_checkpoint(files, next).ok());
}

// Items of equal number whose keys, priorities, times sampled or rows differ.
TEST(CheckpointComparison, ItemsOfEqualCountAreComparedOneByOne) {
  // Inserts three items, `key` being that of the last.
  const auto saved = [](sim::FileSystem& files, ItemKey key, double priority, float value,
                        std::size_t draws) {
    const Case store(files);
    for (const ItemKey each : {ItemKey{1}, ItemKey{2}, key}) {
      Item item = testing::make_item(each, each == key ? priority : 1.0, each == key ? value : 0.0f,
                                     1, {each, 1, 0});
      EXPECT_TRUE(insert_and_wait(*store.service, {"best", {&item, 1}, TimePoint{0}}).status.ok());
    }
    for (std::size_t i = 0; i < draws; ++i) {
      SampleRequest request{.table = "best"};
      EXPECT_EQ(sample_and_wait(*store.service, std::move(request)).batch.size(), 1u);
    }
    return store.write().value().folder;
  };
  const auto found = [&](ItemKey key, double priority, float value, std::size_t draws) {
    sim::FileSystem files(1);
    const std::string one = saved(files, 3, 0.0, 5, 0);
    EXPECT_EQ(compare_checkpoints(files, one, one)->size(), 0u);
    const auto content = files.content(one);
    const std::string other = "/other/checkpoint-0000000001";
    sim::FileSystem elsewhere(1);
    const std::string made = saved(elsewhere, key, priority, value, draws);
    EXPECT_TRUE(create_folders(files, other).ok());
    for (const auto& [path, bytes] : elsewhere.content(made)) {
      const std::string name = path.substr(path.rfind('/') + 1);
      EXPECT_TRUE(files.create(join_path(other, name)).value()->append(bytes).ok());
    }
    std::vector<std::string> lines;
    const std::vector<Difference> differences = compare_checkpoints(files, one, other).value();
    for (const Difference& one_of : differences) {
      EXPECT_EQ(one_of.table, "best");
      lines.push_back(one_of.what.starts_with("rows")
                          ? one_of.what
                          : format("{} {} | {}", one_of.what, one_of.one, one_of.other));
    }
    return lines;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(found(3, 0.0, 5, 0), Lines{});
  EXPECT_EQ(found(4, 0.0, 5, 0), Lines{"keys that the other lacks 1 | 1"});
  EXPECT_EQ(found(3, 2.0, 5, 0), Lines{"priority of key 3 0 | 2"});
  EXPECT_EQ(found(3, 0.0, 6, 0), Lines{"rows of key 3"});
  // The draw is one of the first two items, since the third has priority 0.
  const Lines drawn = found(3, 0.0, 5, 1);
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(drawn[0], "samples 0 | 1");
  EXPECT_TRUE(drawn[1].starts_with("times_sampled of key ")) << drawn[1];
  EXPECT_TRUE(drawn[1].ends_with(" 0 | 1")) << drawn[1];
}

}  // namespace
}  // namespace reverie::checkpoint
