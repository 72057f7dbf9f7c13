#include "reverie/client/step_buffer.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/no_more_memory.h"
#include "tests/support/refusal.h"
#include "tests/support/resident.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

std::unique_ptr<StepBuffer> make_buffer(ChunkOptions options) {
  return StepBuffer::make(options, Allocator::heap(), 7).value();
}

// The model keeps every cell ever written, by step.
class Model {
 public:
  struct Column {
    ChunkOptions options;
    std::map<StepIndex, std::vector<std::byte>> cells;
  };

  std::map<ColumnId, Column> columns;
  StepIndex step = 0;
  bool is_open = false;
  StepIndex cleared = 0;

  // The first step that a column with these options can refer to.
  StepIndex oldest(const ChunkOptions& options) const {
    std::set<StepIndex> written;  // complete steps in which a column with these options took part
    for (const auto& [id, column] : columns) {
      if (!(column.options == options)) continue;
      for (const auto& [s, bytes] : column.cells) {
        if (s < step) written.insert(s);
      }
    }
    if (written.size() <= options.num_keep_alive_refs) return cleared;
    return std::max(cleared, *std::prev(written.end(), options.num_keep_alive_refs));
  }
};

// A random value of a column, whose type follows from the column's number.
Value random_value(ColumnId id, Random& random) {
  switch (id % 4) {
    case 0: {
      std::vector<float> xs(1 + id);
      for (float& x : xs) x = static_cast<float>(random.uniform());
      return f32s(xs);
    }
    case 1:
      return i64(static_cast<std::int64_t>(random.next()));
    case 2:
      return text(std::string(random.below(40), static_cast<char>('a' + random.below(26))));
    default:
      return value_of<std::uint8_t>(
          DType::kUInt8, {3},
          {static_cast<std::uint8_t>(random.below(256)), 1, static_cast<std::uint8_t>(id)});
  }
}

// Random steps, partial and complete, over several episodes, with several chunk options and columns
// that appear, pause and come back; every cell is checked after each append.
TEST(StepBuffer, AgreesWithAModelThatForgetsNothing) {
  constexpr ColumnId kColumns = 9;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const ChunkOptions plain{
        .num_keep_alive_refs = 5,
        .chunk_length = seed % 3 == 0 ? std::nullopt : std::optional<std::uint32_t>(1 + seed)};
    const ChunkOptions other{.num_keep_alive_refs = 2, .chunk_length = 3};
    const auto buffer = make_buffer(plain);
    Model model;
    for (ColumnId id = 0; id < kColumns; ++id) {
      const std::string name = format("c{}", id);
      ASSERT_EQ(buffer->column(name), id);
      model.columns[id].options = plain;
      if (id % 3 == 2) {
        ASSERT_TRUE(buffer->configure(name, other).ok());
        model.columns[id].options = other;
      }
    }
    for (int i = 0; i < 300; ++i) {
      std::vector<Value> values;
      std::vector<ColumnId> ids;
      for (ColumnId id = 0; id < kColumns; ++id) {
        // Column i appears after 20 * i steps; column 5 is rare.
        const bool comes = static_cast<int>(id) * 20 <= i && random.below(id == 5 ? 20 : 4) == 0;
        if (!comes || model.columns[id].cells.contains(model.step)) continue;
        values.push_back(random_value(id, random));
        ids.push_back(id);
        model.columns[id].cells[model.step] = values.back().bytes;
      }
      std::vector<ColumnValue> views;
      for (std::size_t v = 0; v < values.size(); ++v) views.push_back({ids[v], values[v].view()});
      const bool partial = random.below(3) == 0;
      ASSERT_TRUE(buffer->append(views, partial).ok());
      model.is_open = partial;
      if (!partial) ++model.step;
      if (random.below(40) == 0) {
        const bool clear = random.below(2) == 0;
        buffer->end_episode(clear);
        if (model.is_open) ++model.step;
        model.is_open = false;
        if (clear) model.cleared = model.step;
      }
      ASSERT_EQ(buffer->next_step(), model.step);
      ASSERT_EQ(buffer->step_is_open(), model.is_open);
      for (auto& [id, column] : model.columns) {
        const StepIndex oldest = model.oldest(column.options);
        for (StepIndex s = model.step > 60 ? model.step - 60 : 0; s <= model.step; ++s) {
          const bool is_referable = s >= oldest && column.cells.contains(s);
          ASSERT_EQ(buffer->has_cell(id, s), is_referable)
              << "seed " << seed << " append " << i << " column " << id << " step " << s;
          if (!is_referable) continue;
          ASSERT_EQ(bytes_of(buffer->cell(id, s)->bytes), column.cells[s])
              << "seed " << seed << " append " << i << " column " << id << " step " << s;
        }
      }
    }
  }
}

class StepBufferRefusal : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(append({{obs_, f32s({1, 2})}, {reward_, f32(3)}}).ok()); }
  // After any refusal, the next step can be appended and read.
  void TearDown() override {
    const StepIndex step = buffer_->next_step();
    ASSERT_TRUE(append({{obs_, f32s({8, 9})}, {reward_, f32(7)}}).ok());
    EXPECT_EQ(bytes_of(buffer_->cell(obs_, step)->bytes), f32s({8, 9}).bytes);
    EXPECT_EQ(bytes_of(buffer_->cell(reward_, step)->bytes), f32(7).bytes);
    EXPECT_EQ(buffer_->next_step(), step + 1);
  }
  Status append(const std::vector<std::pair<ColumnId, Value>>& values, bool partial = false) {
    std::vector<ColumnValue> views;
    for (const auto& [id, value] : values) views.push_back({id, value.view()});
    return buffer_->append(views, partial);
  }

  std::unique_ptr<StepBuffer> buffer_ = make_buffer({.num_keep_alive_refs = 2, .chunk_length = 4});
  ColumnId obs_ = buffer_->column("obs");
  ColumnId reward_ = buffer_->column("reward");
};

TEST_F(StepBufferRefusal, AnotherTypeNamesTheColumnAndBothTypes) {
  expect_refused(
      append({{reward_, f32(1)}, {obs_, value_of<double>(DType::kFloat64, {2}, {1, 2})}}),
      StatusCode::kInvalidArgument, {"'obs'", "float32", "float64", "step 1"});
  EXPECT_FALSE(buffer_->has_cell(reward_, 1)) << "a refused step was written in part";
}

TEST_F(StepBufferRefusal, AnotherShapeNamesTheColumnAndBothShapes) {
  expect_refused(append({{obs_, f32s({1, 2, 3})}}), StatusCode::kInvalidArgument,
                 {"'obs'", "(2,)", "(3,)"});
}

TEST_F(StepBufferRefusal, BytesThatDoNotFitTheShape) {
  Value value = f32s({1, 2});
  value.bytes.pop_back();
  expect_refused(append({{obs_, value}}), StatusCode::kInvalidArgument, {"'obs'", "8", "7"});
}

TEST_F(StepBufferRefusal, AColumnTwiceInAStep) {
  expect_refused(append({{obs_, f32s({1, 2})}, {obs_, f32s({1, 2})}}), StatusCode::kInvalidArgument,
                 {"'obs'", "already", "step 1"});
}

TEST_F(StepBufferRefusal, APartialStepThatRepeatsAColumn) {
  ASSERT_TRUE(append({{obs_, f32s({1, 2})}}, true).ok());
  expect_refused(append({{reward_, f32(5)}, {obs_, f32s({3, 4})}}, true),
                 StatusCode::kInvalidArgument, {"'obs'", "already", "step 1"});
  EXPECT_FALSE(buffer_->has_cell(reward_, 1));
  ASSERT_TRUE(append({{reward_, f32(5)}}).ok());
  EXPECT_EQ(bytes_of(buffer_->cell(obs_, 1)->bytes), f32s({1, 2}).bytes);
}

TEST_F(StepBufferRefusal, AColumnThatDoesNotExist) {
  expect_refused(append({{17, f32(1)}}), StatusCode::kInvalidArgument, {"17", "2 columns"});
}

TEST_F(StepBufferRefusal, AFirstValueWithAnInvalidTypeOrShape) {
  const ColumnId fresh = buffer_->column("fresh");
  Value value = f32(1);
  value.dtype = static_cast<DType>(200);
  expect_refused(append({{fresh, value}}), StatusCode::kInvalidArgument, {"'fresh'", "dtype"});
  value = f32(1);
  value.shape = {-1};
  expect_refused(append({{fresh, value}}), StatusCode::kInvalidArgument, {"'fresh'", "(?,)"});
  value.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  expect_refused(append({{fresh, value}}), StatusCode::kInvalidArgument, {"'fresh'"});
  EXPECT_EQ(buffer_->column_spec(fresh), nullptr) << "a refused value gave the column its type";
}

TEST_F(StepBufferRefusal, ARefusedStepLeavesNewColumnsWithoutAType) {
  const ColumnId fresh = buffer_->column("fresh");
  EXPECT_FALSE(append({{fresh, i64(1)}, {obs_, f32(1)}}).ok());
  EXPECT_EQ(buffer_->column_spec(fresh), nullptr);
  EXPECT_TRUE(append({{fresh, f32(1)}}).ok());
}

TEST_F(StepBufferRefusal, StringsThatDoNotMatchTheirLengths) {
  const ColumnId fresh = buffer_->column("fresh");
  Value value = strings({2}, {"one", "two"});
  value.bytes.pop_back();
  expect_refused(append({{fresh, value}}), StatusCode::kInvalidArgument, {"'fresh'", "2 elements"});
  EXPECT_TRUE(append({{fresh, strings({2}, {"", "a long one after an empty one"})}}).ok());
}

TEST_F(StepBufferRefusal, ZeroBounds) {
  expect_refused(buffer_->configure("obs", {.num_keep_alive_refs = 0}),
                 StatusCode::kInvalidArgument, {"num_keep_alive_refs", "'obs'", "at least 1"});
  expect_refused(buffer_->configure("new", {.num_keep_alive_refs = 1, .chunk_length = 0}),
                 StatusCode::kInvalidArgument, {"chunk_length", "'new'", "at least 1"});
  EXPECT_FALSE(StepBuffer::make({.num_keep_alive_refs = 0}, Allocator::heap(), 1).ok());
  EXPECT_FALSE(StepBuffer::make({.chunk_length = 0}, Allocator::heap(), 1).ok());
}

TEST_F(StepBufferRefusal, ConfiguringAColumnWithUnflushedSteps) {
  expect_refused(buffer_->configure("obs", {.num_keep_alive_refs = 9}),
                 StatusCode::kFailedPrecondition, {"'obs'", "flush"});
  buffer_->note_flush();
  EXPECT_TRUE(buffer_->configure("obs", {.num_keep_alive_refs = 9}).ok());
}

TEST_F(StepBufferRefusal, MissingCellsSayWhy) {
  ASSERT_TRUE(append({{obs_, f32s({1, 2})}}).ok());
  ASSERT_TRUE(append({{obs_, f32s({1, 2})}}).ok());
  const ColumnId fresh = buffer_->column("fresh");
  const auto why = [&](ColumnId column, StepIndex step) {
    return buffer_->cell(column, step).status();
  };
  expect_refused(why(obs_, 0), StatusCode::kFailedPrecondition,
                 {"step 0", "'obs'", "expired", "2", "num_keep_alive_refs"});
  expect_refused(why(reward_, 1), StatusCode::kFailedPrecondition, {"'reward'", "no value"});
  expect_refused(why(obs_, 3), StatusCode::kFailedPrecondition, {"'obs'", "step 3", "3 steps"});
  expect_refused(why(fresh, 0), StatusCode::kFailedPrecondition, {"'fresh'", "no values yet"});
}

TEST(StepBuffer, ConfiguringAColumnExpiresOnlyItsOwnCells) {
  const auto buffer = make_buffer({.num_keep_alive_refs = 4, .chunk_length = 8});
  const ColumnId a = buffer->column("a");
  const ColumnId b = buffer->column("b");
  const auto append = [&](float x) {
    const Value va = f32(x);
    const Value vb = f32s({x, x + 1});
    return buffer->append(std::vector<ColumnValue>{{a, va.view()}, {b, vb.view()}}, false);
  };
  ASSERT_TRUE(append(1).ok());
  buffer->note_flush();
  ASSERT_TRUE(buffer->configure("a", {.num_keep_alive_refs = 1, .chunk_length = 2}).ok());
  EXPECT_FALSE(buffer->has_cell(a, 0)) << "its cells expire";
  EXPECT_TRUE(buffer->has_cell(b, 0));
  ASSERT_TRUE(append(2).ok());
  ASSERT_TRUE(append(3).ok());
  EXPECT_NE(buffer->group_of(a), buffer->group_of(b));
  EXPECT_FALSE(buffer->has_cell(a, 1));
  EXPECT_EQ(bytes_of(buffer->cell(a, 2)->bytes), f32(3).bytes);
  EXPECT_EQ(bytes_of(buffer->cell(b, 0)->bytes), f32s({1, 2}).bytes);
  EXPECT_EQ(bytes_of(buffer->cell(b, 2)->bytes), f32s({3, 4}).bytes);
}

// An item's column has two neighbouring rows of b, and b's neighbour in the chunks changes between
// them: b's index in the chunks must stay the same.
TEST(StepBuffer, AColumnKeepsItsIndexInEveryChunk) {
  const auto buffer = make_buffer({.num_keep_alive_refs = 4, .chunk_length = 8});
  const ColumnId a = buffer->column("a");
  const ColumnId b = buffer->column("b");
  const ColumnId c = buffer->column("c");
  const Value x = f32(1);
  ASSERT_TRUE(buffer->append(std::vector<ColumnValue>{{a, x.view()}, {b, x.view()}}, false).ok());
  const std::uint16_t index = buffer->chunk_column(b);
  buffer->note_flush();
  ASSERT_TRUE(buffer->configure("a", {.num_keep_alive_refs = 1}).ok());
  ASSERT_TRUE(buffer->append(std::vector<ColumnValue>{{c, x.view()}, {b, x.view()}}, false).ok());
  EXPECT_EQ(buffer->chunk_column(b), index);
  std::vector<ColumnGroup::Rows> rows;
  std::vector<Piece> pieces;
  const StepRange both{0, 2};
  ASSERT_TRUE(buffer->find_rows(b, {&both, 1}, rows, pieces).ok());
  ASSERT_EQ(pieces.size(), 2u);
  for (const Piece& piece : pieces) {
    EXPECT_EQ(bytes_of(piece.chunk->row_bytes(index, piece.offset)), x.bytes);
  }
}

// Cells that a writer leaves unset may be encoded with their chunk, so they must not hold what was
// in memory before.
TEST(StepBuffer, UnsetCellsAreZero) {
  class DirtyAllocator final : public Allocator {
   public:
    Result<Buffer> allocate(std::size_t size_bytes) override {
      REVERIE_ASSIGN_OR_RETURN(Buffer buffer, Allocator::heap().allocate(size_bytes));
      std::memset(buffer.data(), 0xab, size_bytes);
      return buffer;
    }
  };
  DirtyAllocator dirty;
  const auto buffer =
      StepBuffer::make({.num_keep_alive_refs = 9, .chunk_length = 9}, dirty, 1).value();
  const ColumnId a = buffer->column("a");
  const ColumnId b = buffer->column("b");
  const ColumnId c = buffer->column("c");
  const Value x = f32(1);
  const Value big = f32s(std::vector<float>(100, 2.0f));
  const Value word = text("word");
  ASSERT_TRUE(
      buffer
          ->append(std::vector<ColumnValue>{{a, x.view()}, {b, big.view()}, {c, word.view()}},
                   false)
          .ok());
  ASSERT_TRUE(buffer->append(std::vector<ColumnValue>{{a, x.view()}}, false).ok());
  std::vector<ColumnGroup::Rows> rows;
  std::vector<Piece> pieces;
  const StepRange second{1, 1};
  ASSERT_TRUE(buffer->find_rows(a, {&second, 1}, rows, pieces).ok());
  const Chunk& chunk = *pieces.front().chunk;
  EXPECT_EQ(bytes_of(chunk.row_bytes(buffer->chunk_column(b), pieces.front().offset)),
            std::vector<std::byte>(400));
  EXPECT_TRUE(chunk.row_bytes(buffer->chunk_column(c), pieces.front().offset).empty());
}

TEST(StepBuffer, AStepWithoutMemoryForItsChunkChangesNothing) {
  class ShortAllocator final : public Allocator {
   public:
    Result<Buffer> allocate(std::size_t size_bytes) override {
      if (is_short) return resource_exhausted("no memory");
      return Allocator::heap().allocate(size_bytes);
    }
    bool is_short = false;
  };
  ShortAllocator allocator;
  const auto buffer =
      StepBuffer::make({.num_keep_alive_refs = 9, .chunk_length = 1}, allocator, 1).value();
  const ColumnId a = buffer->column("a");
  const ColumnId b = buffer->column("b");
  const Value x = f32(1);
  const Value y = i64(2);
  ASSERT_TRUE(buffer->append(std::vector<ColumnValue>{{a, x.view()}}, true).ok());
  allocator.is_short = true;
  EXPECT_EQ(buffer->append(std::vector<ColumnValue>{{b, y.view()}}, false).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(buffer->column_spec(b), nullptr);
  EXPECT_TRUE(buffer->step_is_open());
  allocator.is_short = false;
  ASSERT_TRUE(buffer->append(std::vector<ColumnValue>{{b, x.view()}}, false).ok());
  EXPECT_EQ(bytes_of(buffer->cell(a, 0)->bytes), x.bytes);
  EXPECT_EQ(bytes_of(buffer->cell(b, 0)->bytes), x.bytes);
}

TEST(StepBuffer, AFullChunkWithoutMemoryToCompressItStaysRawAndTheNextStepIsTaken) {
  if (!testing::kResidentIsOurs) GTEST_SKIP() << "a sanitizer maps memory of its own";
  constexpr std::int64_t kRowBytes = 48 << 20;  // two rows have to be mapped
  const auto buffer = make_buffer({.num_keep_alive_refs = 3, .chunk_length = 2});
  const ColumnId a = buffer->column("a");
  const Value x{DType::kUInt8, {kRowBytes}, std::vector<std::byte>(kRowBytes, std::byte{7})};
  const std::vector<ColumnValue> step{{a, x.view()}};
  ASSERT_TRUE(buffer->append(step, false).ok());
  Status filled;
  {
    const testing::NoMoreMemory none;
    filled = buffer->append(step, false);
  }
  EXPECT_TRUE(filled.ok()) << filled.to_string();
  EXPECT_EQ(buffer->next_step(), 2u);
  EXPECT_FALSE(buffer->step_is_open());
  const Status next = buffer->append(step, false);
  EXPECT_TRUE(next.ok()) << next.to_string();
  std::vector<ColumnGroup::Rows> rows;
  std::vector<Piece> pieces;
  const StepRange all{0, 3};
  ASSERT_TRUE(buffer->find_rows(a, {&all, 1}, rows, pieces).ok());
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_TRUE(pieces.front().chunk->is_raw());
}

TEST(StepBuffer, EpisodesDoNotShareChunks) {
  const auto buffer = make_buffer({.num_keep_alive_refs = 9, .chunk_length = 4});
  const ColumnId a = buffer->column("a");
  const Value x = f32(1);
  const auto append = [&] {
    return buffer->append(std::vector<ColumnValue>{{a, x.view()}}, false);
  };
  ASSERT_TRUE(append().ok());
  ASSERT_TRUE(append().ok());
  buffer->end_episode(/*clear_buffers=*/false);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(append().ok());
  std::vector<ColumnGroup::Rows> rows;
  std::vector<Piece> pieces;
  const StepRange all{0, 7};
  ASSERT_TRUE(buffer->find_rows(a, {&all, 1}, rows, pieces).ok());
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].chunk->rows(), 2u);
  EXPECT_NE(pieces[0].chunk->episode(), pieces[1].chunk->episode());
  EXPECT_EQ(pieces[1].chunk->episode(), pieces[2].chunk->episode());
  EXPECT_EQ(pieces[1].chunk->first_step(), 0u);
  EXPECT_EQ(pieces[2].chunk->first_step(), 4u);
  EXPECT_NE(pieces[1].chunk->key(), pieces[2].chunk->key());
}

TEST(StepBuffer, AStepWithoutAnyColumnStillCounts) {
  const auto buffer = make_buffer({.num_keep_alive_refs = 3});
  const ColumnId a = buffer->column("a");
  const Value x = f32(1);
  ASSERT_TRUE(buffer->append({}, false).ok());
  ASSERT_TRUE(buffer->append(std::vector<ColumnValue>{{a, x.view()}}, true).ok());
  ASSERT_TRUE(buffer->append({}, false).ok());
  EXPECT_EQ(buffer->next_step(), 2u);
  EXPECT_FALSE(buffer->step_is_open());
  EXPECT_FALSE(buffer->has_cell(a, 0));
  EXPECT_TRUE(buffer->has_cell(a, 1));
}

}  // namespace
}  // namespace reverie
