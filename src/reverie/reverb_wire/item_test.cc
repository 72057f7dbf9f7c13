#include "reverie/reverb_wire/item.h"

#include <gtest/gtest.h>

#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie::wire {
namespace {

// Two chunks of two columns with 4 rows each; and one whose rows have another type.
class TrajectoryReaderTest : public ::testing::Test {
 protected:
  TrajectoryReaderTest() {
    const auto schema = make_ref<ChunkSchema>(
        std::vector<TensorSpec>{{"", DType::kFloat32, {2}}, {"", DType::kInt64, {}}});
    for (ChunkKey key = 1; key <= 2; ++key) {
      chunks_.push_back(Chunk::open(schema, {key}, 4, 0, Allocator::heap()).value());
      chunks_.back()->publish(4);
    }
    const auto other = make_ref<ChunkSchema>(std::vector<TensorSpec>{{"", DType::kFloat64, {2}}});
    chunks_.push_back(Chunk::open(other, {3}, 4, 0, Allocator::heap()).value());
    chunks_.back()->publish(4);
  }

  Result<Trajectory> read(const std::vector<std::vector<Slice>>& columns, bool squeeze = false) {
    WireItem item;
    item.key = 9;
    for (const auto& slices : columns) {
      WireItem::Column& column = item.columns.emplace_back();
      column.slice_begin = static_cast<std::uint32_t>(item.slices.size());
      item.slices.insert(item.slices.end(), slices.begin(), slices.end());
      column.slice_end = static_cast<std::uint32_t>(item.slices.size());
      column.squeeze = squeeze;
    }
    return reader_.read(item, names_, [this](ChunkKey key) -> const Chunk* {
      return key >= 1 && key <= chunks_.size() ? chunks_[key - 1].get() : nullptr;
    });
  }
  void expect_refusal(const std::vector<std::vector<Slice>>& columns,
                      const std::vector<std::string>& words, bool squeeze = false) {
    expect_refused(read(columns, squeeze).status(), StatusCode::kInvalidArgument, words);
  }

  std::vector<Ref<Chunk>> chunks_;
  ColumnNames names_;
  TrajectoryReader reader_;
};

TEST_F(TrajectoryReaderTest, ColumnsOverTheSameRowsShareTheirPieces) {
  const Trajectory trajectory =
      read({{{1, 2, 2, 0}, {2, 0, 1, 0}}, {{1, 2, 2, 1}, {2, 0, 1, 1}}}).value();
  EXPECT_EQ(trajectory.pieces().size(), 2u);
  const auto columns = trajectory.layout().columns();
  EXPECT_EQ(columns[0].chunk_column, 0);
  EXPECT_EQ(columns[1].chunk_column, 1);
  EXPECT_EQ(trajectory.view().length(columns[1]), 3u);
  EXPECT_EQ(columns[0].spec.name, "0") << "without a signature columns are numbered";
  EXPECT_EQ(trajectory.layout().structure(), R"({"list": ["*", "*"]})");
}

TEST_F(TrajectoryReaderTest, OverlappingStacksShareTheirCommonPieces) {
  const auto rows = [](std::int32_t begin, std::int32_t end, std::int32_t index) {
    std::vector<Slice> slices;  // one per row, over both chunks
    for (std::int32_t r = begin; r < end; ++r) {
      slices.push_back({static_cast<ChunkKey>(1 + r / 4), r % 4, 1, index});
    }
    return slices;
  };
  struct Range {
    std::int32_t begin, end, index;
  };
  for (const std::vector<Range>& ranges : std::vector<std::vector<Range>>{
           {{4, 5, 1}, {1, 5, 0}, {0, 4, 0}, {4, 5, 1}},  // action, next_obs, obs, reward
           {{0, 4, 0}, {1, 5, 0}, {4, 5, 1}},
           {{2, 3, 1}, {0, 4, 0}, {1, 5, 0}}}) {
    std::vector<std::vector<Slice>> columns;
    for (const Range& range : ranges) columns.push_back(rows(range.begin, range.end, range.index));
    const Trajectory trajectory = read(columns).value();
    EXPECT_LE(trajectory.pieces().size(), 6u);
    EXPECT_EQ(trajectory.layout().piece_count(), trajectory.pieces().size());
    for (std::size_t c = 0; c < ranges.size(); ++c) {
      const LayoutColumn& column = trajectory.layout().columns()[c];
      std::int32_t row = ranges[c].begin;
      for (std::size_t p = column.piece_begin; p < column.piece_end; ++p, ++row) {
        const Piece& piece = trajectory.pieces()[p];
        EXPECT_EQ(piece.chunk, chunks_[static_cast<std::size_t>(row / 4)].get());
        EXPECT_EQ(piece.offset, static_cast<std::uint32_t>(row % 4));
      }
      EXPECT_EQ(row, ranges[c].end);
      EXPECT_EQ(column.chunk_column, ranges[c].index);
    }
  }
  EXPECT_EQ(
      read({rows(4, 5, 1), rows(1, 5, 0), rows(0, 4, 0), rows(4, 5, 1)}).value().pieces().size(),
      5u);
}

TEST_F(TrajectoryReaderTest, NamesAndNestingComeFromTheSignature) {
  names_ = ColumnNames::of(
      Signature{{{"obs", DType::kFloat32, {2}}, {"reward", DType::kInt64, {}}}, R"({"dict": []})"});
  const Trajectory trajectory = read({{{1, 0, 1, 0}}, {{1, 0, 1, 1}}}).value();
  EXPECT_EQ(trajectory.layout().columns()[1].spec.name, "reward");
  EXPECT_EQ(trajectory.layout().structure(), R"({"dict": []})");
}

TEST_F(TrajectoryReaderTest, ItemsOfTheSameShapeShareOneLayout) {
  const Trajectory a = read({{{1, 0, 2, 0}}}).value();
  const Trajectory b = read({{{2, 1, 3, 0}}}).value();
  const Trajectory c = read({{{2, 1, 1, 1}}}).value();
  EXPECT_EQ(&a.layout(), &b.layout());
  EXPECT_NE(&a.layout(), &c.layout());
}

TEST_F(TrajectoryReaderTest, RefusesItemsThatReadersCannotRead) {
  expect_refusal({}, {"Item trajectory must not be empty."});
  expect_refusal({{}}, {"Item trajectory must not be empty."});
  expect_refusal({{{1, 0, 1, 0}}, {}}, {"column 1"});
  expect_refusal({{{1, 3, 2, 0}}}, {"2 rows from 3 of chunk 1", "4"});
  expect_refusal({{{1, -1, 2, 0}}}, {"-1"});
  expect_refusal({{{1, 0, 0, 0}}}, {"0 rows"});
  expect_refusal({{{1, 2147483647, 2147483647, 0}}}, {"2147483647"});
  expect_refusal({{{1, 0, 1, 2}}}, {"tensor 2 of chunk 1", "has 2"});
  expect_refusal({{{1, 0, 1, -1}}}, {"tensor -1"});
  expect_refusal({{{1, 0, 1, 0}, {1, 1, 1, 1}}}, {"all slices of a column"});
  expect_refusal({{{1, 0, 1, 0}, {3, 1, 1, 0}}}, {"float32", "float64"});
  expect_refusal({{{1, 0, 2, 0}}}, {"squeezed", "2 rows"}, /*squeeze=*/true);
  EXPECT_TRUE(read({{{1, 0, 1, 0}}}, /*squeeze=*/true).ok());
}

TEST_F(TrajectoryReaderTest, ReportsAMissingChunkInReverbsWords) {
  expect_refused(read({{{77, 0, 1, 0}}}).status(), StatusCode::kInternal,
                 {"Could not find sequence chunk 77."});
}

TEST(WireItem, TooManySlicesAreRefused) {
  std::string slices;
  for (int i = 0; i < 65'536; ++i) put_message(slices, 1, "");
  std::string trajectory;
  put_message(trajectory, 1, slices);
  std::string item;
  put_message(item, 8, trajectory);
  expect_refused(read_item(bytes_of(item)).status(), StatusCode::kInvalidArgument, {"65535"});
}

}  // namespace
}  // namespace reverie::wire
