#include "reverie/gather/batch.h"

#include <map>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/record/compact.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

// Items of two columns, x: float32 [2] and n: int64, made by hand over chunks.
class Items {
 public:
  const std::vector<TensorSpec> specs = {{"x", DType::kFloat32, {2}}, {"n", DType::kInt64, {}}};

  Ref<Chunk> chunk(std::int64_t first, std::uint32_t rows) const {
    const auto schema = make_ref<ChunkSchema>(specs);
    Ref<Chunk> chunk = Chunk::open(schema, {}, rows, 0, Allocator::heap()).value();
    for (std::uint32_t r = 0; r < rows; ++r) {
      const std::int64_t n = first + r;
      const auto x = static_cast<float>(n);
      chunk->set_row(0, r, f32s({x, -x}).bytes);
      chunk->set_row(1, r, i64(n).bytes);
    }
    chunk->publish(rows);
    return chunk;
  }

  // Adds an item whose columns use the same pieces.
  void add(const std::vector<Piece>& pieces, bool squeezed = false) {
    const auto count = static_cast<std::uint16_t>(pieces.size());
    add(make_ref<Layout>(std::vector<LayoutColumn>{{specs[0], 0, 0, count, squeezed},
                                                   {specs[1], 1, 0, count, squeezed}},
                         std::string("nest")),
        pieces);
  }
  void add(const Ref<const Layout>& layout, const std::vector<Piece>& pieces) {
    trajectories_.emplace_back(layout, pieces);
    SampledItem item;
    item.trajectory = trajectories_.back().view();
    samples.add(item);
  }

  SampleBatch samples;

 private:
  std::vector<Trajectory> trajectories_;
};

template <typename T>
std::vector<T> elements(const BatchColumn& column) {
  std::vector<T> values(column.bytes.size_bytes() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), column.bytes.data(), column.bytes.size_bytes());
  return values;
}

TEST(Batch, HasOneArrayPerColumnWithItemAndRowAxesFirst) {
  Items items;
  const Ref<Chunk> a = items.chunk(0, 4);
  const Ref<Chunk> b = items.chunk(10, 2);
  items.add({{a.get(), 1, 2}});
  items.add({{a.get(), 3, 1}, {b.get(), 0, 1}});
  const Batch batch = assemble(items.samples, {}).value();
  ASSERT_EQ(batch.columns.size(), 2u);
  EXPECT_EQ(batch.columns[0].spec, (TensorSpec{"x", DType::kFloat32, {2, 2, 2}}));
  EXPECT_EQ(batch.columns[1].spec, (TensorSpec{"n", DType::kInt64, {2, 2}}));
  EXPECT_EQ(elements<float>(batch.columns[0]), (std::vector<float>{1, -1, 2, -2, 3, -3, 10, -10}));
  EXPECT_EQ(elements<std::int64_t>(batch.columns[1]), (std::vector<std::int64_t>{1, 2, 3, 10}));
  EXPECT_EQ(batch.structure, "nest");
  EXPECT_TRUE(batch.lengths.empty());
}

TEST(Batch, OfSqueezedColumnsHasNoRowAxis) {
  Items items;
  const Ref<Chunk> a = items.chunk(0, 4);
  items.add({{a.get(), 3, 1}}, /*squeezed=*/true);
  items.add({{a.get(), 1, 1}}, /*squeezed=*/true);
  const Batch batch = assemble(items.samples, {}).value();
  EXPECT_EQ(batch.columns[0].spec.shape, (Shape{2, 2}));
  EXPECT_EQ(batch.columns[1].spec.shape, (Shape{2}));
  EXPECT_EQ(elements<float>(batch.columns[0]), (std::vector<float>{3, -3, 1, -1}));
  EXPECT_EQ(elements<std::int64_t>(batch.columns[1]), (std::vector<std::int64_t>{3, 1}));
}

TEST(Batch, PadsShorterItemsWithTrailingZerosAndReportsLengths) {
  Items items;
  const Ref<Chunk> a = items.chunk(1, 4);
  items.add({{a.get(), 0, 1}});
  items.add({{a.get(), 0, 2}, {a.get(), 3, 1}});
  expect_refused(assemble(items.samples, {}).status(), StatusCode::kInvalidArgument,
                 {"'x'", "1 rows", "3", "padding"});
  const Batch batch = assemble(items.samples, {.pad = true}).value();
  EXPECT_EQ(batch.columns[1].spec.shape, (Shape{2, 3}));
  EXPECT_EQ(elements<std::int64_t>(batch.columns[1]),
            (std::vector<std::int64_t>{1, 0, 0, 1, 2, 4}));
  EXPECT_EQ(batch.lengths, (std::vector<std::int64_t>{1, 3}));
}

TEST(Batch, ReportsLengthsWithPadThoughAllItemsHaveOneLength) {
  Items items;
  const Ref<Chunk> a = items.chunk(1, 4);
  items.add({{a.get(), 0, 2}});
  items.add({{a.get(), 0, 1}, {a.get(), 3, 1}});
  const Batch batch = assemble(items.samples, {.pad = true}).value();
  EXPECT_EQ(elements<std::int64_t>(batch.columns[1]), (std::vector<std::int64_t>{1, 2, 1, 4}));
  EXPECT_EQ(batch.lengths, (std::vector<std::int64_t>{2, 2}));
  EXPECT_TRUE(assemble(items.samples, {}).value().lengths.empty());
}

TEST(Batch, MayHaveColumnsOfDifferentLength) {
  Items items;
  const Ref<Chunk> a = items.chunk(0, 4);
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{items.specs[0], 0, 0, 1, false}, {items.specs[1], 1, 1, 2, true}},
      std::string());
  items.add(layout, {{a.get(), 0, 3}, {a.get(), 3, 1}});
  items.add(layout, {{a.get(), 1, 3}, {a.get(), 0, 1}});
  const Batch batch = assemble(items.samples, {}).value();
  EXPECT_EQ(batch.columns[0].spec.shape, (Shape{2, 3, 2}));
  EXPECT_EQ(batch.columns[1].spec.shape, (Shape{2}));
  EXPECT_EQ(elements<std::int64_t>(batch.columns[1]), (std::vector<std::int64_t>{3, 0}));
  EXPECT_TRUE(batch.lengths.empty());
}

// The model is a map of rows. Random chunks, raw and encoded, have columns of many sizes; random
// items of one length have random pieces.
TEST(Batch, AgreesWithRowsCopiedOneByOne) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    std::vector<TensorSpec> specs;
    for (std::int64_t size = 0; size < 40; size += 1 + static_cast<std::int64_t>(random.below(6))) {
      specs.push_back({format("u{}", size), DType::kUInt8, {size}});
    }
    specs.push_back({"words", DType::kString, {2}});
    specs.push_back({"big", DType::kFloat64, {64}});
    const auto schema = make_ref<ChunkSchema>(specs);
    std::vector<Ref<Chunk>> chunks;
    // The bytes of a row by (chunk, column, row).
    std::map<std::tuple<const Chunk*, std::size_t, std::uint32_t>, std::vector<std::byte>> model;
    for (int k = 0; k < 12; ++k) {
      const auto rows = static_cast<std::uint32_t>(4 + random.below(8));
      Ref<Chunk> chunk = Chunk::open(schema, {}, rows + 3, 4'000, Allocator::heap()).value();
      std::vector<std::vector<std::vector<std::byte>>> bytes(rows);
      for (std::uint32_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < specs.size(); ++c) {
          Value value = strings({2}, {std::string(random.below(9), 'a'), "b"});
          if (c + 2 < specs.size() || c + 1 == specs.size()) {
            value.bytes.resize(schema->row_bytes(c));
            for (std::byte& b : value.bytes) b = static_cast<std::byte>(random.below(256));
          }
          chunk->set_row(c, r, value.bytes);
          bytes[r].push_back(value.bytes);
        }
      }
      chunk->publish(rows);
      if (k % 3 == 2) {
        const auto codec = static_cast<CodecId>(k % 4 % 3);
        chunk = compact(*chunk, codec, Allocator::heap()).value();
      }
      for (std::uint32_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < specs.size(); ++c) model[{chunk.get(), c, r}] = bytes[r][c];
      }
      chunks.push_back(std::move(chunk));
    }
    Items items;
    std::vector<std::vector<std::byte>> expected(specs.size());
    const auto length = static_cast<std::uint32_t>(1 + random.below(4));
    const std::size_t item_count = 1 + random.below(60);
    for (std::size_t i = 0; i < item_count; ++i) {
      std::vector<Piece> pieces;
      for (std::uint32_t left = length; left > 0; left -= pieces.back().length) {
        const Chunk& chunk = *chunks[random.below(chunks.size())];
        const auto rows = static_cast<std::uint32_t>(1 + random.below(left));
        pieces.push_back(
            {&chunk, static_cast<std::uint32_t>(random.below(chunk.rows() - rows + 1)), rows});
      }
      std::vector<LayoutColumn> columns;
      for (std::size_t c = 0; c < specs.size(); ++c) {
        columns.push_back({specs[c], static_cast<std::uint16_t>(c), 0,
                           static_cast<std::uint16_t>(pieces.size()), length == 1});
        for (const Piece& piece : pieces) {
          for (std::uint32_t r = 0; r < piece.length; ++r) {
            const auto& row = model.at({piece.chunk, c, piece.offset + r});
            expected[c].insert(expected[c].end(), row.begin(), row.end());
          }
        }
      }
      items.add(make_ref<Layout>(std::move(columns), std::string("nest")), pieces);
    }
    const Batch batch = assemble(items.samples, {}).value();
    for (std::size_t c = 0; c < specs.size(); ++c) {
      ASSERT_EQ(bytes_of(batch.columns[c].bytes.bytes()), expected[c])
          << "seed " << seed << " column " << specs[c].name;
    }
  }
}

TEST(Batch, OfStringsConcatenatesTheirElements) {
  const TensorSpec spec{"words", DType::kString, {2}};
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{spec});
  const Ref<Chunk> chunk = Chunk::open(schema, {}, 3, 100, Allocator::heap()).value();
  chunk->set_row(0, 0, strings({2}, {"one", ""}).bytes);
  chunk->set_row(0, 1, {});  // an unset row
  chunk->set_row(0, 2, strings({2}, {"two", "three"}).bytes);
  chunk->publish(3);
  Items items;
  const auto layout =
      make_ref<Layout>(std::vector<LayoutColumn>{{spec, 0, 0, 1, false}}, std::string());
  items.add(layout, {{chunk.get(), 0, 1}});
  items.add(layout, {{chunk.get(), 1, 2}});
  const Batch batch = assemble(items.samples, {.pad = true}).value();
  EXPECT_EQ(batch.columns[0].spec.shape, (Shape{2, 2, 2}));
  EXPECT_EQ(bytes_of(batch.columns[0].bytes.bytes()),
            strings({2, 2, 2}, {"one", "", "", "", "", "", "two", "three"}).bytes);
  EXPECT_EQ(batch.lengths, (std::vector<std::int64_t>{1, 2}));
}

TEST(Batch, AssembledIntoAnEarlierOneReusesBuffersThatFit) {
  Items items;
  const Ref<Chunk> a = items.chunk(0, 4);
  items.add({{a.get(), 0, 1}});
  Batch batch;
  ASSERT_TRUE(assemble_into(items.samples, {}, batch).ok());
  const std::byte* const x = batch.columns[0].bytes.data();
  Items others;
  others.add({{a.get(), 2, 1}});
  ASSERT_TRUE(assemble_into(others.samples, {}, batch).ok());
  EXPECT_EQ(batch.columns[0].bytes.data(), x);
  EXPECT_EQ(elements<std::int64_t>(batch.columns[1]), (std::vector<std::int64_t>{2}));
  others.add({{a.get(), 3, 1}});
  ASSERT_TRUE(assemble_into(others.samples, {}, batch).ok());
  EXPECT_EQ(batch.columns[0].spec.shape, (Shape{2, 1, 2}));
  EXPECT_EQ(elements<std::int64_t>(batch.columns[1]), (std::vector<std::int64_t>{2, 3}));
}

TEST(Batch, RefusesItemsWithDifferentLayouts) {
  const Items maker;
  const Ref<Chunk> a = maker.chunk(0, 4);
  const std::vector<Piece> piece = {{a.get(), 0, 1}};
  const auto status = [&](std::vector<LayoutColumn> columns, const std::string& structure) {
    Items items;
    items.add(piece);
    items.add(make_ref<Layout>(std::move(columns), structure), piece);
    return assemble(items.samples, {.pad = true}).status();
  };
  const LayoutColumn x{maker.specs[0], 0, 0, 1, false};
  const LayoutColumn n{maker.specs[1], 1, 0, 1, false};
  EXPECT_TRUE(status({x, n}, "nest").ok());
  expect_refused(status({x}, "nest"), StatusCode::kInvalidArgument, {"item 1", "1 columns"});
  LayoutColumn other = n;
  other.spec.name = "m";
  expect_refused(status({x, other}, "nest"), StatusCode::kInvalidArgument,
                 {"column 1", "m: int64 ()", "n: int64 ()"});
  other = n;
  other.squeezed = true;
  expect_refused(status({x, other}, "nest"), StatusCode::kInvalidArgument, {"'n'", "squeezed"});
  expect_refused(status({x, n}, "list"), StatusCode::kInvalidArgument, {"list", "nest"});
}

TEST(Batch, RefusesAnEmptySample) {
  const SampleBatch none;
  expect_refused(assemble(none, {}).status(), StatusCode::kInvalidArgument, {"no items"});
}

TEST(Batch, RefusesDamagedChunksAndRowsOutsideThem) {
  const TensorSpec spec{"x", DType::kFloat32, {2}};
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{spec});
  const auto encoded = [&](std::size_t bytes) {
    return Chunk::encoded(schema, {}, 2, Allocator::heap().allocate(bytes).value(),
                          {{CodecId::kRaw, 0, bytes}});
  };
  const auto status = [&](const Chunk& chunk, std::uint32_t row) {
    Items items;
    items.add(make_ref<Layout>(std::vector<LayoutColumn>{{spec, 0, 0, 1, false}}, std::string()),
              {{&chunk, row, 1}});
    return assemble(items.samples, {}).status();
  };
  EXPECT_TRUE(status(*encoded(16), 1).ok());
  expect_refused(status(*encoded(15), 1), StatusCode::kDataLoss, {"'x'", "15 bytes"});
  expect_refused(status(*encoded(16), 2), StatusCode::kDataLoss, {"'x'", "row 2", "2 rows"});
}

TEST(Batch, AllocatesFromTheAllocatorAndReportsItsFailure) {
  class NoMemory final : public Allocator {
   public:
    Result<Buffer> allocate(std::size_t) override { return resource_exhausted("none left"); }
  };
  NoMemory none;
  Items items;
  const Ref<Chunk> a = items.chunk(0, 4);
  items.add({{a.get(), 0, 1}});
  EXPECT_EQ(assemble(items.samples, {.allocator = &none}).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace reverie
