#include "reverie/client/batch_stream.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/mutex.h"
#include "tests/support/eventually.h"
#include "tests/support/faucet.h"
#include "tests/support/forwarding_service.h"
#include "tests/support/no_new_threads.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using test::eventually;

// A faucet whose answers arrive when the test says so.
class FarFaucet final : public ReplayService {
 public:
  explicit FarFaucet(std::shared_ptr<Faucet> faucet) : faucet_(std::move(faucet)) {}

  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    MutexLock lock(mutex_);
    const RequestId id = ++last_id_;
    follows_.push_back(request.follows);
    waiting_.emplace(id, std::pair(std::move(request), std::move(done)));
    return id;
  }
  void cancel(RequestId id) override {
    std::pair<SampleRequest, Done<SampleResult>> ended;
    {
      MutexLock lock(mutex_);
      const auto found = waiting_.find(id);
      if (found == waiting_.end()) return;
      ended = std::move(found->second);
      waiting_.erase(found);
    }
    ended.second({cancelled("given up"), std::move(ended.first.batch)});
  }
  // Answers the oldest request.
  void answer() {
    std::pair<SampleRequest, Done<SampleResult>> oldest;
    {
      MutexLock lock(mutex_);
      oldest = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    faucet_->sample(std::move(oldest.first), std::move(oldest.second));
  }
  std::size_t waiting_count() {
    MutexLock lock(mutex_);
    return waiting_.size();
  }
  // For each request, the request that it follows.
  std::vector<RequestId> follows() {
    MutexLock lock(mutex_);
    return follows_;
  }

  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    return faucet_->insert(std::move(request), std::move(done));
  }
  RequestId mutate(const MutateRequest&, Done<MutateResult>) override { return 0; }
  RequestId lookup(const LookupRequest&, Done<LookupResult>) override { return 0; }
  RequestId reset(std::string_view, Done<Status>) override { return 0; }
  RequestId info(Done<Result<std::vector<TableInfo>>>) override { return 0; }
  RequestId why_blocked(std::string_view, Done<Result<BlockedReport>>) override { return 0; }
  void close() override {}

 private:
  const std::shared_ptr<Faucet> faucet_;
  Mutex mutex_;
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::map<RequestId, std::pair<SampleRequest, Done<SampleResult>>> waiting_
      REVERIE_GUARDED_BY(mutex_);
  std::vector<RequestId> follows_ REVERIE_GUARDED_BY(mutex_);
};

// A faucet of a queue that says nothing about its table until the test allows it.
class SilentFaucet final : public ReplayService {
 public:
  explicit SilentFaucet(std::shared_ptr<Faucet> faucet) : faucet_(std::move(faucet)) {}

  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    {
      MutexLock lock(mutex_);
      if (is_silent_) {
        waiting_.push_back(std::move(done));
        return waiting_.size();
      }
    }
    return faucet_->info(std::move(done));
  }
  void cancel(RequestId id) override {
    Done<Result<std::vector<TableInfo>>> ended;
    {
      MutexLock lock(mutex_);
      if (id == 0 || id > waiting_.size()) return;
      ended = std::exchange(waiting_[id - 1], nullptr);
    }
    if (ended) ended(cancelled("given up"));
  }
  void speak() {
    MutexLock lock(mutex_);
    is_silent_ = false;
  }
  bool is_asked() {
    MutexLock lock(mutex_);
    return !waiting_.empty();
  }

  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    return faucet_->sample(std::move(request), std::move(done));
  }
  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    return faucet_->insert(std::move(request), std::move(done));
  }
  RequestId mutate(const MutateRequest&, Done<MutateResult>) override { return 0; }
  RequestId lookup(const LookupRequest&, Done<LookupResult>) override { return 0; }
  RequestId reset(std::string_view, Done<Status>) override { return 0; }
  RequestId why_blocked(std::string_view, Done<Result<BlockedReport>>) override { return 0; }
  void close() override {}

 private:
  const std::shared_ptr<Faucet> faucet_;
  Mutex mutex_;
  bool is_silent_ REVERIE_GUARDED_BY(mutex_) = true;
  std::vector<Done<Result<std::vector<TableInfo>>>> waiting_ REVERIE_GUARDED_BY(mutex_);
};

// A faucet that counts the requests that it has answered, and can undo draws.
class CountedFaucet final : public testing::ForwardingService {
 public:
  using testing::ForwardingService::ForwardingService;

  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    const RequestId id = inner_->sample(std::move(request), std::move(done));
    ++answered_;
    return id;
  }
  std::optional<std::size_t> hand_back(std::string_view, SampleBatch& batch) override {
    handed_back_ += batch.size();
    return batch.size();
  }
  int answered() const { return answered_; }
  std::size_t handed_back() const { return handed_back_; }

 private:
  std::atomic<int> answered_{0};
  std::atomic<std::size_t> handed_back_{0};
};

// A faucet that checkpoints may pause, and that draws again what was handed back.
class PausedFaucet final : public testing::ForwardingService {
 public:
  using testing::ForwardingService::ForwardingService;

  AheadReaders* ahead_readers() override { return &readers_; }
  std::optional<std::size_t> hand_back(std::string_view, SampleBatch& batch) override {
    handed_back_.insert(handed_back_.begin(), batch.keys().begin(), batch.keys().end());
    return batch.size();
  }
  // What a pause hands back, in the order in which the table gets it. Nothing is drawn meanwhile.
  std::vector<ItemKey> pause(const std::function<void()>& meanwhile = [] {}) {
    handed_back_.clear();
    readers_.pause_for(meanwhile);
    return handed_back_;
  }

 private:
  AheadReaders readers_;
  std::vector<ItemKey> handed_back_;
};

std::vector<std::int64_t> numbers(const DrawnBatch& drawn) {
  const std::span<const std::byte> bytes = drawn.batch.columns.at(0).bytes.bytes();
  std::vector<std::int64_t> found(bytes.size() / sizeof(std::int64_t));
  std::memcpy(found.data(), bytes.data(), bytes.size());
  return found;
}

class BatchStreamTest : public ::testing::Test {
 protected:
  static BatchStreamOptions options(std::size_t batch_size) {
    BatchStreamOptions made;
    made.table = "replay";
    made.batch_size = batch_size;
    made.timeout = Duration::zero();
    return made;
  }

  std::shared_ptr<Faucet> service_ = std::make_shared<Faucet>();
};

TEST_F(BatchStreamTest, BatchesComeInOrderAndTheLastIsShorter) {
  service_->add_ones(7);
  BatchStream stream(service_, options(3));
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{6}));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
  }
}

TEST_F(BatchStreamTest, WithoutAThreadACallIsRefusedAndALaterOneTriesAgain) {
  BatchStreamOptions known = options(3);
  known.max_times_sampled = 0;
  for (const BatchStreamOptions& given : {options(3), known}) {
    std::unique_ptr<BatchStream> stream;
    {
      const test::NoNewThreads none;
      stream = std::make_unique<BatchStream>(service_, given);
      expect_refused(stream->next({}).status(), StatusCode::kResourceExhausted,
                     {"stream of batches", "ulimit -u"});
    }
    service_->add_ones(3);
    EXPECT_EQ(numbers(stream->next({}).value()).size(), 3u);
  }
}

TEST_F(BatchStreamTest, ALastBatchMayBeDropped) {
  service_->add_ones(4);
  BatchStreamOptions dropping = options(3);
  dropping.drop_last = true;
  BatchStream stream(service_, dropping);
  EXPECT_EQ(stream.next({}).value().samples.size(), 3u);
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(BatchStreamTest, ABatchThatIsLateWhileNoUserWaitsIsCompletedOnceOneDoes) {
  service_->add_ones(2);
  const auto counted = std::make_shared<CountedFaucet>(service_);
  BatchStreamOptions at_once = options(3);
  at_once.max_times_sampled = 0;
  at_once.depth = 1;
  BatchStream stream(counted, at_once);
  ASSERT_TRUE(eventually([&] { return counted->answered() == 1; }));
  service_->add(2, 1);
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(service_->asked[1], (Faucet::Asked{1, 1, true})) << "what the batch lacked";
}

TEST_F(BatchStreamTest, ALateBatchThatNoUserWaitsForIsReturnedAtTheEnd) {
  service_->add_ones(2);
  const auto counted = std::make_shared<CountedFaucet>(service_);
  BatchStreamOptions ahead = options(3);
  ahead.max_times_sampled = 1;
  ahead.depth = 1;
  BatchStream stream(counted, ahead);
  ASSERT_TRUE(eventually([&] { return counted->answered() == 1; }));
  stream.close();
  EXPECT_EQ(counted->handed_back(), 2u);
}

TEST_F(BatchStreamTest, ADistinctBatchThatIsLateIsReturnedAndDrawnAgainAsAWhole) {
  service_->add_ones(2);
  const auto counted = std::make_shared<CountedFaucet>(service_);
  BatchStreamOptions distinct = options(3);
  distinct.max_times_sampled = 0;
  distinct.depth = 1;
  distinct.distinct = true;
  BatchStream stream(counted, distinct);
  ASSERT_TRUE(eventually([&] { return counted->handed_back() == 2; }));
  service_->add_ones(3);
  EXPECT_EQ(stream.next({}).value().samples.size(), 3u);
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(service_->asked[1], (Faucet::Asked{3, 3, true}));
}

TEST_F(BatchStreamTest, NothingIsDrawnAheadFromATableThatRemovesSampledItems) {
  service_->spent_after["replay"] = 1;
  service_->add_ones(9);
  {
    BatchStream stream(service_, options(3));
    EXPECT_EQ(stream.next({}).value().samples.size(), 3u);
    stream.close();
    EXPECT_EQ(service_->asked.size(), 1u);
    EXPECT_TRUE(service_->returned.empty());
  }
  EXPECT_EQ(service_->asked.size(), 1u);
}

TEST_F(BatchStreamTest, NothingIsDrawnUntilItIsKnownWhetherSamplesRemoveItems) {
  service_->spent_after["replay"] = 1;
  service_->add_ones(9);
  const auto silent = std::make_shared<SilentFaucet>(service_);
  BatchStream stream(silent, options(3));
  WaitOptions interrupted;
  interrupted.interrupted = [] { return true; };
  EXPECT_EQ(stream.next(interrupted).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(service_->asked.empty());

  silent->speak();
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1, 2}));
  stream.close();
  EXPECT_EQ(service_->asked.size(), 1u);
}

TEST_F(BatchStreamTest, ClosingEndsTheWaitForTheTablesDescription) {
  const auto silent = std::make_shared<SilentFaucet>(service_);
  BatchStreamOptions patient = options(3);
  patient.timeout = {};
  BatchStream stream(silent, patient);
  std::atomic<bool> is_given_up = false;
  WaitOptions wait;
  wait.interrupted = [&] { return is_given_up.load(); };
  std::atomic<bool> has_ended = false;
  Status ended;
  std::thread user([&] {
    ended = stream.next(wait).status();
    has_ended = true;
  });
  EXPECT_TRUE(eventually([&] { return silent->is_asked(); }));
  stream.close();
  EXPECT_TRUE(eventually([&] { return has_ended.load(); }));
  is_given_up = true;
  user.join();
  EXPECT_EQ(ended.code(), StatusCode::kCancelled);
  EXPECT_EQ(ended.message(), "this stream of batches is closed");
  EXPECT_TRUE(service_->asked.empty());
}

TEST_F(BatchStreamTest, UntakenSamplesAreReturned) {
  service_->spent_after["replay"] = 1;
  service_->add_ones(9);
  BatchStreamOptions ahead = options(3);
  ahead.depth = 2;
  BatchStream stream(service_, ahead);
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1, 2}));
  stream.close();
  // Three samples for each request that was made after the first.
  EXPECT_EQ(service_->returned.size(), 3 * (service_->asked.size() - 1));
  for (std::size_t i = 0; i < service_->returned.size(); ++i) {
    EXPECT_EQ(service_->returned[i], i + 3) << "in their order";
  }
}

TEST_F(BatchStreamTest, APauseHandsBackWhatWasDrawnAheadOfAnyTable) {
  for (const std::int64_t max_times_sampled : {0, 1}) {
    const auto faucet = std::make_shared<Faucet>();
    faucet->add_ones(100);
    const auto paused = std::make_shared<PausedFaucet>(faucet);
    BatchStreamOptions ahead = options(3);
    ahead.max_times_sampled = max_times_sampled;
    ahead.depth = 2;
    BatchStream stream(paused, ahead);
    EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1, 2}));
    const std::vector<ItemKey> back = paused->pause();
    EXPECT_LE(back.size(), 6u);
    for (std::size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i], i + 3);
    // A faucet does not give out again what it got back.
    const auto first = static_cast<std::int64_t>(3 + back.size());
    EXPECT_EQ(numbers(stream.next({}).value()),
              (std::vector<std::int64_t>{first, first + 1, first + 2}));
    stream.close();
    EXPECT_TRUE(paused->pause().empty());
  }
}

TEST_F(BatchStreamTest, APauseHandsBackALateBatchThatNoUserWaitsFor) {
  service_->add_ones(2);
  const auto paused = std::make_shared<PausedFaucet>(service_);
  BatchStreamOptions ahead = options(3);
  ahead.max_times_sampled = 1;
  ahead.depth = 1;
  BatchStream stream(paused, ahead);
  EXPECT_TRUE(eventually([&] { return paused->pause() == std::vector<ItemKey>{0, 1}; }));
  paused->pause([&] { service_->add_ones(3); });
  EXPECT_EQ(stream.next({}).value().samples.size(), 3u) << "the stream goes on";
}

TEST_F(BatchStreamTest, AUserWhoWaitsForABatchGetsItAfterAPause) {
  const auto far = std::make_shared<FarFaucet>(service_);
  const auto paused = std::make_shared<PausedFaucet>(far);
  BatchStreamOptions patient = options(1);
  patient.timeout = {};
  patient.max_times_sampled = 0;
  patient.depth = 0;
  BatchStream stream(paused, patient);
  std::optional<Result<DrawnBatch>> taken;
  std::thread user([&] { taken.emplace(stream.next({})); });
  EXPECT_TRUE(eventually([&] { return far->waiting_count() == 1; }));
  EXPECT_TRUE(paused->pause().empty());
  EXPECT_TRUE(eventually([&] { return far->waiting_count() == 1; }));
  service_->add_ones(9);
  far->answer();
  user.join();
  EXPECT_EQ(numbers(taken->value()), std::vector<std::int64_t>{0});
  EXPECT_EQ(far->follows().size(), 2u) << "it was asked for again";
}

TEST_F(BatchStreamTest, ARemoteServiceIsAskedForTheNextBatchWhileOneIsMade) {
  service_->add_ones(100);
  BatchStreamOptions far = options(5);
  far.is_far = true;
  far.depth = 2;
  BatchStream stream(service_, far);
  EXPECT_EQ(stream.next({}).value().samples.size(), 5u);
  stream.close();
  EXPECT_GE(service_->asked.size(), 2u);
}

TEST_F(BatchStreamTest, ARemoteServiceIsAskedForTheAwaitedBatchAndAllBatchesAhead) {
  service_->add_ones(100);
  const auto far = std::make_shared<FarFaucet>(service_);
  BatchStreamOptions asking = options(2);
  asking.timeout = {};
  asking.is_far = true;
  asking.depth = 2;
  asking.max_times_sampled = 0;
  BatchStream stream(far, asking);
  ASSERT_TRUE(eventually([&] { return far->waiting_count() == 2; }));
  for (std::int64_t first : {0, 2}) {
    std::optional<Result<DrawnBatch>> taken;
    std::thread user([&] { taken.emplace(stream.next({})); });
    EXPECT_TRUE(eventually([&] { return far->waiting_count() == 3; }));
    far->answer();
    user.join();
    EXPECT_EQ(numbers(taken->value()), (std::vector<std::int64_t>{first, first + 1}));
    EXPECT_EQ(far->waiting_count(), 2u) << "the user works on it";
  }
  EXPECT_EQ(far->follows(), (std::vector<RequestId>{0, 1, 2, 3}));
  // Finished batches count towards the depth.
  far->answer();
  EXPECT_TRUE(eventually([&] { return stream.next_now().has_value(); }));
  stream.close();
  EXPECT_EQ(far->waiting_count(), 0u) << "no caller waits for them any more";
}

// Asks a remote queue for two batches ahead.
BatchStreamOptions far_queue(BatchStreamOptions made) {
  made.is_far = true;
  made.depth = 2;
  made.max_times_sampled = 1;
  return made;
}

TEST_F(BatchStreamTest, ItemsThatARequestAheadHasDrawnComeFirstIfTheOneBeforeWasLate) {
  const auto far = std::make_shared<FarFaucet>(service_);
  BatchStream stream(far, far_queue(options(2)));
  ASSERT_TRUE(eventually([&] { return far->waiting_count() == 2; }));
  far->answer();  // it is late, and no user waits for it
  service_->add_ones(5);
  far->answer();
  EXPECT_TRUE(eventually([&] { return far->waiting_count() > 0; })) << "a batch is ready";
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1}));
  far->answer();
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{2, 3}));
}

TEST_F(BatchStreamTest, ItemsOfALaterRequestCompleteABatchThatWasLate) {
  const auto far = std::make_shared<FarFaucet>(service_);
  BatchStream stream(far, far_queue(options(2)));
  ASSERT_TRUE(eventually([&] { return far->waiting_count() == 2; }));
  service_->add(0, 1);
  far->answer();  // with one item of two
  for (std::int64_t i = 1; i < 4; ++i) service_->add(i, 1);
  far->answer();  // with two, one of which is left for the batch after
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1}));
  EXPECT_TRUE(eventually([&] { return far->waiting_count() > 0; }));
  service_->add(4, 1);
  far->answer();
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{2, 3}));
  stream.close();
  EXPECT_EQ(service_->returned, (std::vector<ItemKey>{4})) << "it had no batch";
}

TEST_F(BatchStreamTest, RequestsAheadAreBounded) {
  const auto far = std::make_shared<FarFaucet>(service_);
  BatchStreamOptions asking = options(2);
  asking.timeout = {};
  asking.is_far = true;
  asking.depth = 1000;
  asking.max_times_sampled = 0;
  BatchStream stream(far, asking);
  EXPECT_TRUE(eventually([&] { return far->waiting_count() > 1; }));
  EXPECT_LE(far->waiting_count(), 9u);
}

TEST_F(BatchStreamTest, WeightsAreComputedOverTheBatch) {
  service_->add_ones(4);
  BatchStreamOptions weighed = options(4);
  weighed.weighing.beta = 0.5;
  BatchStream stream(service_, weighed);
  EXPECT_EQ(stream.next({}).value().weights, (std::vector<float>{1, 1, 1, 1}));
}

TEST_F(BatchStreamTest, WeightsOverATableWithoutItsLeastProbabilityAreRefused) {
  service_->add_ones(4);
  BatchStreamOptions weighed = options(4);
  weighed.weighing = {0.5, /*over_table=*/true};
  BatchStream stream(service_, weighed);
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kUnimplemented);
}

TEST_F(BatchStreamTest, AClosedStreamGivesNothing) {
  service_->add_ones(9);
  BatchStream stream(service_, options(3));
  EXPECT_FALSE(stream.is_closed());
  stream.close();
  stream.close();
  EXPECT_TRUE(stream.is_closed());
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(stream.next_now().has_value());
}

}  // namespace
}  // namespace reverie
