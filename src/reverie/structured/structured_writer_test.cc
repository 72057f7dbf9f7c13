#include "reverie/structured/structured_writer.h"

#include <cstring>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/support/fake_replay_service.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

using Left = PatternCondition::Left;
using Comparison = PatternCondition::Comparison;
using Rows = std::vector<std::int64_t>;

PatternColumn slice(LeafIndex leaf, std::optional<std::int64_t> start,
                    std::optional<std::int64_t> stop = {}, std::optional<std::int64_t> step = {}) {
  return {"c" + std::to_string(leaf), leaf, start, stop, step};
}
PatternColumn row(LeafIndex leaf, std::int64_t index) {
  return slice(leaf, {}, index);
}
PatternCondition when(Left left, Comparison comparison, std::int64_t value, bool is_inverse = false,
                      std::int64_t modulo = 1, LeafIndex leaf = 0) {
  return {left, leaf, comparison, value, modulo, is_inverse};
}
PatternCondition at_end() {
  return when(Left::kIsEndEpisode, Comparison::kEqual, 1);
}
ItemPattern pattern(std::vector<PatternColumn> columns,
                    std::vector<PatternCondition> conditions = {},
                    const std::string& table = "replay") {
  return {std::move(columns), "nest", table, std::move(conditions), {}};
}

// The rows of each column of an item with whole numbers.
std::vector<Rows> rows_of(const Trajectory& trajectory) {
  std::vector<Rows> columns;
  for (const LayoutColumn& column : trajectory.layout().columns()) {
    Rows& rows = columns.emplace_back();
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      const Piece& piece = trajectory.pieces()[p];
      for (std::uint32_t r = 0; r < piece.length; ++r) {
        const std::span<const std::byte> bytes =
            piece.chunk->row_bytes(column.chunk_column, piece.offset + r);
        std::memcpy(&rows.emplace_back(), bytes.data(), sizeof(std::int64_t));
      }
    }
  }
  return columns;
}

// A writer with a fake service, whose table "replay" admits everything.
class StructuredWriterTest : public ::testing::Test {
 protected:
  void SetUp() override { service_->add_table("replay"); }
  // Closed first, since the clock does not advance and a last flush would never end.
  void TearDown() override {
    if (writer_) writer_->close();
  }

  void open(std::vector<ItemPattern> patterns, std::size_t leaves = 2,
            std::size_t max_in_flight_items = 1'000) {
    if (writer_) writer_->close();
    TrajectoryWriterOptions options;
    options.seed = 1;
    options.clock = &clock_;
    options.validate_items = false;
    options.max_in_flight_items = max_in_flight_items;
    writer_ = StructuredWriter::open(service_, std::move(patterns), options).value();
    std::vector<std::string> names;
    for (std::size_t i = 0; i < leaves; ++i) names.push_back("leaf" + std::to_string(i));
    ASSERT_TRUE(writer_->set_leaves(std::move(names)).ok());
  }

  Status append(const std::vector<std::optional<Value>>& step, bool partial = false) {
    std::vector<LeafValue> values;
    for (std::size_t i = 0; i < step.size(); ++i) {
      if (step[i]) values.push_back({static_cast<LeafIndex>(i), step[i]->view()});
    }
    return writer_->append(values, partial, deadline_, {});
  }
  Status append(std::int64_t a, std::int64_t b) { return append({i64(a), i64(b)}); }
  Status end(bool clear_buffers = true) {
    return writer_->end_episode(clear_buffers, deadline_, {});
  }

  // The rows of a table's items, in the order of their insertion.
  std::vector<std::vector<Rows>> items(const std::string& table = "replay") {
    std::vector<std::vector<Rows>> found;
    for (std::size_t i = 0; i < service_->size(table); ++i) {
      found.push_back(rows_of(service_->item(table, i).trajectory));
    }
    return found;
  }
  std::vector<std::int64_t> first_values() {
    std::vector<std::int64_t> values;
    for (const auto& item : items()) values.push_back(item[0][0]);
    return values;
  }

  ManualClock clock_;
  std::shared_ptr<FakeReplayService> service_ = std::make_shared<FakeReplayService>();
  std::unique_ptr<StructuredWriter> writer_;
  TimePoint deadline_ = TimePoint::max();
};

TEST_F(StructuredWriterTest, APatternMakesItemsOnceThereAreEnoughSteps) {
  open({pattern({slice(0, -3), row(1, -1)})});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(append(i, 10 * i).ok());
  EXPECT_EQ(items(), (std::vector<std::vector<Rows>>{
                         {{0, 1, 2}, {20}}, {{1, 2, 3}, {30}}, {{2, 3, 4}, {40}}}));
  const auto& layout = service_->item("replay", 0).trajectory.layout();
  EXPECT_FALSE(layout.columns()[0].squeezed);
  EXPECT_TRUE(layout.columns()[1].squeezed);
  EXPECT_EQ(layout.structure(), "nest");
  EXPECT_EQ(layout.columns()[1].spec.name, "c1");
}

TEST_F(StructuredWriterTest, StopAndStepSelectTheRows) {
  open({pattern({slice(0, -4, -1, 2)}), pattern({slice(0, -5, {}, 2)}), pattern({row(0, -2)})});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(append(i, 0).ok());
  EXPECT_EQ(items(), (std::vector<std::vector<Rows>>{
                         {{0}}, {{1}}, {{0, 2}}, {{2}}, {{1, 3}}, {{0, 2, 4}}, {{3}}}));
}

TEST_F(StructuredWriterTest, EachConditionSelectsItsSteps) {
  struct Case {
    PatternCondition condition;
    std::vector<std::int64_t> steps;  // with an item; the episodes are 0 to 5 and 6 to 10
  };
  const std::vector<Case> cases = {
      {when(Left::kStepIndex, Comparison::kAtLeast, 3), {3, 4, 5, 9, 10}},
      {when(Left::kStepIndex, Comparison::kAtLeast, 3, true), {0, 1, 2, 6, 7, 8}},
      {when(Left::kStepIndex, Comparison::kEqual, 1), {1, 7}},
      {when(Left::kStepIndex, Comparison::kEqual, 1, true), {0, 2, 3, 4, 5, 6, 8, 9, 10}},
      {when(Left::kStepIndex, Comparison::kModuloEqual, 0, false, 3), {0, 3, 6, 9}},
      {when(Left::kStepIndex, Comparison::kModuloEqual, 0, true, 3), {1, 2, 4, 5, 7, 8, 10}},
      {when(Left::kStepsSinceApplied, Comparison::kAtLeast, 3), {2, 5, 8}},
      {when(Left::kLeaf, Comparison::kEqual, 1, false, 1, 1), {1, 4, 7, 10}},
      {at_end(), {5, 10}},
      {when(Left::kIsEndEpisode, Comparison::kEqual, 0), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
  };
  for (const bool clear_buffers : {true, false}) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      service_->drop_items("replay");
      open({pattern({row(0, -1)}, {cases[i].condition})});
      for (int step = 0; step < 6; ++step) ASSERT_TRUE(append(step, step % 3).ok());
      ASSERT_TRUE(end(clear_buffers).ok());
      for (int step = 6; step < 11; ++step) ASSERT_TRUE(append(step, step % 3).ok());
      ASSERT_TRUE(end(clear_buffers).ok());
      EXPECT_EQ(first_values(), cases[i].steps) << "case " << i;
    }
  }
}

TEST_F(StructuredWriterTest, AllConditionsMustHold) {
  open({pattern({row(0, -1)}, {at_end(), when(Left::kStepIndex, Comparison::kAtLeast, 2)})});
  for (const int length : {2, 3}) {
    for (int step = 0; step < length; ++step) ASSERT_TRUE(append(10 * length + step, 0).ok());
    ASSERT_TRUE(end().ok());
  }
  EXPECT_EQ(first_values(), (Rows{32}));
}

TEST_F(StructuredWriterTest, APartialStepCountsOnceWhenCompleted) {
  open({pattern({row(0, -1)}), pattern({slice(0, -2), row(1, -1)})});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(append({i64(i), {}}, true).ok());
    EXPECT_TRUE(writer_->step_is_open());
    ASSERT_TRUE(append({{}, i64(10 * i)}).ok());
    EXPECT_FALSE(writer_->step_is_open());
  }
  EXPECT_EQ(items(),
            (std::vector<std::vector<Rows>>{{{0}}, {{1}}, {{0, 1}, {10}}, {{2}}, {{1, 2}, {20}}}));
}

TEST_F(StructuredWriterTest, MissingRowsMakeNoItem) {
  open({pattern({slice(0, -2), slice(1, -2)})});
  for (int i = 0; i < 6; ++i) {
    const std::optional<Value> b = i % 3 == 0 ? std::optional<Value>() : i64(i);
    ASSERT_TRUE(append({i64(i), b}).ok());
  }
  EXPECT_EQ(items(), (std::vector<std::vector<Rows>>{{{1, 2}, {1, 2}}, {{4, 5}, {4, 5}}}));
}

TEST_F(StructuredWriterTest, AStepWithoutAUsedLeafMakesNoItem) {
  open({pattern({row(0, -2)})});
  ASSERT_TRUE(append(1, 0).ok());
  ASSERT_TRUE(append({{}, i64(0)}).ok());
  ASSERT_TRUE(end(/*clear_buffers=*/false).ok());
  ASSERT_TRUE(append(3, 0).ok());
  ASSERT_TRUE(append(4, 0).ok());
  EXPECT_EQ(first_values(), (Rows{3}));
  service_->drop_items("replay");
  open({pattern({row(0, -1)}, {when(Left::kStepsSinceApplied, Comparison::kEqual, 2)})});
  ASSERT_TRUE(append(1, 0).ok());
  ASSERT_TRUE(append({{}, i64(0)}).ok());
  ASSERT_TRUE(append(3, 0).ok());
  EXPECT_EQ(first_values(), (Rows{3}));
}

TEST_F(StructuredWriterTest, TheEndOfAnEpisodeForgetsItsStepsUnlessToldOtherwise) {
  for (const bool clear_buffers : {true, false}) {
    service_->drop_items("replay");
    open({pattern({slice(0, -2)})});
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(append(i, 0).ok());
      if (i == 1) {
        ASSERT_TRUE(end(clear_buffers).ok());
      }
    }
    EXPECT_EQ(first_values(), clear_buffers ? (Rows{0, 2}) : (Rows{0, 1, 2}));
  }
}

TEST_F(StructuredWriterTest, AFailedEndMayBeRepeatedAndMakesItsItemsOnce) {
  service_->add_table("full", 0);
  open({pattern({row(0, -1)}, {at_end()}, "full")});
  ASSERT_TRUE(append(1, 0).ok());
  deadline_ = TimePoint{0};
  expect_refused(end(), StatusCode::kDeadlineExceeded, {"1 items"});
  expect_refused(end(), StatusCode::kDeadlineExceeded, {"1 items"});
  EXPECT_EQ(service_->waiting("full"), 1u);
  service_->admit("full", 5);
  ASSERT_TRUE(end().ok());
  ASSERT_TRUE(end().ok());
  EXPECT_EQ(service_->size("full"), 1u);
}

TEST_F(StructuredWriterTest, ALostItemCostsNoItemOfAnotherPattern) {
  service_->add_table("full", 0);
  open({pattern({row(0, -1)}, {}, "full"), pattern({row(0, -1)}, {at_end()})});
  ASSERT_TRUE(append(1, 0).ok());
  service_->fail_first("full", invalid_argument("not like this"));
  expect_refused(end(), StatusCode::kInvalidArgument, {"1 queued item", "'full'"});
  ASSERT_TRUE(end().ok());
  EXPECT_EQ(first_values(), (Rows{1}));
}

TEST_F(StructuredWriterTest, AnAppendThatReportsALossHasNotWrittenItsStep) {
  service_->add_table("full", 0);
  open({pattern({row(0, -1)}, {}, "full"), pattern({slice(0, -2)})});
  ASSERT_TRUE(append(1, 0).ok());
  service_->fail_first("full", invalid_argument("not like this"));
  expect_refused(append(2, 0), StatusCode::kInvalidArgument, {"not written", "1 queued item"});
  ASSERT_TRUE(append(2, 0).ok());
  EXPECT_EQ(items(), (std::vector<std::vector<Rows>>{{{1, 2}}}));
}

// A service that does not know its tables at first.
class LateService final : public FakeReplayService {
 public:
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    if (knows_tables) return FakeReplayService::info(std::move(done));
    done(deadline_exceeded("no server has answered"));
    return 0;
  }
  bool knows_tables = false;
};

TEST_F(StructuredWriterTest, AnItemThatHadNoTimeForItsSignatureIsMadeByTheNextEnd) {
  const auto service = std::make_shared<LateService>();
  service->add_table("replay");
  TrajectoryWriterOptions options;
  options.clock = &clock_;
  writer_ = StructuredWriter::open(service, {pattern({row(0, -1)}, {at_end()})}, options).value();
  ASSERT_TRUE(writer_->set_leaves({"a"}).ok());
  ASSERT_TRUE(append({i64(1)}).ok());
  EXPECT_TRUE(writer_->may_wait());
  expect_refused(end(), StatusCode::kDeadlineExceeded, {"no server"});
  service->knows_tables = true;
  ASSERT_TRUE(end().ok());
  EXPECT_FALSE(writer_->may_wait());
  EXPECT_EQ(service->size("replay"), 1u);
}

TEST_F(StructuredWriterTest, AnEpisodeEndsInTheMiddleOfAStep) {
  open({pattern({row(0, -1)}, {at_end()})});
  ASSERT_TRUE(append({i64(7), {}}, true).ok());
  ASSERT_TRUE(end().ok());
  EXPECT_FALSE(writer_->step_is_open());
  ASSERT_TRUE(append(8, 0).ok());
  ASSERT_TRUE(end().ok());
  EXPECT_EQ(first_values(), (Rows{7, 8}));
}

TEST_F(StructuredWriterTest, UnusedLeavesAreNotWritten) {
  open({pattern({row(0, -1)}, {when(Left::kLeaf, Comparison::kEqual, 1, false, 1, 1)})}, 3);
  EXPECT_TRUE(writer_->uses(0));
  EXPECT_TRUE(writer_->uses(1));
  EXPECT_FALSE(writer_->uses(2));
  ASSERT_TRUE(append({i64(5), i64(1), f32(3)}).ok());
  ASSERT_TRUE(append({i64(6), i64(1), i64(3)}).ok());  // the type of an unused leaf is not checked
  EXPECT_EQ(first_values(), (Rows{5, 6}));
  EXPECT_EQ(service_->item("replay", 0).trajectory.pieces()[0].chunk->schema().column_count(), 1u);
}

TEST_F(StructuredWriterTest, ThePriorityIsComputedFromTdErrors) {
  const auto priorities = [&](const ItemPattern& given, double weight,
                              const std::vector<Value>& errors) {
    ItemPattern p = given;
    service_->drop_items("replay");
    p.priority = {1.0, 1, weight};
    open({std::move(p)});
    for (const Value& error : errors) EXPECT_TRUE(append({i64(0), error}).ok());
    return *service_->item("replay", service_->size("replay") - 1).priority;
  };
  const std::vector<Value> errors = {f32(1), f32(-4), f32(2)};
  EXPECT_DOUBLE_EQ(priorities(pattern({row(0, -1), slice(1, -3)}), 0.9, errors),
                   0.9 * 4 + 0.1 * (7.0 / 3));
  EXPECT_DOUBLE_EQ(priorities(pattern({slice(1, -3), row(1, -1)}), 0.5, errors), 2.0);
  EXPECT_DOUBLE_EQ(priorities(pattern({row(0, -1)}), 0.5, errors), 0.0);
  EXPECT_DOUBLE_EQ(priorities(pattern({row(1, -1)}), 0.5, {i64(-3)}), 3.0);
}

TEST_F(StructuredWriterTest, InvalidTdErrorsAreRefusedAndTheStepIsKept) {
  ItemPattern p = pattern({row(1, -1)});
  p.priority = {1.0, 1, 0.5};
  for (const Value& error : {f32s({1, 2}), value_of<std::int8_t>(DType::kInt8, {}, {1}),
                             f32(std::numeric_limits<float>::quiet_NaN())}) {
    open({p, pattern({row(0, -1)})});
    service_->drop_items("replay");
    const Status status = append({i64(1), error});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_EQ(first_values(), (Rows{1}));  // from the other pattern
  }
}

TEST_F(StructuredWriterTest, InvalidStepsAreRefusedAndTheWriterContinues) {
  open({pattern({slice(0, -2)}, {when(Left::kLeaf, Comparison::kAtLeast, 0, false, 1, 1)})});
  ASSERT_TRUE(append(1, 0).ok());
  expect_refused(append({f32(1), i64(0)}), StatusCode::kInvalidArgument, {"'leaf0'", "float32"});
  expect_refused(append({i64(1), f32(0)}), StatusCode::kInvalidArgument, {"'leaf1'", "float32"});
  expect_refused(append({i64(1), value_of<std::int64_t>(DType::kInt64, {2}, {1, 2})}),
                 StatusCode::kInvalidArgument, {"'leaf1'", "(2,)", "single whole number"});
  ASSERT_TRUE(append({i64(2), {}}, true).ok());
  expect_refused(append({i64(3), {}}, true), StatusCode::kFailedPrecondition, {"'leaf0'", "open"});
  ASSERT_TRUE(append({{}, i64(0)}).ok());
  EXPECT_EQ(items(), (std::vector<std::vector<Rows>>{{{1, 2}}}));
}

// Leaf 0 is written, leaf 1 is only tested.
TEST_F(StructuredWriterTest, ALeafTwiceInOneAppendIsRefused) {
  open({pattern({row(0, -1)}, {when(Left::kLeaf, Comparison::kAtLeast, 0, false, 1, 1)})});
  const Value one = i64(1);
  const Value two = i64(2);
  for (const LeafIndex leaf : {0u, 1u}) {
    const std::vector<LeafValue> values = {
        {1 - leaf, one.view()}, {leaf, one.view()}, {leaf, two.view()}};
    expect_refused(writer_->append(values, false, deadline_, {}), StatusCode::kFailedPrecondition,
                   {"'leaf" + std::to_string(leaf) + "'", "twice"});
  }
  EXPECT_TRUE(items().empty());
  ASSERT_TRUE(append(3, 0).ok());
  EXPECT_EQ(items(), (std::vector<std::vector<Rows>>{{{3}}}));
}

TEST_F(StructuredWriterTest, AnUnknownTableIsReportedAndTheOtherPatternsContinue) {
  open({pattern({row(0, -1)}, {}, "nowhere"), pattern({row(0, -1)})});
  expect_refused(append(1, 0), StatusCode::kNotFound, {"'nowhere'"});
  expect_refused(append(2, 0), StatusCode::kNotFound, {"'nowhere'"});
  EXPECT_EQ(first_values(), (Rows{1, 2}));
}

TEST_F(StructuredWriterTest, AnAppendWaitsIfTheQueueIsFull) {
  service_->add_table("full", 0);
  open({pattern({row(0, -1)}, {}, "full")}, 2, 2);
  deadline_ = TimePoint{0};
  ASSERT_TRUE(append(1, 0).ok());
  ASSERT_TRUE(append(2, 0).ok());
  EXPECT_TRUE(writer_->may_wait());
  expect_refused(append(3, 0), StatusCode::kDeadlineExceeded, {"2 items"});
  EXPECT_EQ(writer_->pending_items(), 2u);
  service_->admit("full", 1);
  ASSERT_TRUE(append(4, 0).ok());
  service_->admit("full", 5);
  ASSERT_TRUE(writer_->flush(0, deadline_, {}).ok());
  EXPECT_EQ(items("full"), (std::vector<std::vector<Rows>>{{{1}}, {{2}}, {{4}}}));
}

TEST_F(StructuredWriterTest, InvalidPatternsAreRefused) {
  const auto refuse = [&](const ItemPattern& bad, const std::vector<std::string>& words) {
    const auto opened = StructuredWriter::open(service_, {pattern({row(0, -1)}), bad}, {});
    ASSERT_FALSE(opened.ok());
    expect_refused(opened.status(), StatusCode::kInvalidArgument,
                   {"Invalid configuration at position 1"});
    expect_refused(opened.status(), StatusCode::kInvalidArgument, words);
  };
  refuse(pattern({}), {"no columns"});
  refuse(pattern({row(0, -1)}, {}, ""), {"table"});
  refuse(pattern({slice(0, {})}), {"'c0'", "at least one of start and stop"});
  refuse(pattern({slice(0, 0)}), {"start is 0", "< 0"});
  refuse(pattern({row(0, 0)}), {"stop is 0", "no start"});
  refuse(pattern({row(0, 1)}), {"stop is 1", "<= 0"});
  refuse(pattern({slice(0, -2, -2)}), {"stop is -2", "> start, -2"});
  refuse(pattern({slice(0, -2, {}, 0)}), {"step is 0", "> 0"});
  refuse(pattern({slice(0, {}, -1, 2)}), {"step is 2", "no start"});
  refuse(pattern({slice(0, -kPatternReachMax - 1)}), {"reaches back"});
  refuse(pattern({row(0, -1)}, {when(Left::kStepIndex, Comparison::kModuloEqual, 0, false, 0)}),
         {"division by 0"});
  refuse(pattern({row(0, -1)}, {when(Left::kStepIndex, Comparison::kModuloEqual, -1, false, 2)}),
         {"remainder -1"});
  ItemPattern nan = pattern({row(0, -1)});
  nan.priority.constant = std::numeric_limits<double>::quiet_NaN();
  refuse(nan, {"NaN"});
  const auto none = StructuredWriter::open(service_, {}, {});
  expect_refused(none.status(), StatusCode::kInvalidArgument, {"at least one"});
}

TEST_F(StructuredWriterTest, PatternsOverMissingLeavesAreRefused) {
  auto writer = StructuredWriter::open(service_, {pattern({row(2, -1)})}, {}).value();
  expect_refused(writer->set_leaves({"a", "b"}), StatusCode::kInvalidArgument,
                 {"leaf 2", "have 2", "'replay'"});
  EXPECT_TRUE(writer->set_leaves({"a", "b", "c"}).ok());
}

// The model keeps all cells since the buffers were cleared, and searches them for each step.
class Model {
 public:
  Model(std::vector<ItemPattern> patterns, std::size_t leaves)
      : patterns_(std::move(patterns)), leaves_(leaves), since_(patterns_.size(), 0) {}

  void append(const std::vector<std::optional<std::int64_t>>& step, bool partial) {
    if (!is_open_) {
      steps_.emplace_back(leaves_);
      is_counted_ = false;
      tried_.assign(patterns_.size(), false);
      ++episode_steps_;
      is_open_ = true;
    }
    for (std::size_t i = 0; i < leaves_; ++i) {
      if (step[i]) steps_.back()[i] = step[i];
    }
    apply(false);
    is_open_ = partial;
  }
  void end(bool clear_buffers) {
    if (episode_steps_ > 0) apply(true);
    if (clear_buffers) steps_.clear();
    episode_steps_ = 0;
    is_open_ = false;
  }

  std::vector<std::vector<Rows>> items;

 private:
  void apply(bool is_end) {
    if (!has_used_leaf()) return;
    if (!is_counted_) {
      for (std::int64_t& since : since_) ++since;
      is_counted_ = true;
    }
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      std::vector<Rows> item;
      if (tried_[p] || !holds(patterns_[p], since_[p], is_end) || !rows(patterns_[p], item))
        continue;
      items.push_back(item);
      tried_[p] = true;
      since_[p] = 0;
    }
  }
  // Whether the newest step has a leaf that a pattern uses.
  bool has_used_leaf() const {
    for (const ItemPattern& p : patterns_) {
      for (const PatternColumn& c : p.columns) {
        if (steps_.back()[c.leaf]) return true;
      }
      for (const PatternCondition& c : p.conditions) {
        if (c.left == Left::kLeaf && steps_.back()[c.leaf]) return true;
      }
    }
    return false;
  }
  bool holds(const ItemPattern& p, std::int64_t since, bool is_end) const {
    for (const PatternCondition& c : p.conditions) {
      std::optional<std::int64_t> left;
      if (c.left == Left::kStepIndex) left = episode_steps_ - 1;
      if (c.left == Left::kStepsSinceApplied) left = since;
      if (c.left == Left::kIsEndEpisode) left = is_end;
      if (c.left == Left::kLeaf) left = steps_.back()[c.leaf];
      if (!left || !c.holds(*left)) return false;
    }
    return true;
  }
  bool rows(const ItemPattern& p, std::vector<Rows>& item) const {
    const auto count = static_cast<std::int64_t>(steps_.size());
    for (const PatternColumn& c : p.columns) {
      Rows& out = item.emplace_back();
      const std::int64_t begin = c.start ? *c.start : *c.stop;
      const std::int64_t end = c.start ? c.stop.value_or(0) : begin + 1;
      for (std::int64_t i = begin; i < end; i += c.step.value_or(1)) {
        if (count + i < 0 || !steps_[static_cast<std::size_t>(count + i)][c.leaf]) return false;
        out.push_back(*steps_[static_cast<std::size_t>(count + i)][c.leaf]);
      }
      if (count < -begin) return false;
    }
    return true;
  }

  std::vector<ItemPattern> patterns_;
  std::size_t leaves_;
  std::vector<std::vector<std::optional<std::int64_t>>> steps_;
  std::vector<std::int64_t> since_;
  std::vector<bool> tried_;
  std::int64_t episode_steps_ = 0;
  bool is_open_ = false;
  bool is_counted_ = false;
};

PatternCondition random_condition(Random& random) {
  const auto left = static_cast<Left>(random.next() % 4);
  if (left == Left::kIsEndEpisode) return at_end();
  const auto comparison = static_cast<Comparison>(random.next() % 3);
  return when(left, comparison, static_cast<std::int64_t>(random.next() % 4),
              random.next() % 2 == 0, static_cast<std::int64_t>(1 + random.next() % 4),
              static_cast<LeafIndex>(random.next() % 3));
}

ItemPattern random_pattern(Random& random) {
  ItemPattern p = pattern({});
  for (std::uint64_t i = 0; i < 1 + random.next() % 3; ++i) {
    const auto leaf = static_cast<LeafIndex>(random.next() % 3);
    const auto start = -static_cast<std::int64_t>(1 + random.next() % 6);
    PatternColumn column = random.next() % 3 == 0 ? row(leaf, start) : slice(leaf, start);
    if (column.start) {
      if (random.next() % 2 == 0) {
        column.stop = start + 1 + static_cast<std::int64_t>(random.next() % (0u - start));
      }
      if (random.next() % 2 == 0) column.step = static_cast<std::int64_t>(1 + random.next() % 4);
    }
    column.name += std::to_string(i);
    p.columns.push_back(column);
  }
  for (std::uint64_t i = 0; i < random.next() % 3; ++i)
    p.conditions.push_back(random_condition(random));
  return p;
}

TEST_F(StructuredWriterTest, AgreesWithAModelOfPatterns) {
  Random random(7);
  std::size_t items_made = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<ItemPattern> patterns;
    for (std::uint64_t i = 0; i < 1 + random.next() % 3; ++i) {
      patterns.push_back(random_pattern(random));
    }
    service_->drop_items("replay");
    open(patterns, 3);
    Model model(patterns, 3);
    std::int64_t next_value = 0;
    for (int step = 0; step < 40; ++step) {
      // A step in one or two parts, some of whose leaves may be missing.
      std::vector<std::optional<std::int64_t>> parts[2] = {{{}, {}, {}}, {{}, {}, {}}};
      for (std::size_t leaf = 0; leaf < 3; ++leaf) {
        if (random.next() % 8 == 0) continue;
        parts[random.next() % 2][leaf] = next_value++ % 50;
      }
      for (int part = 0; part < 2; ++part) {
        std::vector<std::optional<Value>> values(3);
        for (std::size_t leaf = 0; leaf < 3; ++leaf) {
          if (parts[part][leaf]) values[leaf] = i64(*parts[part][leaf]);
        }
        const bool partial = part == 0 || (step % 13 == 5 && random.next() % 2 == 0);
        ASSERT_TRUE(append(values, partial).ok());
        model.append(parts[part], partial);
        if (part == 1 && partial) break;
      }
      if (writer_->step_is_open() || random.next() % 12 == 0) {
        const bool clear_buffers = random.next() % 2 == 0;
        ASSERT_TRUE(end(clear_buffers).ok());
        model.end(clear_buffers);
      }
    }
    ASSERT_EQ(items(), model.items) << "round " << round;
    items_made += model.items.size();
  }
  EXPECT_GT(items_made, 2'000u);
}

}  // namespace
}  // namespace reverie
