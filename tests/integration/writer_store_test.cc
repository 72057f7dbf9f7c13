// Writers and batches with a real store between them.
#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/base/random.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/gather/batch.h"
#include "reverie/replay/chunk_store.h"
#include "reverie/replay/local_service.h"
#include "reverie/server/server.h"
#include "reverie/service/blocking.h"
#include "reverie/tensor/block_memory.h"
#include "tests/support/eventually.h"
#include "tests/support/hooked_file_system.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

constexpr std::int64_t kSize = 1'000'000;

TableOptions queue(std::int64_t size) {
  TableOptions options = testing::table_options("queue", "Fifo", "Fifo", size,
                                                {.samples_per_insert = 1,
                                                 .min_size_to_sample = 1,
                                                 .min_diff = 0,
                                                 .max_diff = static_cast<double>(size)});
  options.max_times_sampled = 1;
  return options;
}
TableOptions fifo(std::int64_t size) {
  return testing::table_options(
      "replay", "Fifo", "Fifo", size,
      {.samples_per_insert = 1, .min_size_to_sample = 1, .min_diff = -1e12, .max_diff = 1e12});
}

std::shared_ptr<LocalService> open_store(const TableOptions& table) {
  return LocalService::open({table}, {}).value();
}

// A writer of one column "x" of float32 [width].
class XWriter {
 public:
  XWriter(std::shared_ptr<ReplayService> service, ChunkOptions chunks, std::size_t width = 1)
      : writer_(TrajectoryWriter::open(std::move(service), {.chunks = chunks, .seed = 1}).value()),
        x_(writer_->column("x")),
        shape_{static_cast<std::int64_t>(width)},
        row_(width) {}
  ~XWriter() { writer_->close(); }

  TrajectoryWriter& operator*() { return *writer_; }
  Status append(float x, bool partial = false) {
    std::ranges::fill(row_, x);
    const ColumnValue value{x_, {DType::kFloat32, shape_, std::as_bytes(std::span(row_))}};
    return writer_->append({&value, 1}, partial);
  }
  Status create(StepIndex begin, std::uint32_t length, const std::string& table) {
    const StepRange range{begin, length};
    const TrajectoryColumn column{"x", x_, {&range, 1}};
    return writer_->create_item({table, 1.0, {&column, 1}, "s"}, TimePoint::max(), {});
  }
  Status create_last(std::uint32_t length, const std::string& table) {
    return create(writer_->next_step() + (writer_->step_is_open() ? 1 : 0) - length, length, table);
  }
  void end_episode() { ASSERT_TRUE(writer_->end_episode(true, TimePoint::max(), {}).ok()); }

 private:
  std::unique_ptr<TrajectoryWriter> writer_;
  ColumnId x_;
  Shape shape_;
  std::vector<float> row_;
};

std::vector<float> sample_rows(ReplayService& service, const std::string& table) {
  SampleRequest request;
  request.table = table;
  SampleResult result = sample_and_wait(service, std::move(request));
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  const Batch batch = assemble(result.batch, {}).value();
  const Buffer& bytes = batch.columns[0].bytes;
  std::vector<float> rows(bytes.size_bytes() / sizeof(float));
  std::memcpy(rows.data(), bytes.data(), bytes.size_bytes());
  return rows;
}

// The model is a queue with the rows of each item.
TEST(WriterAndStore, EverySampledItemHasItsOwnRows) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Random random(seed);
    const auto service = open_store(queue(20));
    const std::optional<std::uint32_t> length =
        seed % 2 == 0 ? std::nullopt : std::optional<std::uint32_t>(seed);
    XWriter writer(service, {.num_keep_alive_refs = 6, .chunk_length = length});
    std::deque<std::vector<float>> model;
    std::vector<float> steps;
    for (int i = 0; i < 1'500; ++i) {
      const auto x = static_cast<float>(random.uniform());
      const bool partial = random.below(4) == 0;
      ASSERT_TRUE(writer.append(x, partial).ok());
      steps.push_back(x);
      const auto n =
          static_cast<std::uint32_t>(1 + random.below(std::min<std::size_t>(5, steps.size())));
      ASSERT_TRUE(writer.create_last(n, "queue").ok());
      model.emplace_back(steps.end() - n, steps.end());
      if (partial) {
        ASSERT_TRUE((*writer).append({}, false).ok());
      }
      while (model.size() > 15 || (!model.empty() && random.below(3) == 0)) {
        ASSERT_EQ(sample_rows(*service, "queue"), model.front())
            << "seed " << seed << " step " << i;
        model.pop_front();
      }
      if (model.empty() && random.below(20) == 0) {
        writer.end_episode();
        steps.clear();
      }
    }
    while (!model.empty()) {
      ASSERT_EQ(sample_rows(*service, "queue"), model.front());
      model.pop_front();
    }
    if ((*writer).next_step() == 0) continue;
    writer.end_episode();
    EXPECT_EQ(service->used_bytes(), 0) << "a queue that is empty holds no chunk";
  }
}

// An actor that a queue of four holds back, and a learner: no item is lost, changed or out of
// order, although the learner reads chunks that the actor is still writing.
TEST(WriterAndStore, EveryItemOfAnActorReachesALearnerInOrder) {
  constexpr int kItems = 3'000;
  const auto service = open_store(queue(4));
  std::thread actor([&] {
    XWriter writer(service, {.num_keep_alive_refs = 3, .chunk_length = 16});
    for (int i = 0; i < kItems; ++i) {
      ASSERT_TRUE(writer.append(static_cast<float>(i)).ok());
      ASSERT_TRUE(writer.create_last(i == 0 ? 1 : 2, "queue").ok());
    }
    ASSERT_TRUE((*writer).flush(0, TimePoint::max(), {}).ok());
  });
  for (int i = 0; i < kItems; ++i) {
    const auto x = static_cast<float>(i);
    const std::vector<float> expected =
        i == 0 ? std::vector<float>{x} : std::vector<float>{x - 1, x};
    ASSERT_EQ(sample_rows(*service, "queue"), expected);
  }
  actor.join();
}

TEST(WriterAndStore, AnItemThatTheTableRefusesLeavesTheWriterUsable) {
  TableOptions options = fifo(10);
  options.sampler = {"Prioritized", {{"priority_exponent", 0.5}}};
  const auto service = open_store(options);
  XWriter writer(service, {});
  ASSERT_TRUE(writer.append(1).ok());
  const StepRange range{0, 1};
  const TrajectoryColumn column{"x", 0, {&range, 1}};
  expect_refused((*writer).create_item({"replay", -1.0, {&column, 1}, ""}, TimePoint::max(), {}),
                 StatusCode::kInvalidArgument, {"-1"});
  expect_refused(writer.create_last(1, "nowhere"), StatusCode::kNotFound,
                 {"'nowhere'", "'replay'"});
  EXPECT_TRUE(writer.create_last(1, "replay").ok());
}

// The table has the item when the disk of its journal fails, and a flush that returned ok would say
// that the item survives a power cut.
TEST(WriterAndStore, AnItemThatItsJournalCannotRecordFailsTheFlush) {
  IoThreads threads{1};
  LinkLoops loops{threads};
  using Open = std::function<std::shared_ptr<ReplayService>(Server&)>;
  const std::vector<Open> ways = {
      [](Server& server) { return server.store(); },
      [&](Server& server) {
        return ReverbClient::open(threads, server.addresses().front()).value();
      },
      [&](Server& server) {
        return PeerStoreClient::open(loops, server.addresses().front(), {}).value();
      },
  };
  for (std::size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    std::string folder = ::testing::TempDir() + "/writer-store-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
    std::atomic<bool> is_broken{false};
    std::promise<void> item_is_in;
    const std::shared_future<void> may_fail = item_is_in.get_future();
    testing::HookedFileSystem files(FileSystem::system());
    files.before_append = [&](std::size_t) {
      if (!is_broken) return Status();
      may_fail.wait();
      return data_loss("the device failed");
    };
    ServerOptions options;
    options.checkpoints.emplace();
    options.checkpoints->path = folder;
    options.checkpoints->checkpointer.journal.durability = Durability::kSync;
    options.checkpoints->checkpointer.files = &files;
    const auto server = Server::open({fifo(10)}, std::move(options)).value();
    {
      XWriter writer(ways[way](*server), {});
      ASSERT_TRUE(writer.append(1).ok());
      ASSERT_TRUE(writer.create_last(1, "replay").ok());
      writer.end_episode();
      is_broken = true;
      ASSERT_TRUE(writer.append(2).ok());
      ASSERT_TRUE(writer.create_last(1, "replay").ok());
      EXPECT_EQ((*writer).pending_items(), 1u);
      ASSERT_TRUE(test::eventually(
          [&] { return info_and_wait(*server->store()).value()[0].current_size == 2; }));
      item_is_in.set_value();
      expect_refused((*writer).end_episode(true, TimePoint::max(), {}), StatusCode::kDataLoss,
                     {"1 ", "item", "table 'replay'", "the device failed"});
    }
  }
}

TEST(WriterAndStore, APartOfACancelledInsertIsReportedOnceItIsDurable) {
  std::string folder = ::testing::TempDir() + "/writer-store-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  std::atomic<bool> is_slow{false};
  std::promise<void> let_go;
  const std::shared_future<void> may_write = let_go.get_future();
  testing::HookedFileSystem files(FileSystem::system());
  files.before_append = [&](std::size_t) {
    if (is_slow) may_write.wait();
    return Status();
  };
  ServerOptions options;
  options.checkpoints.emplace();
  options.checkpoints->path = folder;
  options.checkpoints->checkpointer.journal.durability = Durability::kSync;
  options.checkpoints->checkpointer.files = &files;
  const auto server = Server::open({queue(2)}, std::move(options)).value();
  std::vector<Item> items;
  for (ItemKey key = 1; key <= 3; ++key) items.push_back(testing::make_item(key, 1.0));
  is_slow = true;
  InsertResult result;
  std::atomic<bool> is_done{false};
  ReplayService& service = *server->store();
  const RequestId id = service.insert({"queue", items}, [&](InsertResult made) {
    result = std::move(made);
    is_done = true;
  });
  service.cancel(id);
  EXPECT_FALSE(is_done) << "a client that sends it again would be told that two are in";
  let_go.set_value();
  ASSERT_TRUE(test::eventually([&] { return is_done.load(); }));
  EXPECT_EQ(result.status.code(), StatusCode::kCancelled) << result.status.message();
  EXPECT_EQ(result.applied, 2u);
}

// The fixed size of an item in its table, which these tests do not count.
std::int64_t item_bytes() {
  return ChunkStore::item_bytes(testing::make_item(1, 1.0).trajectory.view());
}

// The bytes that the chunks of all items hold, per byte of rows in use: an item over `rows` steps
// of 400 B at the end of every `stride` steps, in episodes of `episode` steps.
double bytes_held_per_byte_used(int episode, int rows, int stride, int steps) {
  const auto service = open_store(fifo(kSize));
  XWriter writer(service, {.num_keep_alive_refs = static_cast<std::uint32_t>(rows)}, 100);
  // The writer learns the length of episodes from the first ones, which are not counted.
  std::int64_t taught = 0;
  std::int64_t items_taught = 0;
  std::int64_t items = 0;
  for (int i = 0; i < 2 * steps; ++i) {
    if (i % episode == 0 && i > 0) writer.end_episode();
    if (i >= steps && taught == 0 && i % episode == 0) {
      taught = service->used_bytes();
      items_taught = items;
    }
    EXPECT_TRUE(writer.append(1).ok());
    if ((i + 1) % stride != 0 || i % episode + 1 < rows) continue;
    EXPECT_TRUE(writer.create_last(static_cast<std::uint32_t>(rows), "replay").ok());
    ++items;
  }
  writer.end_episode();
  const std::int64_t held = service->used_bytes() - taught - (items - items_taught) * item_bytes();
  return static_cast<double>(held) / (400.0 * rows * static_cast<double>(items - items_taught));
}

TEST(WriterAndStore, StepsOfLongEpisodesCostAtMostTenBytesEach) {
  EXPECT_LE((bytes_held_per_byte_used(1'000, 1, 1, 20'000) - 1) * 400, 10);
}

TEST(WriterAndStore, ShortEpisodesWasteAtMostAThird) {
  for (const int episode : {10, 12, 13, 15, 17, 20}) {
    EXPECT_LE(bytes_held_per_byte_used(episode, 1, 1, 2'000), 1.35) << "episodes of " << episode;
  }
}

TEST(WriterAndStore, SparseItemsHoldAtMostTwiceTheirRows) {
  EXPECT_LE(bytes_held_per_byte_used(1'000, 4, 40, 20'000), 2.0);
}

// An item of N rows holds the chunks with its rows and no copy, for any N and K.
TEST(WriterAndStore, ItemsOfAnyLengthHoldEachRowOnce) {
  constexpr std::int64_t kItems = 200;
  for (std::uint32_t n = 1; n <= 16; n += 3) {
    for (std::uint32_t k = 1; k <= 16; k += 3) {
      const auto service = open_store(fifo(kItems));
      XWriter writer(service, {.num_keep_alive_refs = n, .chunk_length = k}, 100);
      for (int i = 0; i < 1'000; ++i) {
        ASSERT_TRUE(writer.append(static_cast<float>(i)).ok());
        if (i + 1 < static_cast<int>(n)) continue;
        ASSERT_TRUE(writer.create_last(n, "replay").ok());
      }
      const std::int64_t rows = kItems + n - 1;
      const std::int64_t chunks = rows / k + 2;  // one partial chunk at either end
      const auto chunk_bytes =
          static_cast<std::int64_t>(block_bytes(sizeof(Chunk)) + block_bytes(k * 400));
      const auto piece_bytes = static_cast<std::int64_t>(block_bytes((n / k + 2) * sizeof(Piece)));
      EXPECT_LE(service->used_bytes(), chunks * chunk_bytes + kItems * (item_bytes() + piece_bytes))
          << "N " << n << " K " << k;
    }
  }
}

}  // namespace
}  // namespace reverie
