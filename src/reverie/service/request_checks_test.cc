#include "reverie/service/request_checks.h"

#include <array>
#include <span>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(RequestChecks, AnErrorNamesWhichOfSeveralItemsIsInvalid) {
  std::array<Item, 2> items;
  EXPECT_EQ(check_item(items[0]).message(),
            "the item has no trajectory; give it at least one column");
  const auto refuse_second = [&](const Item& item) -> Status {
    return &item == &items[1] ? invalid_argument("no") : Status();
  };
  EXPECT_TRUE(check_each({}, check_item).ok());
  EXPECT_TRUE(check_each(std::span(items).first(1), refuse_second).ok());
  EXPECT_EQ(check_each(std::span(items).last(1), refuse_second).message(), "no");
  const Status both = check_each(items, refuse_second);
  EXPECT_EQ(both.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(both.message().find("item 1 of 2"), std::string::npos) << both.message();
}

TEST(RequestChecks, ASampleRequestMustAskForAtLeastOneItem) {
  SampleRequest request;
  EXPECT_TRUE(check_sample_request(request).ok());
  request.count = 0;
  EXPECT_EQ(check_sample_request(request).code(), StatusCode::kInvalidArgument);
}

TEST(RequestChecks, EachTicketAndEachKeyNeedsAPriority) {
  const std::array<std::uint64_t, 2> names = {1, 2};
  const std::array<double, 1> priorities = {1.0};
  MutateRequest request;
  EXPECT_TRUE(check_mutate_request(request).ok());
  request.deletes = names;  // deletes need no priorities
  EXPECT_TRUE(check_mutate_request(request).ok());
  request.tickets = names;
  request.ticket_priorities = priorities;
  EXPECT_EQ(check_mutate_request(request).message(),
            "there are 2 tickets but 1 priorities; give one each");
  request.tickets = {};
  request.ticket_priorities = {};
  request.keys = names;
  request.key_priorities = priorities;
  EXPECT_EQ(check_mutate_request(request).message(),
            "there are 2 keys but 1 priorities; give one each");
}

}  // namespace
}  // namespace reverie
