#include "reverie/client/item_reader.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/faucet.h"

namespace reverie {
namespace {

class ItemReaderTest : public ::testing::Test {
 protected:
  ItemReader reader(std::int64_t count, bool is_local = false) {
    return {service_,
            {.table = "replay",
             .count = count,
             .timeout = Duration::zero(),
             .is_local = is_local,
             .clock = &clock_},
            known_};
  }
  // The keys of the items, until the reader has all or `end` is an error.
  static std::vector<std::uint64_t> read_all(ItemReader& reader, Status& end) {
    std::vector<std::uint64_t> keys;
    while (reader.left() > 0) {
      if (reader.needs_draw()) {
        end = reader.draw({});
        if (!end.ok()) break;
      }
      keys.push_back(reader.samples().keys()[reader.peek().index]);
      reader.take();
    }
    return keys;
  }
  std::vector<std::size_t> asked() const {
    std::vector<std::size_t> counts;
    for (const Faucet::Asked& request : service_->asked) counts.push_back(request.count);
    return counts;
  }

  ManualClock clock_;
  std::shared_ptr<Faucet> service_ = std::make_shared<Faucet>();
  std::shared_ptr<TablesDrawnAhead> known_ = std::make_shared<TablesDrawnAhead>();
};

std::vector<std::uint64_t> first_keys(std::uint64_t count) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; key < count; ++key) keys.push_back(key);
  return keys;
}

TEST_F(ItemReaderTest, ItemsOfOneRequestAreTakenOneByOneAcrossItsGroups) {
  service_->spent_after["replay"] = 0;
  for (const int rows : {1, 1, 2, 2, 3, 1, 1, 1, 1, 1}) {
    service_->add(rows, static_cast<std::uint32_t>(rows));
  }
  ItemReader items = reader(10);
  Status end;
  EXPECT_EQ(read_all(items, end), first_keys(10));
  EXPECT_TRUE(end.ok());
  EXPECT_EQ(asked(), (std::vector<std::size_t>{1, 4, 5})) << "no more than were asked for";
}

TEST_F(ItemReaderTest, NothingIsDrawnAheadFromATableThatRemovesSampledItems) {
  service_->spent_after["replay"] = 1;
  service_->add_ones(10);
  ItemReader items = reader(6);
  Status end;
  EXPECT_EQ(read_all(items, end), first_keys(6));
  EXPECT_EQ(asked(), std::vector<std::size_t>(6, 1));
  EXPECT_EQ(known_->find("replay"), false);
}

TEST_F(ItemReaderTest, NothingIsDrawnAheadFromAnUnknownTable) {
  service_->add_ones(10);
  ItemReader items = reader(6);
  Status end;
  EXPECT_EQ(read_all(items, end), first_keys(6));
  EXPECT_EQ(asked(), std::vector<std::size_t>(6, 1));
  EXPECT_EQ(known_->find("replay"), std::nullopt);
}

TEST_F(ItemReaderTest, ReadersShareWhatTheyLearnAboutATable) {
  service_->spent_after["replay"] = 0;
  service_->add_ones(20);
  Status end;
  ItemReader one = reader(6);
  EXPECT_EQ(read_all(one, end).size(), 6u);
  EXPECT_EQ(known_->find("replay"), true);
  service_->spent_after.clear();  // the reader could not learn it again
  service_->asked.clear();
  ItemReader other = reader(6);
  EXPECT_EQ(read_all(other, end).size(), 6u);
  EXPECT_EQ(asked(), (std::vector<std::size_t>{1, 4, 1}));
}

TEST_F(ItemReaderTest, AFewItemsAreReadWithoutQueryingTheTable) {
  service_->spent_after["replay"] = 0;
  service_->add_ones(10);
  ItemReader items = reader(4);
  Status end;
  EXPECT_EQ(read_all(items, end).size(), 4u);
  EXPECT_EQ(known_->find("replay"), std::nullopt);
}

TEST_F(ItemReaderTest, ALocalStoreIsAskedForOneItemAtATime) {
  service_->spent_after["replay"] = 0;
  service_->add_ones(10);
  ItemReader items = reader(6, /*is_local=*/true);
  Status end;
  EXPECT_EQ(read_all(items, end).size(), 6u);
  EXPECT_EQ(asked(), std::vector<std::size_t>(6, 1));
}

TEST_F(ItemReaderTest, AReaderContinuesWhenItemsComeAfterATimeout) {
  service_->add_ones(1);
  ItemReader items = reader(2);
  Status end;
  EXPECT_EQ(read_all(items, end), first_keys(1));
  EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(items.left(), 1);
  service_->add_ones(1);
  EXPECT_EQ(read_all(items, end), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(items.left(), 0);
}

}  // namespace
}  // namespace reverie
