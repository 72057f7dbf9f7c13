// What a table refuses before it takes its lock. What fits a signature: table_core_test.cc.
#include "reverie/replay/table_rules.h"

#include <vector>

#include <gtest/gtest.h>

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

TEST(TableRules, OptionsThatNoTableCanHaveAreRefusedByName) {
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

TEST(TableRules, AnItemNeedsATrajectoryAPriorityOfItsSelectorsAndRoomForItAlone) {
  const TableRules rules = rules_of(options_of(10));
  EXPECT_TRUE(rules.check_item(make_item(1, 1.0)).ok());
  EXPECT_TRUE(rules.check_item(make_item(1, std::nullopt)).ok());
  EXPECT_EQ(rules.check_item({1, 1.0, {}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(rules.check_item(make_item(1, -1.0)).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(rules_of(options_of(10), 16).check_item(make_item(1, 1.0, 0, 1'000)).ok());
}

TEST(TableRules, AnItemFitsTheSignatureUnlessTheTableDoesNotLook) {
  TableOptions options = options_of(10);
  const Signature two{{{"x", DType::kFloat32, {}}, {"y", DType::kFloat32, {}}}, ""};
  options.signature = two;
  EXPECT_EQ(rules_of(options).check_item(make_item(1, 1.0)).code(), StatusCode::kInvalidArgument);
  options.checks_items = false;
  EXPECT_TRUE(rules_of(options).check_item(make_item(1, 1.0)).ok());
}

TEST(TableRules, TheFirstPriorityThatIsRefusedIsNamed) {
  const TableRules rules = rules_of(options_of(10));
  EXPECT_TRUE(rules.check_priorities(std::vector<double>{1, 0, 2}).ok());
  const Status refused = rules.check_priorities(std::vector<double>{1, -3, -4});
  EXPECT_NE(refused.message().find("update 1 of 3 of table 't'"), std::string::npos)
      << refused.message();
}

TEST(TableRules, AKeyOrAnIndexIsNoTicket) {
  const TableRules rules = rules_of(options_of(10));
  EXPECT_TRUE(rules.check_tickets(std::vector<std::uint64_t>{Ticket{3, 1}.packed()}).ok());
  EXPECT_FALSE(rules.check_tickets(std::vector<std::uint64_t>{7}).ok());
  EXPECT_FALSE(rules.check_tickets(std::vector<std::uint64_t>{Ticket{1u << 30, 1}.packed()}).ok());
}

}  // namespace
}  // namespace reverie
