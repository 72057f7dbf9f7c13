#include "reverie/service/request_checks.h"

#include <array>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(RequestChecks, ASampleAsksForSomething) {
  SampleRequest request;
  EXPECT_TRUE(check_sample_request(request).ok());
  request.count = 0;
  EXPECT_EQ(check_sample_request(request).code(), StatusCode::kInvalidArgument);
}

TEST(RequestChecks, EachTicketAndEachKeyHasAPriority) {
  const std::array<std::uint64_t, 2> names = {1, 2};
  const std::array<double, 1> priorities = {1.0};
  MutateRequest request;
  EXPECT_TRUE(check_mutate_request(request).ok());
  request.deletes = names;  // needs none
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
