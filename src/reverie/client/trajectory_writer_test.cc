#include "reverie/client/trajectory_writer.h"

#include <atomic>
#include <limits>
#include <map>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/log.h"
#include "reverie/base/random.h"
#include "tests/support/fake_replay_service.h"
#include "tests/support/flaky_service.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

using Cells = std::vector<std::vector<std::byte>>;

// The rows of one column of an item, read through its pieces.
Cells rows_of(const Trajectory& trajectory, std::size_t column) {
  const LayoutColumn& c = trajectory.layout().columns()[column];
  Cells rows;
  for (std::size_t p = c.piece_begin; p < c.piece_end; ++p) {
    const Piece& piece = trajectory.pieces()[p];
    for (std::uint32_t r = 0; r < piece.length; ++r) {
      rows.push_back(bytes_of(piece.chunk->row_bytes(c.chunk_column, piece.offset + r)));
    }
  }
  return rows;
}

// A writer with a fake service, whose table "replay" admits everything.
class Fixture : public ::testing::Test {
 protected:
  void open(TrajectoryWriterOptions options) {
    if (writer_) writer_->close();
    options.seed = 1;
    options.clock = &clock_;
    writer_ = TrajectoryWriter::open(service_, options).value();
  }
  void SetUp() override {
    service_->add_table("replay");
    open({.chunks = {.num_keep_alive_refs = 4, .chunk_length = 3}});
  }

  // Closed first, since the clock does not advance and a last flush would never end.
  void TearDown() override {
    if (writer_) writer_->close();
  }

  Status append(const std::vector<std::pair<std::string, Value>>& values, bool partial = false) {
    std::vector<ColumnValue> views;
    for (const auto& [name, value] : values) views.push_back({writer_->column(name), value.view()});
    return writer_->append(views, partial);
  }
  Status append_x(float x) { return append({{"x", f32(x)}}); }

  // Creates an item over a range of steps of one column.
  Status create(StepRange range, const std::string& table = "replay", double priority = 1.0,
                const std::string& column = "x") {
    const TrajectoryColumn c{column, writer_->column(column), {&range, 1}};
    return writer_->create_item({table, priority, {&c, 1}, "{}"}, deadline_, {});
  }
  Status create_last() { return create({writer_->next_step() - 1, 1}); }

  ManualClock clock_;
  std::shared_ptr<FakeReplayService> service_ = std::make_shared<FakeReplayService>();
  std::unique_ptr<TrajectoryWriter> writer_;
  TimePoint deadline_ = TimePoint::max();
};

using TrajectoryWriterTest = Fixture;

TEST_F(TrajectoryWriterTest, AnItemIsInItsTableOnReturn) {
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(append_x(2).ok());
  ASSERT_TRUE(create({0, 2}).ok());
  ASSERT_EQ(service_->size("replay"), 1u);
  const Trajectory& trajectory = service_->item("replay", 0).trajectory;
  EXPECT_EQ(rows_of(trajectory, 0), (Cells{f32(1).bytes, f32(2).bytes}));
  EXPECT_EQ(trajectory.layout().columns()[0].spec.name, "x");
  EXPECT_EQ(trajectory.layout().structure(), "{}");
  EXPECT_EQ(service_->item("replay", 0).priority, 1.0);
  EXPECT_EQ(writer_->pending_items(), 0u);
}

TEST_F(TrajectoryWriterTest, ItemsOverTheSameStepsShareTheirChunkAndLayout) {
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(append_x(2).ok());
  ASSERT_TRUE(create({0, 1}).ok());
  ASSERT_TRUE(create({1, 1}).ok());
  const Item& first = service_->item("replay", 0);
  const Item& second = service_->item("replay", 1);
  EXPECT_EQ(first.trajectory.pieces()[0].chunk, second.trajectory.pieces()[0].chunk);
  EXPECT_EQ(&first.trajectory.layout(), &second.trajectory.layout());
  EXPECT_NE(first.key, second.key);
}

TEST_F(TrajectoryWriterTest, ItemsOfTheSameShapeShareALayoutPerPieceCount) {
  std::map<std::uint32_t, const Layout*> layouts;
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(append_x(static_cast<float>(i)).ok());
    if (i == 0) continue;
    ASSERT_TRUE(create({writer_->next_step() - 2, 2}).ok());
    const Layout& layout =
        service_->item("replay", service_->size("replay") - 1).trajectory.layout();
    const auto [found, is_new] = layouts.emplace(layout.piece_count(), &layout);
    EXPECT_EQ(found->second, &layout);
  }
  EXPECT_EQ(layouts.size(), 2u);  // two steps are in one chunk or in two
}

// Rows [4, 2, 0] and [1, 3]: such slices must not be merged into one run.
TEST_F(TrajectoryWriterTest, NonAdjacentRowsStaySeparate) {
  open({.chunks = {.num_keep_alive_refs = 9, .chunk_length = 9}});
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(append({{"x", f32(static_cast<float>(i))}, {"y", i64(i)}}).ok());
  const std::vector<StepRange> backwards = {{4, 1}, {2, 1}, {0, 1}};
  const std::vector<StepRange> odd = {{1, 1}, {3, 1}};
  const StepRange last{4, 1};
  const std::vector<TrajectoryColumn> columns = {{"a", writer_->column("x"), backwards},
                                                 {"b", writer_->column("x"), odd},
                                                 {"c", writer_->column("y"), {&last, 1}, true}};
  ASSERT_TRUE(writer_->create_item({"replay", 1.0, columns, ""}, deadline_, {}).ok());
  const Trajectory& trajectory = service_->item("replay", 0).trajectory;
  EXPECT_EQ(rows_of(trajectory, 0), (Cells{f32(4).bytes, f32(2).bytes, f32(0).bytes}));
  EXPECT_EQ(rows_of(trajectory, 1), (Cells{f32(1).bytes, f32(3).bytes}));
  EXPECT_EQ(rows_of(trajectory, 2), (Cells{i64(4).bytes}));
  EXPECT_TRUE(trajectory.layout().columns()[2].squeezed);
  EXPECT_TRUE(check_trajectory(trajectory.view()).ok());
}

TEST_F(TrajectoryWriterTest, AdjacentSingleStepsFormOnePiece) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(append_x(static_cast<float>(i)).ok());
  const std::vector<StepRange> one_by_one = {{0, 1}, {1, 1}, {2, 1}};
  const TrajectoryColumn column{"x", writer_->column("x"), one_by_one};
  ASSERT_TRUE(writer_->create_item({"replay", 1.0, {&column, 1}, ""}, deadline_, {}).ok());
  EXPECT_EQ(service_->item("replay", 0).trajectory.pieces().size(), 1u);
}

TEST_F(TrajectoryWriterTest, AnItemMayReferToTheOpenStep) {
  ASSERT_TRUE(append({{"x", f32(1)}, {"y", f32(10)}}).ok());
  ASSERT_TRUE(append({{"x", f32(2)}}, /*partial=*/true).ok());
  ASSERT_TRUE(create({0, 2}).ok());
  expect_refused(create({0, 2}, "replay", 1.0, "y"), StatusCode::kInvalidArgument,
                 {"'y'", "no value", "step 1"});
  ASSERT_TRUE(append({{"y", f32(20)}}).ok());
  ASSERT_TRUE(create({0, 2}, "replay", 1.0, "y").ok());
  EXPECT_EQ(rows_of(service_->item("replay", 0).trajectory, 0),
            (Cells{f32(1).bytes, f32(2).bytes}));
  EXPECT_EQ(rows_of(service_->item("replay", 1).trajectory, 0),
            (Cells{f32(10).bytes, f32(20).bytes}));
}

// The service that sends the item only sees complete rows, which are never written again.
TEST_F(TrajectoryWriterTest, AnItemOverTheOpenStepPublishesItsRow) {
  ASSERT_TRUE(append({{"x", f32(1)}, {"y", f32(10)}}).ok());
  ASSERT_TRUE(append({{"x", f32(2)}}, /*partial=*/true).ok());
  ASSERT_TRUE(create({0, 2}).ok());
  const Piece piece = service_->item("replay", 0).trajectory.pieces()[0];
  EXPECT_EQ(piece.chunk->rows(), 2u);
  ASSERT_TRUE(create({1, 1}).ok());
  EXPECT_EQ(service_->item("replay", 1).trajectory.pieces()[0].chunk, piece.chunk);
  ASSERT_TRUE(append({{"y", f32(20)}}).ok());
  ASSERT_TRUE(create({0, 2}, "replay", 1.0, "y").ok());
  const auto pieces = service_->item("replay", 2).trajectory.pieces();
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].chunk, piece.chunk);
  EXPECT_NE(pieces[1].chunk, piece.chunk);
  EXPECT_EQ(bytes_of(piece.chunk->row_bytes(1, 1)), f32(0).bytes);
  // A published row that gets no further cell stays in its chunk.
  ASSERT_TRUE(append({{"x", f32(3)}}, /*partial=*/true).ok());
  ASSERT_TRUE(create({2, 1}).ok());
  ASSERT_TRUE(append({}).ok());
  ASSERT_TRUE(create({2, 1}).ok());
  EXPECT_EQ(service_->item("replay", 3).trajectory.pieces()[0].chunk,
            service_->item("replay", 4).trajectory.pieces()[0].chunk);
  EXPECT_EQ(rows_of(service_->item("replay", 4).trajectory, 0), Cells{f32(3).bytes});
}

// When a column first appears in the open step, the row moves to a chunk that has the column; an
// item that refers to the row keeps the old chunk.
TEST_F(TrajectoryWriterTest, AColumnMayFirstAppearInTheOpenStep) {
  ASSERT_TRUE(append({{"x", f32(1)}}, /*partial=*/true).ok());
  ASSERT_TRUE(create({0, 1}).ok());
  ASSERT_TRUE(append({{"late", i64(5)}}, /*partial=*/true).ok());
  ASSERT_TRUE(append({{"later", text("words")}}).ok());
  ASSERT_TRUE(create({0, 1}).ok());
  ASSERT_TRUE(create({0, 1}, "replay", 1.0, "late").ok());
  ASSERT_TRUE(create({0, 1}, "replay", 1.0, "later").ok());
  EXPECT_EQ(rows_of(service_->item("replay", 0).trajectory, 0), Cells{f32(1).bytes});
  EXPECT_EQ(rows_of(service_->item("replay", 1).trajectory, 0), Cells{f32(1).bytes});
  EXPECT_EQ(rows_of(service_->item("replay", 2).trajectory, 0), Cells{i64(5).bytes});
  EXPECT_EQ(rows_of(service_->item("replay", 3).trajectory, 0), Cells{text("words").bytes});
  EXPECT_EQ(service_->item("replay", 0).trajectory.pieces()[0].chunk->rows(), 1u);
}

TEST_F(TrajectoryWriterTest, AnItemMaySpanEpisodesWhenTheirCellsAreKept) {
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(writer_->end_episode(/*clear_buffers=*/false, deadline_, {}).ok());
  ASSERT_TRUE(append_x(2).ok());
  ASSERT_TRUE(create({0, 2}).ok());
  EXPECT_EQ(rows_of(service_->item("replay", 0).trajectory, 0),
            (Cells{f32(1).bytes, f32(2).bytes}));
  EXPECT_EQ(writer_->episode_begin(), 1u);
  EXPECT_EQ(writer_->episode_steps(), 1u);
  ASSERT_TRUE(writer_->end_episode(/*clear_buffers=*/true, deadline_, {}).ok());
  expect_refused(create({1, 1}), StatusCode::kInvalidArgument, {"'x'", "step 1", "expired"});
}

TEST_F(TrajectoryWriterTest, ItemsOutliveTheWriterAndItsHistory) {
  ASSERT_TRUE(append({{"x", text("kept")}}).ok());
  ASSERT_TRUE(create({0, 1}).ok());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(append({{"x", text("later")}}).ok());
  writer_.reset();
  EXPECT_EQ(rows_of(service_->item("replay", 0).trajectory, 0), Cells{text("kept").bytes});
}

TEST_F(TrajectoryWriterTest, RowsThatNoItemUsesAreFreedWhenTheyExpire) {
  class CountingAllocator final : public Allocator, public BufferOwner {
   public:
    Result<Buffer> allocate(std::size_t size_bytes) override {
      ++live;
      return Buffer(new std::byte[size_bytes], size_bytes, this);
    }
    void take_back(std::byte* data, std::size_t) noexcept override {
      --live;
      delete[] data;
    }
    int live = 0;
  };
  CountingAllocator allocator;
  open({.chunks = {.num_keep_alive_refs = 4, .chunk_length = 2}, .allocator = &allocator});
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(append_x(1).ok());
    EXPECT_LE(allocator.live, 3);  // 4 rows in chunks of 2, with the first chunk half expired
  }
  ASSERT_TRUE(writer_->end_episode(true, deadline_, {}).ok());
  EXPECT_EQ(allocator.live, 0);
}

TEST_F(TrajectoryWriterTest, AFullTableQueuesItemsInOrder) {
  service_->add_table("full", 1);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(append_x(2).ok());
  ASSERT_TRUE(append_x(3).ok());
  for (StepIndex step = 0; step < 3; ++step) ASSERT_TRUE(create({step, 1}, "full").ok());
  EXPECT_EQ(service_->size("full"), 1u);
  EXPECT_EQ(writer_->pending_items(), 2u);
  ASSERT_TRUE(create_last().ok()) << "another table has room";
  service_->admit("full", 1);
  EXPECT_EQ(writer_->pending_items(), 1u);
  service_->admit("full", 1);
  EXPECT_TRUE(writer_->flush(0, deadline_, {}).ok());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows_of(service_->item("full", i).trajectory, 0),
              Cells{f32(static_cast<float>(i + 1)).bytes});
  }
}

TEST_F(TrajectoryWriterTest, AFlushThatTimesOutSaysHowManyItemsWait) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  EXPECT_TRUE(writer_->flush(2, clock_.now(), {}).ok());
  expect_refused(writer_->flush(1, clock_.now(), {}), StatusCode::kDeadlineExceeded,
                 {"2 items", "1 are permitted"});
  service_->admit("full", 1);
  EXPECT_TRUE(writer_->flush(1, clock_.now(), {}).ok());
}

TEST_F(TrajectoryWriterTest, AFlushThatTimesOutWithoutAServerSaysWhyThereIsNone) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  expect_refused(writer_->flush(0, clock_.now(), {}), StatusCode::kDeadlineExceeded,
                 {"rate limiter"});
  service_->set_unreachable(unavailable("the cable is cut"));
  expect_refused(writer_->flush(0, clock_.now(), {}), StatusCode::kDeadlineExceeded,
                 {"rate limiter"});  // it had no time to ask
  // It asks whether it is interrupted once it waits: then the time is up.
  std::atomic<bool> has_begun{false};
  std::thread time([&] {
    while (!has_begun) clock_.advance(std::chrono::milliseconds(100));
  });
  constexpr Duration kLimit = std::chrono::hours(100'000);
  WaitOptions wait;
  wait.interrupted = [&] {
    if (!has_begun.exchange(true)) clock_.advance(kLimit);
    return false;
  };
  const Status status = writer_->flush(0, clock_.now() + kLimit, wait);
  has_begun = true;
  time.join();
  expect_refused(status, StatusCode::kDeadlineExceeded, {"1 items", "the cable is cut"});
  EXPECT_EQ(status.message().find("rate limiter"), std::string::npos) << status.message();
}

TEST_F(TrajectoryWriterTest, AnEpisodeContinuesWhenItsFlushTimesOut) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(append({{"x", f32(2)}}, /*partial=*/true).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  EXPECT_EQ(writer_->end_episode(true, clock_.now(), {}).code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(writer_->step_is_open());
  EXPECT_EQ(writer_->episode_begin(), 0u);
  ASSERT_TRUE(append({{"y", f32(3)}}).ok());
  EXPECT_EQ(writer_->episode_steps(), 2u);
  ASSERT_TRUE(create({0, 2}).ok());
}

TEST_F(TrajectoryWriterTest, WaitsWhileTooManyItemsAreQueued) {
  open({.max_in_flight_items = 2});
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  deadline_ = clock_.now();
  expect_refused(create({0, 1}, "full"), StatusCode::kDeadlineExceeded,
                 {"2 items", "1 are permitted"});
  EXPECT_EQ(service_->waiting("full"), 2u) << "the refused item was queued";
  deadline_ = TimePoint::max();
  std::thread table([&] { service_->admit("full", 1); });
  EXPECT_TRUE(create({0, 1}, "full").ok());
  table.join();
  EXPECT_EQ(service_->size("full"), 1u);
  EXPECT_EQ(service_->waiting("full"), 2u);
}

TEST_F(TrajectoryWriterTest, AWaitCanBeInterrupted) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  WaitOptions wait;
  std::atomic<int> asked = 0;
  wait.interrupted = [&] { return ++asked == 3; };
  std::thread time([&] {
    // Each poll of the writer waits for the clock; the loop ends when the wait has ended.
    while (writer_->pending_items() == 1 && asked < 3)
      clock_.advance(std::chrono::milliseconds(50));
  });
  const Status status = writer_->flush(0, deadline_, wait);
  time.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(asked, 3);
}

TEST_F(TrajectoryWriterTest, ALossIsReportedOnceAndTheWriterContinues) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  service_->fail_first("full", failed_precondition("the table is broken"));
  service_->fail_first("full", failed_precondition("the table is broken"));
  expect_refused(append_x(2), StatusCode::kFailedPrecondition,
                 {"2 queued items", "'full'", "the table is broken"});
  EXPECT_EQ(writer_->next_step(), 1u) << "the call that tells of a loss does nothing else";
  ASSERT_TRUE(append_x(2).ok());
  ASSERT_TRUE(create_last().ok());
  EXPECT_TRUE(writer_->flush(0, deadline_, {}).ok());
}

TEST_F(TrajectoryWriterTest, ALossEndsAFlush) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  std::thread table([&] { service_->fail_first("full", unavailable("gone")); });
  const Status status = writer_->flush(0, deadline_, {});
  table.join();
  expect_refused(status, StatusCode::kUnavailable, {"1 queued item", "'full'", "gone"});
}

TEST_F(TrajectoryWriterTest, WithoutValidationARefusalByTheTableIsReturned) {
  open({.validate_items = false});
  ASSERT_TRUE(append_x(1).ok());
  EXPECT_EQ(create({0, 1}, "nowhere").code(), StatusCode::kNotFound);
  EXPECT_EQ(service_->info_calls(), 0u);
  EXPECT_TRUE(create_last().ok());
}

TEST_F(TrajectoryWriterTest, UnknownTablesAreRefusedWithTheListOfTables) {
  service_->add_table("other");
  ASSERT_TRUE(append_x(1).ok());
  expect_refused(create({0, 1}, "nowhere"), StatusCode::kNotFound,
                 {"'nowhere'", "'other', 'replay'"});
  EXPECT_TRUE(create_last().ok());
}

TEST_F(TrajectoryWriterTest, SignaturesAreFetchedOnceAndEnforced) {
  service_->add_table("typed", FakeReplayService::kUnlimited,
                      Signature{{{"x", DType::kFloat32, {2}}}, ""});
  service_->add_table("double", FakeReplayService::kUnlimited,
                      Signature{{{"x", DType::kFloat64, {-1}}}, ""});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(append_x(1).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(create({0, 2}, "typed").ok());
  expect_refused(create({0, 3}, "typed"), StatusCode::kInvalidArgument,
                 {"'typed'", "x: float32 (3,)", "x: float32 (2,)"});
  expect_refused(create({0, 3}, "double"), StatusCode::kInvalidArgument,
                 {"'double'", "x: float32 (3,)", "x: float64 (?,)"});
  EXPECT_EQ(service_->info_calls(), 1u);
  EXPECT_EQ(service_->size("typed"), 3u);
}

TEST_F(TrajectoryWriterTest, WaitsForASignatureUntilItsDeadline) {
  const auto silent = std::make_shared<testing::FlakyService>(service_);
  silent->set(testing::FlakyService::Mode::kSilent);
  writer_ = TrajectoryWriter::open(silent, {.clock = &clock_, .seed = 1}).value();
  ASSERT_TRUE(append_x(1).ok());
  deadline_ = clock_.now();
  expect_refused(create_last(), StatusCode::kDeadlineExceeded, {"no server answered"});
  EXPECT_EQ(silent->held(), 0u) << "the question was not withdrawn";
  silent->set(testing::FlakyService::Mode::kUp);
  deadline_ = TimePoint::max();
  EXPECT_TRUE(create_last().ok());
  EXPECT_EQ(service_->size("replay"), 1u);
}

TEST_F(TrajectoryWriterTest, RefusesInvalidItems) {
  ASSERT_TRUE(append({{"x", f32(1)}, {"y", f32(1)}}).ok());
  ASSERT_TRUE(append_x(2).ok());
  expect_refused(create({0, 1}, "replay", std::numeric_limits<double>::quiet_NaN()),
                 StatusCode::kInvalidArgument, {"priority", "NaN", "'replay'"});
  expect_refused(writer_->create_item({"replay", 1.0, {}, ""}, deadline_, {}),
                 StatusCode::kInvalidArgument, {"no columns"});
  expect_refused(create({0, 0}), StatusCode::kInvalidArgument, {"'x'", "no rows"});
  expect_refused(create({1, 2}), StatusCode::kInvalidArgument, {"'x'", "step 2", "2 steps"});
  expect_refused(create({~StepIndex{0}, 2}), StatusCode::kInvalidArgument, {"'x'", "2 steps"});
  expect_refused(create({0, 2}, "replay", 1.0, "y"), StatusCode::kInvalidArgument,
                 {"'y'", "no value", "step 1"});
  expect_refused(create({0, 1}, "replay", 1.0, "never"), StatusCode::kInvalidArgument,
                 {"'never'", "no values yet"});
  const StepRange both{0, 2};
  const TrajectoryColumn squeezed{"s", writer_->column("x"), {&both, 1}, true};
  expect_refused(writer_->create_item({"replay", 1.0, {&squeezed, 1}, ""}, deadline_, {}),
                 StatusCode::kInvalidArgument, {"'s'", "squeezed", "2 rows"});
  const TrajectoryColumn unknown{"u", 99, {&both, 1}};
  expect_refused(writer_->create_item({"replay", 1.0, {&unknown, 1}, ""}, deadline_, {}),
                 StatusCode::kInvalidArgument, {"'u'", "99"});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(append_x(3).ok());
  expect_refused(create({1, 1}), StatusCode::kInvalidArgument,
                 {"'x'", "step 1", "expired", "4", "num_keep_alive_refs"});
  EXPECT_EQ(service_->size("replay"), 0u);
  EXPECT_TRUE(create_last().ok());
}

TEST_F(TrajectoryWriterTest, RefusesBoundsOfZero) {
  const auto code = [&](TrajectoryWriterOptions options) {
    return TrajectoryWriter::open(service_, options).status().code();
  };
  EXPECT_EQ(code({.max_in_flight_items = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.chunks = {.num_keep_alive_refs = 0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.chunks = {.chunk_length = 0}}), StatusCode::kInvalidArgument);
}

TEST_F(TrajectoryWriterTest, EveryCallAfterCloseIsRefused) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  EXPECT_FALSE(writer_->closed());
  writer_->close();
  writer_->close();
  EXPECT_TRUE(writer_->closed());
  EXPECT_EQ(service_->waiting("full"), 0u) << "close cancels what is queued";
  EXPECT_EQ(writer_->pending_items(), 0u);
  for (const Status& status :
       {append_x(2), create_last(), writer_->flush(0, deadline_, {}),
        writer_->end_episode(true, deadline_, {}), writer_->configure("x", {})}) {
    expect_refused(status, StatusCode::kFailedPrecondition, {"closed"});
  }
}

TEST_F(TrajectoryWriterTest, CloseFromAnotherThreadEndsAWait) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  std::thread closer([&] { writer_->close(); });
  const Status status = writer_->flush(0, deadline_, {});
  closer.join();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
}

TEST_F(TrajectoryWriterTest, AnItemAddedWhileOthersAreAdmittedIsNeverLostOrCountedTwice) {
  constexpr int kItems = 2'000;
  open({.max_in_flight_items = 5});
  service_->add_table("slow", 0);
  ASSERT_TRUE(append_x(1).ok());
  std::thread table([&] {
    for (int i = 0; i < kItems; ++i) service_->admit("slow", 1);
  });
  for (int i = 0; i < kItems; ++i) ASSERT_TRUE(create({0, 1}, "slow").ok());
  EXPECT_TRUE(writer_->flush(0, deadline_, {}).ok());
  table.join();
  EXPECT_EQ(service_->size("slow"), static_cast<std::size_t>(kItems));
  EXPECT_EQ(writer_->pending_items(), 0u);
}

class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](LogLevel, std::string_view line) { lines.emplace_back(line); });
  }
  ~CapturedLog() { set_log_sink({}); }
  std::vector<std::string> lines;
};

TEST_F(TrajectoryWriterTest, AWriterDroppedUnclosedWarnsWithTheNumberOfItemsLost) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(create({0, 1}, "full").ok());
  CapturedLog log;
  std::atomic<bool> is_gone = false;
  std::thread time([&] {
    while (!is_gone) clock_.advance(std::chrono::milliseconds(100));
  });
  const TimePoint before = clock_.now();
  writer_.reset();
  is_gone = true;
  time.join();
  EXPECT_GE(clock_.now() - before, std::chrono::seconds(1));
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_NE(log.lines[0].find("3 of its items"), std::string::npos) << log.lines[0];
  EXPECT_EQ(service_->waiting("full"), 0u);
}

TEST_F(TrajectoryWriterTest, AWriterDroppedUnclosedReportsLosses) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  service_->fail_first("full", unavailable("gone"));
  CapturedLog log;
  writer_.reset();
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_NE(log.lines[0].find("'full'"), std::string::npos) << log.lines[0];
}

TEST_F(TrajectoryWriterTest, AWriterWithNothingToLoseIsDestroyedWithoutAWarning) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  CapturedLog log;
  ASSERT_TRUE(create_last().ok());
  writer_.reset();
  open({});
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  writer_->close();
  writer_.reset();
  EXPECT_TRUE(log.lines.empty());
}

TEST_F(TrajectoryWriterTest, ClosingTheServiceFirstReportsTheLossToTheWriter) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  service_->close();
  expect_refused(append_x(1), StatusCode::kCancelled, {"1 queued item", "'full'"});
}

TEST_F(TrajectoryWriterTest, CallsInAForkedChildAreRefused) {
  service_->add_table("full", 0);
  ASSERT_TRUE(append_x(1).ok());
  ASSERT_TRUE(create({0, 1}, "full").ok());
  const pid_t child = fork();
  if (child == 0) {
    bool refused = true;
    for (const Status& status :
         {append_x(2), create_last(), writer_->flush(0, deadline_, {}),
          writer_->end_episode(true, deadline_, {}), writer_->configure("x", {})}) {
      refused = refused && status.code() == StatusCode::kFailedPrecondition &&
                status.message().find("fork") != std::string::npos;
    }
    writer_.reset();  // must not flush, warn or hang
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(append_x(2).ok()) << "the parent goes on";
  service_->admit("full", 1);
}

TEST_F(TrajectoryWriterTest, ASeedDecidesTheKeys) {
  const auto keys = [&](std::uint64_t seed) {
    const auto service = std::make_shared<FakeReplayService>();
    service->add_table("replay");
    const auto writer = TrajectoryWriter::open(service, {.seed = seed}).value();
    const ColumnId x = writer->column("x");
    const Value value = f32(1);
    const StepRange range{0, 1};
    const TrajectoryColumn column{"x", x, {&range, 1}};
    REVERIE_CHECK(writer->append(std::vector<ColumnValue>{{x, value.view()}}, false).ok());
    for (int i = 0; i < 2; ++i) {
      REVERIE_CHECK(writer->create_item({"replay", 1.0, {&column, 1}, ""}, deadline_, {}).ok());
    }
    const Item& item = service->item("replay", 0);
    return std::vector<std::uint64_t>{item.key, service->item("replay", 1).key,
                                      item.trajectory.pieces()[0].chunk->key(),
                                      item.trajectory.pieces()[0].chunk->episode()};
  };
  EXPECT_EQ(keys(5), keys(5));
  EXPECT_NE(keys(5), keys(6));
}

// Random steps, partial steps, episodes, and items over random slices. The model keeps every cell
// ever written; each item must hold the model's rows, at once and at the end.
TEST_F(TrajectoryWriterTest, ItemsAgreeWithAModelThatForgetsNothing) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    service_->drop_items("replay");
    open({.chunks = {
              .num_keep_alive_refs = 12,
              .chunk_length = seed % 2 == 0 ? std::nullopt : std::optional<std::uint32_t>(seed)}});
    ASSERT_TRUE(writer_->configure("d", {.num_keep_alive_refs = 6, .chunk_length = 2}).ok());
    const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
    std::map<std::string, std::map<StepIndex, std::vector<std::byte>>> model;
    std::vector<std::vector<Cells>> expected;
    for (int i = 0; i < 400; ++i) {
      std::vector<std::pair<std::string, Value>> values;
      const StepIndex step = writer_->next_step();
      for (const std::string& name : names) {
        if (random.below(6) == 0 || model[name].contains(step)) continue;
        if (name == "e" && i < 100) continue;
        const auto x = static_cast<float>(random.uniform());
        values.emplace_back(name, name == "c"   ? text(std::string(random.below(30), 'c'))
                                  : name == "b" ? i64(static_cast<std::int64_t>(random.next()))
                                                : f32s({x, x + 1, static_cast<float>(i)}));
        model[name][step] = values.back().second.bytes;
      }
      ASSERT_TRUE(append(values, /*partial=*/random.below(5) == 0).ok());
      if (random.below(50) == 0) {
        ASSERT_TRUE(writer_->end_episode(random.below(2) == 0, deadline_, {}).ok());
      }
      std::vector<TrajectoryColumn> columns;
      std::vector<std::vector<StepRange>> ranges(names.size());
      std::vector<Cells> rows;
      for (std::size_t c = 0; c < names.size(); ++c) {
        const ColumnId id = writer_->column(names[c]);
        Cells cells;
        for (int r = 0; r < 3; ++r) {
          const StepIndex begin =
              writer_->next_step() - std::min<StepIndex>(writer_->next_step(), random.below(8));
          StepRange range{begin, 0};
          while (range.length < 3 && writer_->has_cell(id, begin + range.length)) {
            cells.push_back(model[names[c]].at(begin + range.length));
            ++range.length;
          }
          if (range.length > 0) ranges[c].push_back(range);
        }
        if (cells.empty()) continue;
        columns.push_back({names[c], id, ranges[c], cells.size() == 1});
        rows.push_back(std::move(cells));
      }
      if (columns.empty()) continue;
      ASSERT_TRUE(writer_->create_item({"replay", 1.0, columns, "s"}, deadline_, {}).ok());
      expected.push_back(std::move(rows));
    }
    ASSERT_TRUE(writer_->end_episode(true, deadline_, {}).ok());
    ASSERT_EQ(service_->size("replay"), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Trajectory& trajectory = service_->item("replay", i).trajectory;
      ASSERT_TRUE(check_trajectory(trajectory.view()).ok());
      for (std::size_t c = 0; c < expected[i].size(); ++c) {
        ASSERT_EQ(rows_of(trajectory, c), expected[i][c]) << "seed " << seed << " item " << i;
      }
    }
  }
}

}  // namespace
}  // namespace reverie
