// Items whose rows a disk cannot give back (spill/spill.h): only they are lost, for every
// reader.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/lost_bytes.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/checkpoint/journal_records.h"
#include "reverie/gather/corrupt_items.h"
#include "reverie/record/compact.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"
#include "reverie/tensor/chunk_memory.h"
#include "tests/support/items.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

constexpr ItemKey kItems = 10;
constexpr ItemKey kLost = 4;

// Memory that loses what it is told to.
class LossyMemory final : public ChunkMemory {
 public:
  void lose(const Chunk& chunk) {
    lost_ = chunk.row(0, 0);
    LostBytes::announce();
  }

  Result<Buffer> allocate(std::size_t size_bytes) override {
    if (used_ + size_bytes > memory_.size()) return resource_exhausted("too much for a test");
    used_ += size_bytes;
    return Buffer(memory_.data() + used_ - size_bytes, size_bytes, nullptr);
  }
  void prefetch(std::span<const Range>) override {}
  std::optional<std::int64_t> memory_bytes() const override { return std::nullopt; }
  Status set_bound(Group, std::int64_t) override { return {}; }
  void assign(std::span<const Range>, Group) override {}
  void shrink() override {}

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(4'096);
  std::size_t used_ = 0;
  const std::byte* lost_ = nullptr;
  const LostBytes lost_bytes_{memory_, [this](std::span<const std::byte> part) {
                                return part.data() <= lost_ && lost_ < part.data() + part.size();
                              }};
};

class UnreadableItems : public ::testing::Test {
 protected:
  UnreadableItems() {
    for (ItemKey key = 0; key < kItems; ++key) {
      chunks_.push_back(
          Chunk::open(testing::float_schema(), {100 + key, 1, 0}, 1, 0, *memory_).value());
      const auto value = static_cast<float>(key);
      chunks_.back()->set_row(0, 0, std::as_bytes(std::span(&value, 1)));
      chunks_.back()->publish(1);
      Item item = testing::item_over(*chunks_.back(), key, 1.0, 0, 1);
      EXPECT_TRUE(insert_and_wait(*service_, {"t", {&item, 1}}).status.ok());
    }
  }
  SampleRequest all(std::size_t count) const {
    SampleRequest request;
    request.table = "t";
    request.count = count;
    request.distinct = true;
    request.deadline = TimePoint{0};
    return request;
  }
  TableInfo info() const { return info_and_wait(*service_).value()[0]; }

  const std::shared_ptr<LossyMemory> memory_ = std::make_shared<LossyMemory>();
  const std::shared_ptr<LocalService> service_ =
      LocalService::open(
          {testing::table_options("t", "Uniform", "Fifo", 100, RateLimiter::min_size(1))},
          {.max_bytes = std::nullopt, .memory = memory_})
          .value();
  std::vector<Ref<Chunk>> chunks_;
};

TEST_F(UnreadableItems, LeaveTheirTableWhenTheyAreDrawn) {
  memory_->lose(*chunks_[kLost]);
  SampleResult drawn = sample_and_wait(*service_, all(kItems));
  EXPECT_EQ(drawn.status.code(), StatusCode::kDataLoss);
  for (const char* const words :
       {"1 of 10 items that were drawn from table 't'", "spill_folder", "chunk 104"}) {
    EXPECT_NE(drawn.status.message().find(words), std::string::npos) << drawn.status.message();
  }
  ASSERT_EQ(drawn.batch.size(), kItems - 1) << "the others are there";
  for (std::size_t i = 0; i < drawn.batch.size(); ++i) {
    EXPECT_NE(drawn.batch.keys()[i], kLost);
    EXPECT_EQ(testing::value_of(drawn.batch.trajectories()[i]),
              static_cast<double>(drawn.batch.keys()[i]));
  }
  EXPECT_EQ(info().current_size, static_cast<std::int64_t>(kItems - 1));
  EXPECT_EQ(info().corrupt_items, 1);
  drawn = sample_and_wait(*service_, all(kItems - 1));
  EXPECT_TRUE(drawn.status.ok()) << drawn.status.to_string();
}

// The disk may also fail later, while the batch is read.
TEST_F(UnreadableItems, AreTakenOutOfABatchThatWasDrawnBefore) {
  SampleResult drawn = sample_and_wait(*service_, all(kItems));
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.to_string();
  memory_->lose(*chunks_[kLost]);
  Batch batch;
  EXPECT_EQ(assemble_into(drawn.batch, {}, batch).code(), StatusCode::kDataLoss);
  SampleRequest like = all(kItems);
  like.min_count = 1;
  const Status status =
      assemble_decodable(*service_, like, OnCorrupt::kRemove, {}, {}, drawn, batch);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(info().current_size, static_cast<std::int64_t>(kItems - 1));
}

TEST_F(UnreadableItems, AreNotRecordedInAJournalAsZeros) {
  const std::vector<std::byte> records(4);
  std::vector<checkpoint::LateRows> late(1);
  late[0].at = 2;
  late[0].bytes.parts = {{chunks_[kLost]->row(0, 0), sizeof(float)}};
  std::vector<std::byte> out;
  EXPECT_TRUE(checkpoint::join(records, late, out));
  EXPECT_EQ(out.size(), records.size() + sizeof(float));
  memory_->lose(*chunks_[kLost]);
  EXPECT_FALSE(checkpoint::join(records, late, out));
}

// Those that are copied at once, since they are few bytes.
TEST_F(UnreadableItems, OfASmallChunkAreNotRecordedInAJournalAsZeros) {
  memory_->lose(*chunks_[kLost]);
  for (const ItemKey key : {ItemKey{0}, kLost}) {
    SCOPED_TRACE(key);
    checkpoint::RecordWriter writer(
        {testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))}, 0);
    writer.prepare(testing::item_over(*chunks_[key], key, 1.0, 0, 1));
    EXPECT_TRUE(writer.late.empty());
    EXPECT_EQ(writer.join(), key != kLost);
  }
}

TEST_F(UnreadableItems, AreNeitherCheckpointedNorCompressedAsZeros) {
  memory_->lose(*chunks_[kLost]);
  sim::FileSystem files(1);
  const auto checkpointer = checkpoint::Checkpointer::open("/replay", {.files = &files}).value();
  const Status status = checkpointer->write(*service_, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
  const ColumnTry lz4{.codec = CodecId::kLz4};
  EXPECT_EQ(encode_columns(*chunks_[kLost], {&lz4, 1}, Allocator::heap()).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(sample_and_wait(*service_, all(kItems)).status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(checkpointer->write(*service_, {}).ok());
}

}  // namespace
}  // namespace reverie
