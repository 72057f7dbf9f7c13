#include "reverie/checkpoint/checkpoint_worker.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "reverie/checkpoint/folder.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "tests/support/eventually.h"
#include "tests/support/hooked_file_system.h"
#include "tests/support/items.h"
#include "tests/support/no_new_threads.h"
#include "tests/support/refusal.h"

namespace reverie::checkpoint {
namespace {

// A clock that moves only in steps: to the end of the wait of the one thread that waits by it.
// After a step, that thread has done all that was due then, and waits again.
class SteppedClock final : public Clock {
 public:
  TimePoint now() const override { return {now_ns_.load()}; }
  bool wait_until(CondVar& condition, Mutex& mutex, TimePoint deadline) override
      REVERIE_REQUIRES(mutex) {
    waits_until_ns_ = deadline.ns;
    if (now() >= deadline) return false;
    condition.wait_for(mutex, std::chrono::milliseconds(1));
    return now() < deadline;
  }
  // False if the thread does not wait.
  [[nodiscard]] bool step() {
    if (!is_waited_for()) return false;
    now_ns_ = waits_until_ns_.load();
    return is_waited_for();
  }

 private:
  bool is_waited_for() {
    return test::eventually([&] { return waits_until_ns_ > now_ns_; });
  }

  std::atomic<std::int64_t> now_ns_{0};
  std::atomic<std::int64_t> waits_until_ns_{0};
};

// A worker that writes a checkpoint whenever its store's journal has a record.
class CheckpointWorkerTest : public ::testing::Test {
 protected:
  CheckpointWorkerTest() {
    CheckpointerOptions options;
    options.files = &files_;
    options.journal = {.durability = Durability::kSync, .has_thread = false};
    auto checkpointer = Checkpointer::open(folder_.string(), options).value();
    service_ =
        checkpointer
            ->open_store(
                {testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))}, {})
            .value();
    insert();
    WorkerOptions worker;
    worker.every_journal_bytes = 1;
    worker.clock = &clock_;
    worker_ = CheckpointWorker::open(*service_, std::move(checkpointer), worker).value();
  }
  ~CheckpointWorkerTest() override {
    worker_.reset();
    service_.reset();
    std::filesystem::remove_all(folder_);
  }

  void insert() {
    Item item = testing::make_item(++last_key_, 1.0);
    EXPECT_TRUE(insert_and_wait(*service_, {"t", {&item, 1}}).status.ok());
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / format("reverie-worker-{}", getpid());
  testing::HookedFileSystem files_{FileSystem::system()};
  SteppedClock clock_;
  std::shared_ptr<LocalService> service_;
  std::unique_ptr<CheckpointWorker> worker_;
  ItemKey last_key_ = 0;
};

TEST_F(CheckpointWorkerTest, CancellingARequestThatWaitsDoesNotAbandonAPeriodicCheckpoint) {
  Status asked;
  files_.before_create_folder = [&]() -> Status {
    const RequestId id =
        worker_->checkpoint({}, [&](const Result<std::string>& path) { asked = path.status(); });
    worker_->cancel(id);
    return {};
  };
  ASSERT_TRUE(clock_.step());
  EXPECT_EQ(asked.code(), StatusCode::kCancelled) << asked.to_string();
  EXPECT_EQ(service_->log()->size_bytes(), 0u) << "the journal begins again after a checkpoint";
  EXPECT_EQ(checkpoints(files_, folder_.string()).value(), std::vector<std::uint64_t>{1});
}

TEST_F(CheckpointWorkerTest, CancellingTheRequestThatIsBeingWrittenLeavesNoCheckpoint) {
  std::atomic<bool> is_written{false};
  files_.before_create_folder = [&]() -> Status {
    worker_->cancel(StoreCheckpoints::kCheckpointIds | 1);
    return {};
  };
  (void)worker_->checkpoint({}, [](const Result<std::string>& path) {
    EXPECT_EQ(path.status().code(), StatusCode::kCancelled) << path.status().to_string();
  });
  (void)worker_->checkpoint({}, [&](const Result<std::string>& path) {
    EXPECT_TRUE(path.ok()) << path.status().to_string();
    is_written = true;
  });
  ASSERT_TRUE(test::eventually([&] { return is_written.load(); }));
  EXPECT_EQ(checkpoints(files_, folder_.string()).value(), std::vector<std::uint64_t>{1});
}

TEST_F(CheckpointWorkerTest, RequestsBeyondTheBoundAreRefusedAndCancelledOnesLeaveTheirPlace) {
  constexpr std::size_t kMost = CheckpointWorker::kWaitingMax;
  std::atomic<std::size_t> written{0};
  Status refused;
  const auto ask = [&] {
    return worker_->checkpoint(std::vector<std::byte>(8), [&](const Result<std::string>& path) {
      if (path.ok()) {
        ++written;
      } else {
        refused = path.status();
      }
    });
  };
  files_.before_create_folder = [&, has_asked = false]() mutable -> Status {
    if (std::exchange(has_asked, true)) return {};
    std::vector<RequestId> ids;
    while (refused.ok()) ids.push_back(ask());
    EXPECT_EQ(ids.size(), kMost + 1);
    EXPECT_EQ(ids.back(), RequestId{0});
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(refused.message().find(format("the bound is {}; wait", kMost)), std::string::npos)
        << refused.message();
    worker_->cancel(ids[2]);
    EXPECT_EQ(std::exchange(refused, Status()).code(), StatusCode::kCancelled);
    EXPECT_NE(ask(), RequestId{0});
    EXPECT_TRUE(refused.ok()) << refused.to_string();
    return {};
  };
  ASSERT_TRUE(clock_.step());
  ASSERT_TRUE(test::eventually([&] { return written.load() == kMost; }));
}

// A server's I/O thread asks for the origin, and so does a thread that holds the interpreter's
// lock.
TEST_F(CheckpointWorkerTest, TheOriginIsKnownWhileACheckpointIsWritten) {
  std::future<StoreOrigin> origin;
  bool is_known = false;
  files_.before_create_folder = [&]() -> Status {
    origin = std::async(std::launch::async, [&] { return worker_->origin(); });
    is_known = origin.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    return {};
  };
  ASSERT_TRUE(clock_.step());
  EXPECT_TRUE(is_known);
}

TEST_F(CheckpointWorkerTest, FailedCheckpointsOfALargeJournalAreTriedAgainAfterGrowingPauses) {
  std::vector<TimePoint> tries;
  std::atomic<bool> is_full{true};
  files_.before_create_folder = [&] {
    tries.push_back(clock_.now());
    return is_full ? resource_exhausted("no space") : Status();
  };
  const auto step_until = [&](std::size_t count) {
    while (tries.size() < count && clock_.step()) {
    }
    ASSERT_EQ(tries.size(), count);
  };
  ASSERT_NO_FATAL_FAILURE(step_until(9));
  std::vector<std::int64_t> pauses_s;
  for (std::size_t i = 1; i < tries.size(); ++i) {
    pauses_s.push_back((tries[i] - tries[i - 1]) / std::chrono::seconds(1));
  }
  EXPECT_EQ(pauses_s, (std::vector<std::int64_t>{1, 2, 4, 8, 16, 32, 60, 60}));

  is_full = false;
  ASSERT_NO_FATAL_FAILURE(step_until(10));
  EXPECT_EQ(service_->log()->size_bytes(), 0u);
  is_full = true;
  insert();
  ASSERT_NO_FATAL_FAILURE(step_until(12));
  EXPECT_EQ(tries[11] - tries[10], std::chrono::seconds(1)) << "a checkpoint ends the pauses";
}

TEST_F(CheckpointWorkerTest, OneWithoutMemoryFailsAndTheNextLeavesNothingOfIt) {
  bool is_short = true;
  files_.before_create_folder = [&]() -> Status {
    if (is_short) throw std::bad_alloc();
    return {};
  };
  const auto write = [&] {
    std::promise<Status> written;
    (void)worker_->checkpoint(
        {}, [&](const Result<std::string>& path) { written.set_value(path.status()); });
    return written.get_future().get();
  };
  expect_refused(write(), StatusCode::kResourceExhausted, {"no memory to write a checkpoint"});
  is_short = false;
  files_.before_append = [](std::size_t) -> Status { throw std::bad_alloc(); };
  expect_refused(write(), StatusCode::kResourceExhausted, {"no memory to write a checkpoint"});
  const std::vector<std::string> left = files_.list(folder_.string()).value();
  for (const std::string& name : left) {
    EXPECT_TRUE(name.starts_with("journal") || name == kLockName) << name;
  }
  files_.before_append = nullptr;
  const Status status = write();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(service_->log()->size_bytes(), 0u) << "the journal begins again after a checkpoint";
}

TEST(CheckpointWorkerThread, OneThatCannotStartRefusesTheStoreOrTheRequestThatNeedsIt) {
  const auto folder =
      std::filesystem::temp_directory_path() / format("reverie-threads-{}", getpid());
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  WorkerOptions options;
  options.path = folder.string();
  options.checkpointer.journal = {.durability = Durability::kNone};
  WorkerOptions periodic = options;
  periodic.every_time = std::chrono::hours(1);
  const auto open = [](const WorkerOptions& given) {
    return open_checkpointed(
        {testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))}, {}, given);
  };
  {
    const test::NoNewThreads none;
    expect_refused(open(periodic).status(), StatusCode::kResourceExhausted,
                   {"checkpoints", "ulimit -u"});
  }
  const auto service = open(options);
  ASSERT_TRUE(service.ok()) << service.status().to_string();
  {
    const test::NoNewThreads none;
    expect_refused(checkpoint_and_wait(**service, {}).status(), StatusCode::kResourceExhausted,
                   {"checkpoints", "ulimit -u"});
  }
  const auto written = checkpoint_and_wait(**service, {});
  EXPECT_TRUE(written.ok()) << written.status().to_string();
}

// From a checkpoint, and from a journal alone.
TEST(LoadingAStore, IsInterruptedAndLeavesEverythingForTheNextOne) {
  constexpr std::int64_t kItems = 10;
  constexpr std::uint32_t kRows = 300'000;  // 1.2 MB
  for (const bool is_checkpointed : {true, false}) {
    const auto folder =
        std::filesystem::temp_directory_path() / format("reverie-loading-{}", getpid());
    const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
    WorkerOptions options;
    options.path = folder.string();
    options.checkpointer.journal.durability =
        is_checkpointed ? Durability::kNone : Durability::kInterval;
    const auto open = [&] {
      return open_checkpointed(
          {testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))}, {},
          options);
    };
    {
      const auto service = open().value();
      for (ItemKey key = 1; key <= kItems; ++key) {
        Item item = testing::make_item(key, 1.0, static_cast<float>(key), kRows);
        ASSERT_TRUE(insert_and_wait(*service, {"t", {&item, 1}}).status.ok());
      }
      if (is_checkpointed) {
        ASSERT_TRUE(checkpoint_and_wait(*service, {}).ok());
      }
      service->close();
    }
    int asked = 0;
    options.checkpointer.interruption = Interruption([&] { return ++asked == 1; });
    expect_refused(open().status(), StatusCode::kCancelled, {"interrupted"});
    const auto service = open();
    ASSERT_TRUE(service.ok()) << service.status().to_string();
    EXPECT_EQ(info_and_wait(**service).value().front().current_size, kItems);
    EXPECT_GT(asked, 1);
  }
}

// Otherwise another store could open the folder, whose journal's last bytes come later, and whose
// ring is removed then, by its name.
TEST(ClosingAStore, TheFolderIsHeldUntilTheFirstOfTwoCallersHasEndedTheJournal) {
  const auto folder =
      std::filesystem::temp_directory_path() / format("reverie-closing-{}", getpid());
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  testing::HookedFileSystem files{FileSystem::system()};
  WorkerOptions options;
  options.path = folder.string();
  options.checkpointer.files = &files;
  options.checkpointer.journal = {.durability = Durability::kInterval, .has_thread = false};
  const auto service =
      open_checkpointed(
          {testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))}, {}, options)
          .value();
  Item item = testing::make_item(1, 1.0);
  ASSERT_TRUE(insert_and_wait(*service, {"t", {&item, 1}}).status.ok());

  std::promise<void> is_ending;
  std::promise<void> may_end;
  files.before_sync_file = [&] {
    is_ending.set_value();
    may_end.get_future().wait();
  };
  auto first = std::async(std::launch::async, [&] { service->close(); });
  is_ending.get_future().wait();
  auto second = std::async(std::launch::async, [&] { service->close(); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(Checkpointer::open(folder.string(), {}).status().code(),
            StatusCode::kFailedPrecondition);
  may_end.set_value();
  first.get();
  second.get();
  EXPECT_TRUE(Checkpointer::open(folder.string(), {}).ok());
}

TEST(ClosingAStore, TheCompletionOfACheckpointMayDropTheLastReference) {
  const auto folder = std::filesystem::temp_directory_path() / format("reverie-last-{}", getpid());
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  auto store = open_checkpointed(
                   {testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))}, {},
                   {.path = folder.string()})
                   .value();
  std::promise<void> is_last;
  std::promise<Status> written;
  (void)store->checkpoint({}, [&, held = store](const Result<std::string>& path) mutable {
    is_last.get_future().wait();
    held.reset();
    written.set_value(path.status());
  });
  store.reset();
  is_last.set_value();
  const Status status = written.get_future().get();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(test::eventually([&] { return Checkpointer::open(folder.string(), {}).ok(); }))
      << "another thread closes the store, which releases the folder";
}

// Checkpoints that only record whether they were abandoned.
class RecordedCheckpoints final : public StoreCheckpoints {
 public:
  explicit RecordedCheckpoints(bool& is_abandoned) : is_abandoned_(is_abandoned) {}
  RequestId checkpoint(std::vector<std::byte>, Done) override { return 0; }
  void cancel(RequestId) override {}
  void abandon() override { is_abandoned_ = true; }
  void stop() override {}
  bool is_own_thread() const override { return false; }
  StoreOrigin origin() const override { return {}; }

 private:
  bool& is_abandoned_;
};

// The journal's last sync takes as long as the disk needs for all that a checkpoint has written.
TEST(ClosingAStore, ACheckpointIsAbandonedBeforeTheJournalsLastSync) {
  const auto folder = std::filesystem::temp_directory_path() / format("reverie-order-{}", getpid());
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  // Both outlive the store.
  bool is_abandoned = false;
  bool is_synced = false;
  testing::HookedFileSystem files{FileSystem::system()};
  CheckpointerOptions options;
  options.files = &files;
  options.journal = {.durability = Durability::kInterval, .has_thread = false};
  auto checkpointer = Checkpointer::open(folder.string(), options).value();
  const auto service =
      checkpointer
          ->open_store({testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))},
                       {})
          .value();
  service->set_checkpoints(std::make_unique<RecordedCheckpoints>(is_abandoned));
  Item item = testing::make_item(1, 1.0);
  ASSERT_TRUE(insert_and_wait(*service, {"t", {&item, 1}}).status.ok());
  files.before_sync_file = [&] {
    is_synced = true;
    EXPECT_TRUE(is_abandoned);
  };
  service->close();
  EXPECT_TRUE(is_synced);
}

}  // namespace
}  // namespace reverie::checkpoint
