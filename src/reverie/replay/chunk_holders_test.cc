#include "reverie/replay/chunk_holders.h"

#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "reverie/record/compact.h"
#include "reverie/replay/local_service.h"
#include "reverie/service/blocking.h"
#include "tests/support/frames.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

using testing::float_chunk;
using testing::item_over;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Records the groups that it is told, and moves nothing.
class NotedMemory final : public ChunkMemory {
 public:
  explicit NotedMemory(std::optional<std::int64_t> of_store = std::nullopt) : of_store_(of_store) {}

  Result<Buffer> allocate(std::size_t size_bytes) override {
    return Allocator::heap().allocate(size_bytes);
  }
  void prefetch(std::span<const Range>) override {}
  std::optional<std::int64_t> memory_bytes() const override { return of_store_; }
  Status set_bound(Group group, std::int64_t bytes) override {
    bounds[group] = bytes;
    return {};
  }
  void assign(std::span<const Range> ranges, Group group) override {
    for (const Range range : ranges) groups[range.data()] = group;
  }
  void shrink() override { ++shrinks; }

  std::map<Group, std::int64_t> bounds;
  std::map<const std::byte*, Group> groups;  // by the address of a chunk's bytes
  int shrinks = 0;

 private:
  const std::optional<std::int64_t> of_store_;
};

TableOptions table(std::string name, std::optional<std::int64_t> memory_bytes) {
  TableOptions options =
      testing::table_options(std::move(name), "Fifo", "Fifo", 3, RateLimiter::min_size(1));
  options.memory_bytes = memory_bytes;
  return options;
}

// Two tables with a bound, and one without a bound.
std::vector<TableOptions> tables() {
  return {table("small", 20 * kMiB), table("large", 50 * kMiB), table("free", std::nullopt)};
}

class ChunkHoldersTest : public ::testing::Test {
 protected:
  // The bound that applies to a chunk; 0 if there is none.
  std::int64_t bound_of(const Chunk& chunk) const {
    std::vector<ChunkMemory::Range> places;
    chunk.add_storage(places);
    const auto found = memory_->groups.find(places.front().data());
    if (found == memory_->groups.end()) return -1;
    const auto bound = memory_->bounds.find(found->second);
    return bound == memory_->bounds.end() ? 0 : bound->second / kMiB;
  }
  void insert(const std::string& name, const Chunk& chunk, ItemKey key) {
    Item item = item_over(chunk, key, 1.0, 0, 1);
    ASSERT_TRUE(insert_and_wait(*service_, {name, {&item, 1}, TimePoint::max()}).status.ok());
  }
  void erase(const std::string& name, ItemKey key) {
    MutateRequest request;
    request.table = name;
    request.deletes = {&key, 1};
    mutate_and_wait(*service_, request);
  }

  const std::shared_ptr<NotedMemory> memory_ = std::make_shared<NotedMemory>();
  const std::shared_ptr<LocalService> service_ =
      LocalService::open(tables(), {.max_bytes = std::nullopt, .memory = memory_}).value();
};

TEST_F(ChunkHoldersTest, AChunkIsChargedToTheTableWithTheLargestBound) {
  const Ref<Chunk> chunk = float_chunk(0, 4);
  EXPECT_EQ(bound_of(*chunk), -1);
  insert("small", *chunk, 1);
  EXPECT_EQ(bound_of(*chunk), 20);
  insert("large", *chunk, 2);
  EXPECT_EQ(bound_of(*chunk), 50);
  insert("small", *chunk, 3);
  EXPECT_EQ(bound_of(*chunk), 50);
  insert("free", *chunk, 4);
  insert("large", *chunk, 5);
  EXPECT_EQ(bound_of(*chunk), 0) << "a table without a bound keeps it";
  erase("free", 4);
  EXPECT_EQ(bound_of(*chunk), 50);
  erase("large", 2);
  EXPECT_EQ(bound_of(*chunk), 50) << "another item of the table has it";
  erase("large", 5);
  EXPECT_EQ(bound_of(*chunk), 20);
  EXPECT_GT(memory_->shrinks, 0);
}

TEST_F(ChunkHoldersTest, EvictionAndResetReleaseTheChunksOfATable) {
  const Ref<Chunk> chunk = float_chunk(0, 4);
  insert("small", *chunk, 1);
  insert("large", *chunk, 1);
  const Ref<Chunk> other = float_chunk(9, 4);
  for (ItemKey key = 2; key < 5; ++key) insert("large", *other, key);  // its max_size is three
  EXPECT_EQ(bound_of(*chunk), 20);
  insert("free", *chunk, 1);
  EXPECT_EQ(bound_of(*chunk), 0);
  ASSERT_TRUE(reset_and_wait(*service_, "free").ok());
  EXPECT_EQ(bound_of(*chunk), 20);
}

TEST_F(ChunkHoldersTest, ACompressedChunkIsChargedWhereItsColumnsAre) {
  const auto schema =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"frame", DType::kUInt8, {20, 20}}});
  const Ref<Chunk> chunk =
      Chunk::open(schema, {}, 10, 0, *memory_, Chunk::Kind::kCompressible).value();
  for (std::uint32_t r = 0; r < 10; ++r) chunk->set_row(0, r, testing::frame(r, 20));
  chunk->publish(10);
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{schema->column(0), 0, 0, 1, false}}, std::string("x"));
  const Piece piece{chunk.get(), 0, 10};
  Item item{1, 1.0, Trajectory(layout, {&piece, 1})};
  ASSERT_TRUE(insert_and_wait(*service_, {"small", {&item, 1}, TimePoint::max()}).status.ok());
  EXPECT_EQ(bound_of(*chunk), 20);
  const ColumnTry lz4{.codec = CodecId::kLz4};
  chunk->replace_rows(encode_columns(*chunk, {&lz4, 1}, *memory_).value());
  EXPECT_FALSE(chunk->is_raw());
  EXPECT_EQ(bound_of(*chunk), 20);
}

TEST(ChunkHolders, ABoundThatCannotBeKeptIsRefusedNamingItsTable) {
  const auto refused = [](std::shared_ptr<ChunkMemory> memory) {
    return LocalService::open(tables(), {.max_bytes = std::nullopt, .memory = std::move(memory)})
        .status();
  };
  const Status nowhere = refused(nullptr);
  EXPECT_EQ(nowhere.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(nowhere.message().find("table 'large' has memory_bytes"), std::string::npos)
      << nowhere.message();
  const Status too_much = refused(std::make_shared<NotedMemory>(30 * kMiB));
  EXPECT_EQ(too_much.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(too_much.message().find("'large' is 52428800, more than the 31457280"),
            std::string::npos)
      << too_much.message();
  EXPECT_TRUE(refused(std::make_shared<NotedMemory>(50 * kMiB)).ok());
}

}  // namespace
}  // namespace reverie
