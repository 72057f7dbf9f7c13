#include "reverie/record/trajectory.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

const TensorSpec kX{"x", DType::kFloat32, {2}};
const TensorSpec kN{"n", DType::kInt64, {}};

// A chunk with the columns x and n.
Ref<Chunk> make_chunk(std::uint32_t rows = 4) {
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{kX, kN});
  Ref<Chunk> chunk = Chunk::open(schema, {}, rows, 0, Allocator::heap()).value();
  for (std::uint32_t r = 0; r < rows; ++r) {
    const auto x = static_cast<float>(r);
    chunk->set_row(0, r, f32s({x, x}).bytes);
    chunk->set_row(1, r, i64(r).bytes);
  }
  chunk->publish(rows);
  return chunk;
}

Ref<const Layout> one_piece_layout() {
  return make_ref<Layout>(std::vector<LayoutColumn>{{kX, 0, 0, 1, false}, {kN, 1, 0, 1, false}},
                          std::string("nest"));
}

TEST(Trajectory, HoldsOneReferenceToItsChunkAndItsLayout) {
  const Ref<Chunk> chunk = make_chunk();
  const Ref<const Layout> layout = one_piece_layout();
  const Piece piece{chunk.get(), 1, 2};
  {
    const Trajectory trajectory(layout, {&piece, 1});
    EXPECT_EQ(chunk->ref_count(), 2u);
    EXPECT_EQ(layout->ref_count(), 2u);
    EXPECT_FALSE(trajectory.empty());
    EXPECT_EQ(trajectory.view().length(layout->columns()[0]), 2u);
    const Trajectory second = trajectory.copy();
    EXPECT_EQ(chunk->ref_count(), 3u);
    EXPECT_EQ(second.pieces()[0].chunk, chunk.get());
  }
  EXPECT_EQ(chunk->ref_count(), 1u);
  EXPECT_EQ(layout->ref_count(), 1u);
}

TEST(Trajectory, KeepsItsRowsWhenAllOthersHaveReleasedThem) {
  Ref<Chunk> chunk = make_chunk();
  Ref<const Layout> layout = one_piece_layout();
  const Piece piece{chunk.get(), 3, 1};
  const Trajectory trajectory(layout, {&piece, 1});
  chunk = {};
  layout = {};
  const Piece& kept = trajectory.pieces()[0];
  EXPECT_EQ(bytes_of(kept.chunk->row_bytes(1, kept.offset)), i64(3).bytes);
}

TEST(Trajectory, CountsEachOfItsPieces) {
  const Ref<Chunk> a = make_chunk();
  const Ref<Chunk> b = make_chunk();
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{kX, 0, 0, 3, false}, {kN, 1, 3, 4, true}}, std::string());
  EXPECT_EQ(layout->piece_count(), 4u);
  const std::vector<Piece> pieces = {
      {a.get(), 0, 2}, {b.get(), 0, 1}, {a.get(), 3, 1}, {b.get(), 2, 1}};
  {
    Trajectory trajectory(layout, pieces);
    EXPECT_EQ(a->ref_count(), 3u);
    EXPECT_EQ(b->ref_count(), 3u);
    EXPECT_EQ(trajectory.view().length(layout->columns()[0]), 4u);
    const Trajectory copy = trajectory.copy();
    EXPECT_EQ(a->ref_count(), 5u);
    Trajectory moved = std::move(trajectory);
    EXPECT_EQ(a->ref_count(), 5u);
    EXPECT_EQ(moved.pieces().size(), 4u);
    EXPECT_EQ(moved.pieces()[3].offset, 2u);
  }
  EXPECT_EQ(a->ref_count(), 1u);
  EXPECT_EQ(b->ref_count(), 1u);
}

TEST(Trajectory, IsEmptyWhenMovedFromAndCanBeAssignedAgain) {
  const Ref<Chunk> chunk = make_chunk();
  const Piece piece{chunk.get(), 0, 1};
  Trajectory a(one_piece_layout(), {&piece, 1});
  Trajectory b = std::move(a);
  EXPECT_TRUE(a.empty());
  EXPECT_TRUE(a.copy().empty());
  EXPECT_EQ(chunk->ref_count(), 2u);
  a = Trajectory(one_piece_layout(), {&piece, 1});
  EXPECT_EQ(chunk->ref_count(), 3u);
  a = std::move(b);
  b = {};
  EXPECT_EQ(chunk->ref_count(), 2u);
  EXPECT_FALSE(a.empty());
}

TEST(TrajectoryDeathTest, PiecesThatDoNotMatchTheLayoutAbort) {
  const Ref<Chunk> chunk = make_chunk();
  const std::vector<Piece> pieces(2, {chunk.get(), 0, 1});
  EXPECT_DEATH(Trajectory(one_piece_layout(), pieces), "invariant broken");
  EXPECT_DEATH(Trajectory(one_piece_layout(), {}), "invariant broken");
  EXPECT_DEATH(Trajectory(make_ref<Layout>(std::vector<LayoutColumn>(), std::string()), {}),
               "invariant broken");
}

Status check(std::vector<LayoutColumn> columns, const std::vector<Piece>& pieces) {
  const Trajectory trajectory(make_ref<Layout>(std::move(columns), std::string()), pieces);
  return check_trajectory(trajectory.view());
}

TEST(CheckTrajectory, RefusesRowsOutsideTheirChunk) {
  const Ref<Chunk> chunk = make_chunk(4);
  const auto over = [&](std::uint32_t offset, std::uint32_t length) {
    return check({{kX, 0, 0, 1, false}}, {{chunk.get(), offset, length}});
  };
  EXPECT_TRUE(over(0, 4).ok());
  EXPECT_TRUE(over(3, 1).ok());
  expect_refused(over(3, 2), StatusCode::kInvalidArgument, {"'x'", "3..5", "4 rows"});
  expect_refused(over(0, 0), StatusCode::kInvalidArgument, {"'x'", "non-empty"});
  expect_refused(over(~0u, ~0u), StatusCode::kInvalidArgument, {"'x'", "4 rows"});
}

TEST(CheckTrajectory, RefusesColumnsThatTheChunkDoesNotHave) {
  const Ref<Chunk> chunk = make_chunk();
  const std::vector<Piece> piece = {{chunk.get(), 0, 1}};
  expect_refused(check({{kX, 2, 0, 1, false}}, piece), StatusCode::kInvalidArgument,
                 {"'x'", "column 2", "2 columns"});
  expect_refused(check({{kX, 1, 0, 1, false}}, piece), StatusCode::kInvalidArgument,
                 {"'x'", "float32 (2,)", "int64 ()"});
  expect_refused(check({{{"x", DType::kFloat32, {3}}, 0, 0, 1, false}}, piece),
                 StatusCode::kInvalidArgument, {"'x'", "(3,)", "(2,)"});
  expect_refused(check({{kX, 0, 1, 1, false}, {kN, 1, 0, 1, false}}, piece),
                 StatusCode::kInvalidArgument, {"'x'", "no rows"});
}

TEST(CheckTrajectory, RefusesToSqueezeSeveralRows) {
  const Ref<Chunk> chunk = make_chunk();
  EXPECT_TRUE(check({{kN, 1, 0, 1, true}}, {{chunk.get(), 0, 1}}).ok());
  expect_refused(check({{kN, 1, 0, 1, true}}, {{chunk.get(), 0, 2}}), StatusCode::kInvalidArgument,
                 {"'n'", "squeezed", "2 rows"});
}

class CheckSignature : public ::testing::Test {
 protected:
  // Checks a trajectory with three rows of x and one squeezed row of n.
  Status check(const std::vector<TensorSpec>& columns) {
    return check_signature(trajectory_.view(), {columns, ""});
  }
  Ref<Chunk> chunk_ = make_chunk();
  std::vector<Piece> pieces_ = {{chunk_.get(), 0, 3}, {chunk_.get(), 3, 1}};
  Trajectory trajectory_{
      make_ref<Layout>(std::vector<LayoutColumn>{{kX, 0, 0, 1, false}, {kN, 1, 1, 2, true}},
                       std::string()),
      pieces_};
};

TEST_F(CheckSignature, AcceptsEqualShapesAndWildcardsOfTheSignature) {
  EXPECT_TRUE(check({{"x", DType::kFloat32, {3, 2}}, {"n", DType::kInt64, {}}}).ok());
  EXPECT_TRUE(check({{"x", DType::kFloat32, {-1, 2}}, {"n", DType::kInt64, {}}}).ok());
  EXPECT_TRUE(check({{"x", DType::kFloat32, {-1, -1}}, {"n", DType::kInt64, {}}}).ok());
  EXPECT_TRUE(check({{"renamed", DType::kFloat32, {3, 2}}, {"", DType::kInt64, {}}}).ok());
}

TEST_F(CheckSignature, NamesTheFirstColumnThatDiffers) {
  expect_refused(check({{"x", DType::kFloat32, {4, 2}}, {"n", DType::kInt64, {}}}),
                 StatusCode::kInvalidArgument, {"column 0", "x: float32 (3, 2)", "(4, 2)"});
  expect_refused(check({{"x", DType::kFloat32, {3}}, {"n", DType::kInt64, {}}}),
                 StatusCode::kInvalidArgument, {"column 0"});
  expect_refused(check({{"x", DType::kFloat32, {3, 3}}, {"n", DType::kInt64, {}}}),
                 StatusCode::kInvalidArgument, {"column 0", "(3, 3)"});
  expect_refused(check({{"x", DType::kFloat32, {3, 2}}, {"n", DType::kInt32, {}}}),
                 StatusCode::kInvalidArgument, {"column 1", "n: int64 ()", "n: int32 ()"});
  expect_refused(check({{"x", DType::kFloat32, {3, 2}}, {"n", DType::kInt64, {1}}}),
                 StatusCode::kInvalidArgument, {"column 1", "(1,)"});
}

TEST_F(CheckSignature, NamesBothCountsIfTheyDiffer) {
  expect_refused(check({{"x", DType::kFloat32, {3, 2}}}), StatusCode::kInvalidArgument,
                 {"2 columns", "has 1", "x: float32 (3, 2)"});
}

}  // namespace
}  // namespace reverie
