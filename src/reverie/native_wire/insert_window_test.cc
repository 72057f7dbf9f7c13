#include "reverie/native_wire/insert_window.h"

#include <gtest/gtest.h>

#include "tests/support/items.h"

namespace reverie {
namespace {

class InsertWindowTest : public ::testing::Test {
 protected:
  // Adds a request of `count` items with keys from `key` on.
  InsertWindow::Request& add(ItemKey key, std::size_t count = 1) {
    std::vector<Item> items;
    for (std::size_t i = 0; i < count; ++i) items.push_back(testing::make_item(key + i, 1.0));
    return window_.add(items, TimePoint::max(), [this, key](const InsertResult& result) {
      told_.emplace_back(key, result);
    });
  }
  // The numbers in the next message.
  std::vector<std::uint64_t> take(std::size_t items_max = 100, std::size_t bytes_max = 1 << 20) {
    const InsertWindow::Batch batch = window_.take(items_max, bytes_max);
    std::vector<std::uint64_t> numbers;
    for (std::size_t i = 0; i < batch.items.size(); ++i) numbers.push_back(batch.first + i);
    return numbers;
  }
  // Requests completed since the last call: the key of the first item, and how many were inserted.
  std::vector<std::pair<ItemKey, std::size_t>> told() {
    for (auto& [done, result] : outcome_.ended) done(std::move(result));
    outcome_ = {};
    std::vector<std::pair<ItemKey, std::size_t>> found;
    for (const auto& [key, result] : std::exchange(told_, {})) {
      found.emplace_back(key, result.applied);
    }
    return found;
  }
  using Numbers = std::vector<std::uint64_t>;
  using Told = std::vector<std::pair<ItemKey, std::size_t>>;

  InsertWindow window_;
  InsertWindow::Outcome outcome_;
  std::vector<std::pair<ItemKey, InsertResult>> told_;
};

TEST_F(InsertWindowTest, AMessageTakesAllWaitingItemsInOrder) {
  add(10);
  add(20, 2);
  EXPECT_EQ(window_.waiting_bytes(), 12u);
  EXPECT_EQ(take(), (Numbers{1, 2, 3}));
  EXPECT_FALSE(window_.has_waiting());
  EXPECT_EQ(window_.waiting_bytes(), 0u);
  window_.confirm(1, 2, outcome_);
  EXPECT_EQ(told(), (Told{{10, 1}}));
  EXPECT_EQ(window_.base(), 2u) << "the request of 2 goes on";
  window_.confirm(3, 1, outcome_);
  EXPECT_EQ(told(), (Told{{20, 2}}));
  EXPECT_TRUE(window_.empty());
  EXPECT_EQ(window_.base(), 4u);
}

TEST_F(InsertWindowTest, AMessageEndsAtItsBounds) {
  for (ItemKey key = 0; key < 5; ++key) add(key);
  EXPECT_EQ(take(2), (Numbers{1, 2}));
  EXPECT_EQ(take(100, 5), (Numbers{3, 4})) << "four bytes each";
  EXPECT_EQ(take(100, 1), (Numbers{5})) << "at least one";
}

TEST_F(InsertWindowTest, UnconfirmedItemsAreSentAgainWithTheirNumbersOnANewStream) {
  for (ItemKey key = 0; key < 4; ++key) add(key);
  take(3);
  window_.confirm(2, 1, outcome_);
  window_.restart();
  EXPECT_EQ(take(), (Numbers{1})) << "2 is in: the run ends before it";
  EXPECT_EQ(take(), (Numbers{3, 4}));
}

TEST_F(InsertWindowTest, AnAbandonedRequestIsNotSentAndDoesNotBlockOthers) {
  add(10, 2);
  InsertWindow::Request& second = add(20, 3);
  add(30);
  take(3);
  EXPECT_TRUE(window_.is_sent(second));
  window_.confirm(3, 1, outcome_);
  window_.give_up(second, cancelled("no more"), outcome_);
  EXPECT_EQ(told(), (Told{{20, 1}}));
  EXPECT_EQ(window_.find(3), nullptr);
  EXPECT_EQ(take(), (Numbers{6}));
  window_.confirm(1, 10, outcome_);
  EXPECT_EQ(told(), (Told{{10, 2}, {30, 1}}));
  EXPECT_TRUE(window_.empty());
  EXPECT_EQ(window_.base(), 7u);
}

TEST_F(InsertWindowTest, OpenRequestsAreThoseWithUnsettledItemsAmongTheNumbers) {
  add(10, 2);
  add(20);
  add(30);
  take();
  window_.confirm(3, 1, outcome_);
  const auto firsts = [this](std::uint64_t first, std::uint64_t count) {
    Numbers found;
    for (const auto* request : window_.open_requests(first, count)) found.push_back(request->first);
    return found;
  };
  EXPECT_EQ(firsts(1, 4), (Numbers{1, 4}));
  EXPECT_EQ(firsts(2, 2), (Numbers{1}));
  EXPECT_EQ(firsts(3, 1), Numbers());
  EXPECT_EQ(firsts(9, 5), Numbers()) << "beyond the last item";
  window_.confirm(1, 2, outcome_);
  EXPECT_EQ(firsts(1, 4), (Numbers{4})) << "the first three are forgotten";
}

TEST_F(InsertWindowTest, TheNextItemIsTheFirstThatIsNotSettled) {
  for (ItemKey key = 0; key < 3; ++key) add(key);
  take();
  window_.confirm(2, 1, outcome_);
  window_.restart();
  EXPECT_EQ(window_.next(), 1u);
  take();
  EXPECT_EQ(window_.next(), 3u);
}

TEST_F(InsertWindowTest, UnsentItemsCannotBeConfirmed) {
  add(10);
  add(20);
  take(1);
  window_.confirm(0, ~std::uint64_t{0}, outcome_);
  window_.confirm(~std::uint64_t{0}, ~std::uint64_t{0}, outcome_);
  EXPECT_EQ(told(), (Told{{10, 1}}));
  EXPECT_EQ(take(), (Numbers{2}));
}

TEST_F(InsertWindowTest, ConfirmationsByKeyMayComeInAnyOrder) {
  add(10);
  add(20);
  take();
  window_.confirm_key(20, outcome_);
  EXPECT_EQ(told(), (Told{{20, 1}}));
  window_.confirm_key(99, outcome_);
  add(10);
  take();
  window_.confirm_key(10, outcome_);
  EXPECT_EQ(window_.base(), 3u) << "of two with one key the first is meant";
  window_.confirm_key(10, outcome_);
  EXPECT_EQ(told(), (Told{{10, 1}, {10, 1}}));
  EXPECT_TRUE(window_.empty());
}

TEST_F(InsertWindowTest, GiveUpAllReportsEachRequestInOrder) {
  add(10, 2);
  add(20);
  take(1);
  window_.confirm(1, 1, outcome_);
  window_.give_up_all(unavailable("gone"), outcome_);
  EXPECT_EQ(told(), (Told{{10, 1}, {20, 0}}));
  EXPECT_TRUE(window_.empty());
  EXPECT_TRUE(take().empty());
}

}  // namespace
}  // namespace reverie
