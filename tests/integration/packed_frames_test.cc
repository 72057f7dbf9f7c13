// Image frames that pass a writer, which compresses them, a real store and a gather.
#include <thread>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/gather/batch.h"
#include "reverie/replay/chunk_store.h"
#include "reverie/replay/local_service.h"
#include "reverie/tensor/map_memory.h"
#include "tests/scale.h"
#include "tests/support/frames.h"
#include "tests/support/items.h"
#include "tests/support/resident.h"

namespace reverie {
namespace {

constexpr std::size_t kSide = 20;
constexpr std::size_t kFrameBytes = kSide * kSide;
constexpr std::uint32_t kStack = 4;

TableOptions uniform(std::int64_t size) {
  return testing::table_options(
      "replay", "Uniform", "Fifo", size,
      {.samples_per_insert = 1, .min_size_to_sample = 1, .min_diff = -1e12, .max_diff = 1e12});
}

// Writes frames 0, 1, 2, ... and an item over each kStack + 1 of them: a stack and its successor.
class FrameWriter {
 public:
  FrameWriter(std::shared_ptr<ReplayService> service, ChunkOptions chunks)
      : writer_(TrajectoryWriter::open(std::move(service), {.chunks = chunks, .seed = 1}).value()),
        frame_(writer_->column("frame")),
        number_(writer_->column("number")) {}
  ~FrameWriter() { writer_->close(); }

  TrajectoryWriter& operator*() { return *writer_; }

  Status step() {
    const std::vector<std::byte> pixels = testing::frame(written_, kSide);
    const auto number = static_cast<std::int64_t>(written_++);
    const std::array<ColumnValue, 2> values = {
        ColumnValue{frame_, {DType::kUInt8, shape_, pixels}},
        ColumnValue{number_, {DType::kInt64, {}, std::as_bytes(std::span(&number, 1))}}};
    REVERIE_RETURN_IF_ERROR(writer_->append(values, false));
    if (writer_->episode_steps() <= kStack) return {};
    const StepIndex end = writer_->next_step();
    const StepRange stack{end - kStack - 1, kStack};
    const StepRange next_stack{end - kStack, kStack};
    const StepRange last{end - 1, 1};
    const std::array<TrajectoryColumn, 3> columns = {
        TrajectoryColumn{"obs", frame_, {&stack, 1}},
        TrajectoryColumn{"next_obs", frame_, {&next_stack, 1}},
        TrajectoryColumn{"number", number_, {&last, 1}, true}};
    return writer_->create_item({"replay", 1.0, columns, "s"}, TimePoint::max(), {});
  }

 private:
  std::unique_ptr<TrajectoryWriter> writer_;
  ColumnId frame_;
  ColumnId number_;
  Shape shape_{kSide, kSide};
  std::size_t written_ = 0;
};

// Checks that each item has the frames that its number determines.
void expect_frames(const Batch& batch) {
  std::vector<std::int64_t> numbers(batch.columns[2].bytes.size_bytes() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), batch.columns[2].bytes.data(), batch.columns[2].bytes.size_bytes());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto last = static_cast<std::size_t>(numbers[i]);
    for (std::size_t t = 0; t < kStack; ++t) {
      const auto at = static_cast<std::ptrdiff_t>((i * kStack + t) * kFrameBytes);
      const auto same = [&](std::size_t column, std::size_t frame) {
        const auto bytes = batch.columns[column].bytes.bytes();
        return std::ranges::equal(bytes.subspan(static_cast<std::size_t>(at), kFrameBytes),
                                  testing::frame(frame, kSide));
      };
      ASSERT_TRUE(same(0, last - kStack + t)) << "item " << last << " frame " << t;
      ASSERT_TRUE(same(1, last - kStack + 1 + t)) << "item " << last << " next frame " << t;
    }
  }
}

void sample_and_check(ReplayService& service, std::size_t count) {
  SampleRequest request;
  request.table = "replay";
  request.count = count;
  const SampleResult result = sample_and_wait(service, std::move(request));
  ASSERT_TRUE(result.status.ok()) << result.status.to_string();
  const Result<Batch> batch = assemble(result.batch, {});
  ASSERT_TRUE(batch.ok()) << batch.status().to_string();
  expect_frames(*batch);
}

TEST(PackedFrames, AreReadUnchangedFromOpenAndSealedChunks) {
  for (const CodecChoice codec :
       {CodecChoice::kAuto, CodecChoice::kRaw, CodecChoice::kLz4, CodecChoice::kZstd}) {
    for (const std::uint32_t length : {1u, 3u, 40u}) {
      const auto service = LocalService::open({uniform(100)}, {}).value();
      FrameWriter writer(service,
                         {.num_keep_alive_refs = 6, .chunk_length = length, .codec = codec});
      for (int i = 0; i < 300; ++i) {
        ASSERT_TRUE(writer.step().ok());
        if (i % 7 == 6) sample_and_check(*service, 16);
      }
    }
  }
}

TEST(PackedFrames, TakeAFractionOfTheirMemoryOnceTheirChunkIsSealed) {
  const auto held = [](CodecChoice codec) {
    const auto service = LocalService::open({uniform(400)}, {}).value();
    FrameWriter writer(service, {.num_keep_alive_refs = 6, .chunk_length = 40, .codec = codec});
    for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(writer.step().ok());
    EXPECT_TRUE((*writer).end_episode(true, TimePoint::max(), {}).ok());
    // Without the memory that the items take.
    SampleRequest all;
    all.table = "replay";
    all.count = 400;
    all.distinct = true;
    const SampleResult items = sample_and_wait(*service, std::move(all));
    std::int64_t item_bytes = 0;
    for (const TrajectoryView& item : items.batch.trajectories()) {
      item_bytes += ChunkStore::item_bytes(item);
    }
    return static_cast<double>(service->used_bytes() - item_bytes);
  };
  const double raw = held(CodecChoice::kRaw);
  EXPECT_GE(raw, 400.0 * kFrameBytes);
  EXPECT_LE(held(CodecChoice::kAuto), raw * 0.25);
  EXPECT_LE(held(CodecChoice::kZstd), raw * 0.25);
}

// The raw rows of a chunk are freed after it was compressed; the compressed columns take 32 MB.
TEST(PackedFrames, TakeNoMoreResidentMemoryThanCounted) {
  if (testing::kIsSanitized) GTEST_SKIP() << "its notes are resident too";
  for (const CodecChoice codec : {CodecChoice::kLz4, CodecChoice::kZstd}) {
    const double before = testing::resident_mib();
    const auto service = LocalService::open({uniform(100'000)}, {}).value();
    FrameWriter writer(service, {.num_keep_alive_refs = 6, .chunk_length = 40, .codec = codec});
    for (int i = 0; i < 80'000; ++i) ASSERT_TRUE(writer.step().ok());
    const double counted = static_cast<double>(service->used_bytes()) / testing::kMiB;
    EXPECT_LE(testing::resident_mib() - before, 1.2 * counted + 8);
  }
}

TEST(PackedFrames, AreReadableByTheirWriterWhileTheyAreReferable) {
  const auto service = LocalService::open({uniform(10)}, {}).value();
  FrameWriter writer(service, {.num_keep_alive_refs = 50, .chunk_length = 8});
  for (std::size_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(writer.step().ok());
    for (std::size_t back = 0; back < std::min<std::size_t>(i + 1, 50); back += 7) {
      const auto cell = (*writer).cell(0, i - back);
      ASSERT_TRUE(cell.ok()) << cell.status().to_string();
      EXPECT_TRUE(std::ranges::equal(cell->bytes, testing::frame(i - back, kSide)));
    }
  }
}

// Learners gather from chunks while their actor fills, seals and compresses them.
TEST(PackedFrames, AreGatheredWhileTheyAreCompressed) {
  const auto service = LocalService::open({uniform(60)}, {}).value();
  std::atomic<bool> is_over{false};
  std::vector<std::thread> learners;
  for (int t = 0; t < 2; ++t) {
    learners.emplace_back([&] {
      while (!is_over.load()) sample_and_check(*service, 8);
    });
  }
  FrameWriter writer(service, {.num_keep_alive_refs = 6, .chunk_length = 5});
  for (int i = 0; i < scaled(3'000, 30'000); ++i) ASSERT_TRUE(writer.step().ok());
  is_over = true;
  for (std::thread& learner : learners) learner.join();
}

// An insert that waits for room continues when a chunk of another writer becomes smaller.
TEST(PackedFrames, MakeRoomForWaitingInserts) {
  const std::int64_t chunk_bytes = 40 * (kFrameBytes + 8);
  StoreOptions options;
  options.max_bytes = chunk_bytes + 8'000;
  const auto service = LocalService::open({uniform(100'000)}, options).value();
  FrameWriter writer(service, {.num_keep_alive_refs = 6, .chunk_length = 40});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(writer.step().ok());
  bool is_in = false;
  Item item = testing::make_item(1, 1.0, 0, 2'000);  // 8 kB
  service->insert({"replay", {&item, 1}, TimePoint::max()},
                  [&](InsertResult r) { is_in = r.status.ok(); });
  for (int i = 10; i < 39; ++i) {
    // Appends without an item: only the sealing of the chunk changes the store.
    EXPECT_FALSE(is_in);
    const std::vector<std::byte> pixels = testing::frame(static_cast<std::size_t>(i), kSide);
    const Shape shape{kSide, kSide};
    const ColumnValue value{0, {DType::kUInt8, shape, pixels}};
    ASSERT_TRUE((*writer).append({&value, 1}, false).ok());
  }
  const ColumnValue last{1, {DType::kInt64, {}, std::as_bytes(std::span(&chunk_bytes, 1))}};
  ASSERT_TRUE((*writer).append({&last, 1}, false).ok());
  EXPECT_TRUE(is_in);
}

}  // namespace
}  // namespace reverie
