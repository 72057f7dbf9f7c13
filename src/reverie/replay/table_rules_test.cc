// What a table refuses before it takes its lock. table_core_test.cc tests signatures.
#include "reverie/replay/table_rules.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/replay/chunk_store.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/selectors/list_selector.h"
#include "reverie/selectors/prioritized_selector.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

using testing::make_item;
using testing::table_options;

TableRules rules_of(TableOptions options, std::optional<std::int64_t> store_max_bytes = {}) {
  return {std::move(options), Prioritized::make(1.0, 7).value(), std::make_unique<Fifo>(),
          store_max_bytes};
}
TableOptions options_of(std::int64_t max_size) {
  return table_options("t", "Prioritized", "Fifo", max_size, RateLimiter::min_size(1));
}

TEST(TableRules, InvalidOptionsAreRefusedByName) {
  EXPECT_TRUE(TableRules::check_options(options_of(1)).ok());
  TableOptions nameless = options_of(1);
  nameless.name.clear();
  EXPECT_EQ(TableRules::check_options(nameless).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TableRules::check_options(options_of(0)).message(),
            "max_size of table 't' is 0; it must be at least 1");
  TableOptions no_bytes = options_of(1);
  no_bytes.max_bytes = 0;
  EXPECT_FALSE(TableRules::check_options(no_bytes).ok());
  TableOptions never = options_of(1);
  never.rate_limiter = RateLimiter::min_size(2);
  EXPECT_FALSE(TableRules::check_options(never).ok()) << "its limiter can never be met";
}

TEST(TableRules, AnItemNeedsATrajectoryAValidPriorityAndRoom) {
  const TableRules rules = rules_of(options_of(10));
  EXPECT_TRUE(rules.check_item(make_item(1, 1.0)).ok());
  EXPECT_TRUE(rules.check_item(make_item(1, std::nullopt)).ok());
  EXPECT_EQ(rules.check_item({1, 1.0, {}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rules.check_item(make_item(1, -1.0)).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(rules_of(options_of(10), 16).check_item(make_item(1, 1.0, 0, 1'000)).ok());
}

TEST(TableRules, AnItemMustFitTheSignatureUnlessChecksAreOff) {
  TableOptions options = options_of(10);
  const Signature two{{{"x", DType::kFloat32, {}}, {"y", DType::kFloat32, {}}}, ""};
  options.signature = two;
  EXPECT_EQ(rules_of(options).check_item(make_item(1, 1.0)).code(), StatusCode::kInvalidArgument);
  options.checks_items = false;
  EXPECT_TRUE(rules_of(options).check_item(make_item(1, 1.0)).ok());
}

// An item with one text of two bytes, of the layout's type.
Item text_item(const Ref<const Layout>& layout) {
  auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{layout->columns()[0].spec});
  const Ref<Chunk> chunk = Chunk::open(std::move(schema), {}, 1, 6, Allocator::heap()).value();
  const std::byte text[6] = {std::byte{2}, {}, {}, {}, std::byte{'a'}, std::byte{'b'}};
  chunk->set_row(0, 0, text);
  chunk->publish(1);
  const Piece piece{chunk.get(), 0, 1};
  return {1, 1.0, Trajectory(layout, {&piece, 1})};
}

TEST(TableRules, TextTakesTheTypeOfTheSignatureWhateverItsWriterDeclared) {
  for (const DType said : {DType::kBytes, DType::kString}) {
    TableOptions options = options_of(10);
    options.signature = Signature{{{"s", said, {1}}}, ""};
    for (const bool checks : {true, false}) {
      options.checks_items = checks;
      const TableRules rules = rules_of(options);
      for (const DType written : {DType::kBytes, DType::kString}) {
        const auto layout = Ref<const Layout>(make_ref<Layout>(
            std::vector<LayoutColumn>{{{"s", written, {}}, 0, 0, 1, false}}, "structure", 7));
        const Layout* conversion = nullptr;
        for (int i = 0; i < 3; ++i) {
          Item item = text_item(layout);
          const Chunk* const chunk = item.trajectory.pieces()[0].chunk;
          ASSERT_TRUE(rules.take_item(item).ok());
          const Layout& read = item.trajectory.layout();
          EXPECT_EQ(read.columns()[0].spec.dtype, said);
          EXPECT_EQ(read.structure(), "structure");
          EXPECT_EQ(read.tag(), 7u);
          EXPECT_EQ(item.trajectory.pieces()[0].chunk, chunk) << "its rows stay";
          EXPECT_TRUE(check_trajectory(item.trajectory.view()).ok());
          EXPECT_TRUE(conversion == nullptr || conversion == &read) << "items of a writer share it";
          conversion = &read;
        }
        EXPECT_EQ(conversion == layout.get(), written == said);
      }
    }
  }
}

TEST(TableRules, ManyWritersMayDeclareEitherTextType) {
  TableOptions options = options_of(10);
  options.signature = Signature{{{"s", DType::kString, {1}}}, ""};
  const TableRules rules = rules_of(options);
  for (int writer = 0; writer < 100; ++writer) {
    Item item = text_item(make_ref<Layout>(
        std::vector<LayoutColumn>{{{"s", DType::kBytes, {}}, 0, 0, 1, false}}, ""));
    ASSERT_TRUE(rules.take_item(item).ok());
    EXPECT_EQ(item.trajectory.layout().columns()[0].spec.dtype, DType::kString);
  }
  Item number = make_item(1, 1.0);
  EXPECT_EQ(rules.take_item(number).code(), StatusCode::kInvalidArgument);
}

TEST(TableRules, TheFirstRefusedPriorityIsNamed) {
  const TableRules rules = rules_of(options_of(10));
  EXPECT_TRUE(rules.check_priorities(std::vector<double>{1, 0, 2}).ok());
  const Status refused = rules.check_priorities(std::vector<double>{1, -3, -4});
  EXPECT_NE(refused.message().find("update 1 of 3 of table 't'"), std::string::npos)
      << refused.message();
}

TEST(TableRules, AKeyOrAnIndexIsRefusedAsATicket) {
  const TableRules rules = rules_of(options_of(10));
  EXPECT_TRUE(rules.check_tickets(std::vector<std::uint64_t>{Ticket{3, 1}.packed()}).ok());
  EXPECT_FALSE(rules.check_tickets(std::vector<std::uint64_t>{7}).ok());
  const std::vector<std::uint64_t> far = {Ticket{1u << 30, 1}.packed()};
  EXPECT_FALSE(rules.check_tickets(far).ok());
  EXPECT_TRUE(rules.check_tickets(far, (1u << 30) + 1).ok()) << "it may have been restored";
}

TEST(TableRules, ATableOfAnySizeTakesItsTickets) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t max_size : {kMost, kMost - 500, kMost / 2 + 1}) {
    const TableRules rules = rules_of(options_of(max_size));
    EXPECT_TRUE(rules.check_tickets(std::vector<std::uint64_t>{Ticket{5'000, 1}.packed()}).ok())
        << max_size;
  }
}

TEST(TableRules, AChunkThatAnItemUsesTwiceIsCountedOnce) {
  const Ref<Chunk> chunks[] = {testing::float_chunk(0, 1'000), testing::float_chunk(0, 1'000)};
  const auto layout = make_ref<Layout>(
      std::vector<LayoutColumn>{{{"x", DType::kFloat32, {}}, 0, 0, 4, false}}, std::string("x"));
  const Piece pieces[] = {{chunks[0].get(), 0, 10},
                          {chunks[1].get(), 0, 10},
                          {chunks[0].get(), 10, 10},
                          {chunks[1].get(), 10, 10}};
  const Item item{1, 1.0, Trajectory(layout, pieces)};
  const std::int64_t bytes = ChunkStore::new_bytes(item.trajectory.view());
  EXPECT_TRUE(rules_of(options_of(10), bytes).check_item(item).ok());
  EXPECT_FALSE(rules_of(options_of(10), bytes - 1).check_item(item).ok());
}

}  // namespace
}  // namespace reverie
