#include "reverie/base/status.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Status, IsOkByDefaultAndOwnsNothing) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.to_string(), "OK");
}

TEST(Status, FactoriesSetTheirCodeAndFormatTheMessage) {
  const Status status = out_of_range("slice ends at {}; the history holds {} steps", 9, 4);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "slice ends at 9; the history holds 4 steps");
  EXPECT_EQ(status.to_string(), "OUT_OF_RANGE: slice ends at 9; the history holds 4 steps");
}

TEST(Status, CodesHaveTheNumbersAndNamesOfGrpc) {
  const std::pair<int, const char*> table[] = {
      {0, "OK"},
      {1, "CANCELLED"},
      {3, "INVALID_ARGUMENT"},
      {4, "DEADLINE_EXCEEDED"},
      {5, "NOT_FOUND"},
      {6, "ALREADY_EXISTS"},
      {7, "PERMISSION_DENIED"},
      {8, "RESOURCE_EXHAUSTED"},
      {9, "FAILED_PRECONDITION"},
      {11, "OUT_OF_RANGE"},
      {12, "UNIMPLEMENTED"},
      {13, "INTERNAL"},
      {14, "UNAVAILABLE"},
      {15, "DATA_LOSS"},
      {16, "UNAUTHENTICATED"},
  };
  for (const auto& [number, name] : table) {
    EXPECT_EQ(status_code_name(static_cast<StatusCode>(number)), name);
  }
}

TEST(Status, AnInvalidCodeIsNamedUnknown) {
  EXPECT_EQ(status_code_name(static_cast<StatusCode>(99)), "UNKNOWN");
}

TEST(Status, EachFactoryHasItsOwnCode) {
  const Status all[] = {cancelled("x"),           invalid_argument("x"), deadline_exceeded("x"),
                        not_found("x"),           already_exists("x"),   resource_exhausted("x"),
                        failed_precondition("x"), out_of_range("x"),     unimplemented("x"),
                        internal_error("x"),      unavailable("x"),      data_loss("x")};
  std::set<StatusCode> codes;
  for (const Status& status : all) codes.insert(status.code());
  EXPECT_EQ(codes.size(), std::size(all));
  EXPECT_FALSE(codes.contains(StatusCode::kOk));
}

TEST(Status, ContextComesBeforeTheMessageAndKeepsTheCode) {
  const Status status = not_found("no such column").with_context("table 'replay'");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "table 'replay': no such column");
}

TEST(Status, ContextLeavesOkUnchanged) {
  EXPECT_EQ(Status().with_context("table 'replay'"), Status());
}

TEST(Status, ComparesByCodeAndMessage) {
  EXPECT_EQ(not_found("a"), not_found("a"));
  EXPECT_FALSE(not_found("a") == not_found("b"));
  EXPECT_FALSE(not_found("a") == data_loss("a"));
}

TEST(StatusDeathTest, MakingAnErrorWithTheOkCodeAborts) {
  EXPECT_DEATH((void)Status(StatusCode::kOk, "x"), "invariant broken.*status.cc");
}

TEST(Result, HoldsAValueOrAStatus) {
  const Result<int> value = 7;
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, 7);
  EXPECT_TRUE(value.status().ok());

  const Result<int> error = not_found("no");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.status().code(), StatusCode::kNotFound);
}

TEST(Result, MovesOutAValueThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 3);
}

TEST(Result, LetsItsValueBeChangedInPlace) {
  Result<std::string> result = std::string("a");
  *result += "b";
  result->push_back('c');
  EXPECT_EQ(result.value(), "abc");
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorAborts) {
  const Result<int> error = not_found("no");
  EXPECT_DEATH((void)error.value(), "invariant broken: ok");
}

TEST(ResultDeathTest, MakingAResultFromAnOkStatusAborts) {
  EXPECT_DEATH((void)Result<int>(Status()), "invariant broken");
}

Status fail_if(bool fail) {
  if (fail) return data_loss("failed");
  return {};
}

Status count_steps(bool fail, int& steps) {
  ++steps;
  REVERIE_RETURN_IF_ERROR(fail_if(fail));
  ++steps;
  return {};
}

TEST(ReturnIfError, ReturnsFromTheFunctionOnlyOnAnError) {
  int steps = 0;
  EXPECT_TRUE(count_steps(false, steps).ok());
  EXPECT_EQ(steps, 2);
  steps = 0;
  EXPECT_EQ(count_steps(true, steps), data_loss("failed"));
  EXPECT_EQ(steps, 1);
}

Result<std::unique_ptr<int>> make(int value) {
  if (value < 0) return invalid_argument("value is {}; it must be >= 0", value);
  return std::make_unique<int>(value);
}

Result<int> sum(int a, int b) {
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<int> left, make(a));
  std::unique_ptr<int> right;
  REVERIE_ASSIGN_OR_RETURN(right, make(b));
  return *left + *right;
}

TEST(AssignOrReturn, AssignsTheValueOrReturnsTheError) {
  EXPECT_EQ(*sum(2, 3), 5);
  EXPECT_EQ(sum(-1, 3).status().message(), "value is -1; it must be >= 0");
  EXPECT_EQ(sum(1, -3).status().message(), "value is -3; it must be >= 0");
}

}  // namespace
}  // namespace reverie
