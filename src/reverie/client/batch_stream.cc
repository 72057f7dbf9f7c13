#include "reverie/client/batch_stream.h"

#include <chrono>
#include <deque>
#include <system_error>
#include <utility>
#include <vector>

#include "reverie/base/start_thread.h"
#include "reverie/client/hand_back.h"
#include "reverie/client/prefetcher_pause.h"
#include "reverie/client/read_receipts.h"
#include "reverie/tensor/batch_memory.h"

namespace reverie {
namespace {

constexpr std::size_t kBuffersKept = 16;  // buffers of released batches that are reused
// How long to wait for samples that a server has drawn for cancelled requests.
constexpr double kOnItsWayS = 0.25;
constexpr std::size_t kRequestsMax = 8;  // requests besides that of the batch that is made
// How long after a batch's timeout the answer about the table may arrive: the timeout bounds the
// wait for samples, and may be shorter than the way to the server and back.
constexpr Duration kAnswerTime = std::chrono::seconds(2);

// `since`: when the wait began; none: it begins now.
TimePoint deadline_of(std::optional<Duration> timeout, std::optional<TimePoint> since = {}) {
  return timeout ? since.value_or(Clock::system().now()) + *timeout : TimePoint::max();
}

TimePoint answer_deadline(std::optional<Duration> timeout) {
  return timeout ? deadline_of(timeout) + kAnswerTime : TimePoint::max();
}

}  // namespace

// Makes batches until its user has waited for one in vain; the items drawn for that one are the
// last batch. One that comes too late while no user waits is completed once the user does. The
// prefetcher's thread makes them, and the user's thread says when it waits for one; hand_back() is
// called after the prefetcher's thread has ended.
class BatchStream::Maker {
 public:
  // `ahead`: how many batches may be requested or made before their user waits for them; 0: a batch
  // is requested when it is made.
  Maker(std::shared_ptr<ReplayService> service, BatchStreamOptions options,
        std::int64_t max_times_sampled, std::size_t ahead)
      : service_(std::move(service)),
        options_(std::move(options)),
        max_times_sampled_(max_times_sampled),
        receipts_(*service_, options_.table),
        memory_(BatchMemory::make(kBuffersKept)),
        ahead_(ahead) {}

  Result<DrawnBatch> make(const WaitOptions& wait, Prefetcher<DrawnBatch>& user) {
    if (!end_.ok()) return end_;
    if (!left_.empty()) hand_back_to_go_on({});  // of a pause that did not wait for this thread
    std::optional<TimePoint> wanted = user.wanted_since();
    SampleResult result = take_request(wanted).wait(wait);
    put_before(std::exchange(surplus_, {}), result);
    DrawnBatch drawn;
    Status status = gather(result, wait, drawn);
    // Only the user's own wait, from before the request on, may end the stream.
    while (status.code() == StatusCode::kDeadlineExceeded &&
           !(wanted && user.wanted_since() == wanted)) {
      // Items that have arrived since are those of the next request. Distinct ones are drawn again.
      if (drawn.samples.empty() || !options_.distinct) {
        if (std::optional<PendingSample> next = take_ahead()) {
          wanted.reset();
          SampleBatch early = std::move(drawn.samples);
          drawn = {};
          result = next->wait(wait);
          put_before(std::move(early), result);
          status = gather(result, wait, drawn);
          continue;
        }
      }
      result.batch = put_off(std::move(drawn.samples));
      drawn = {};
      wanted = user.wait_until_wanted();
      if (!wanted) {  // closed, or in a pause
        drawn.samples = std::move(result.batch);
        status = cancelled("no user waits for this batch");
        break;
      }
      draw_rest(*wanted, wait, result);
      status = gather(result, wait, drawn);
    }
    if (!status.ok()) {
      const bool is_last = status.code() == StatusCode::kDeadlineExceeded &&
                           !drawn.samples.empty() && !options_.drop_last;
      if (!is_last) {
        keep(std::move(drawn.samples));
        keep(std::exchange(surplus_, {}));
        end_requests();
        return status;
      }
      end_requests();
      end_ = status;
    }
    retain_if_spent(drawn.samples);  // until the batch is delivered
    MutexLock lock(mutex_);
    is_making_ = false;
    ++made_count_;
    return drawn;
  }

  // The user waits for a batch: what it waits for is not ahead of it.
  void wait_begins() {
    MutexLock lock(mutex_);
    is_wanted_ = true;
    request_ahead();
  }
  void wait_ends() {
    MutexLock lock(mutex_);
    is_wanted_ = false;
  }
  // The user has taken a batch.
  void taken(const DrawnBatch& drawn) {
    receipts_.took(drawn.samples);
    MutexLock lock(mutex_);
    --made_count_;
  }

  // The user needs the batch that it has taken no more.
  void finish_taken() { receipts_.finish(); }

  // Returns `unused`, and other items that were drawn for no batch, to the table, for good if
  // samples remove them.
  void hand_back(std::deque<DrawnBatch> unused) {
    std::vector<SampleBatch> batches = take_left(std::move(unused));
    if (!are_spent()) return;
    hand_back_or_warn(*service_, options_.table, max_times_sampled_, batches, "prefetch");
  }
  // The same in a pause, after which batches are made again. The draws are undone of any table.
  void hand_back_to_go_on(std::deque<DrawnBatch> unused) {
    if (!unused.empty()) end_ = {};  // the last batch is made again
    std::vector<SampleBatch> batches = take_left(std::move(unused));
    for (std::size_t i = batches.size(); i-- > 0;) {
      (void)service_->hand_back(options_.table, batches[i]);
    }
  }

 private:
  // Whether sampling removes items from their table, so that only a batch has them.
  bool are_spent() const { return max_times_sampled_ >= 1; }

  // Items that may leave their table keep their chunks, with which they can come back.
  void retain_if_spent(SampleBatch& samples) const {
    if (are_spent()) {
      samples.retain();
    } else {
      samples.unpin();
    }
  }
  void keep(SampleBatch samples) {
    if (samples.empty()) return;
    retain_if_spent(samples);
    left_.push_back(std::move(samples));
  }
  // Ends all requests. `unused` and what was drawn for no batch, in the order of the draws.
  std::vector<SampleBatch> take_left(std::deque<DrawnBatch> unused) {
    keep(std::exchange(surplus_, {}));
    end_requests();
    std::vector<SampleBatch> batches;
    batches.reserve(unused.size() + left_.size());
    for (DrawnBatch& drawn : unused) batches.push_back(std::move(drawn.samples));
    for (SampleBatch& samples : left_) batches.push_back(std::move(samples));
    left_.clear();
    MutexLock lock(mutex_);
    made_count_ -= unused.size();
    return batches;
  }
  // Cancels all requests; the next batch makes others. Waits a moment for samples that a server has
  // drawn for them, if they would be lost.
  void end_requests() {
    std::deque<PendingSample> asked;
    {
      MutexLock lock(mutex_);
      is_over_ = true;
      asked.swap(requests_);
    }
    if (!are_spent()) return;
    WaitOptions wait;
    wait.interrupted = [until = Clock::system().now() + seconds(kOnItsWayS)] {
      return Clock::system().now() >= until;
    };
    for (PendingSample& sample : asked) keep(sample.wait(wait).batch);
  }

  // The request of the next batch. `wanted`: since when the user has waited for it; set to none if
  // the request was made before.
  PendingSample take_request(std::optional<TimePoint>& wanted) {
    MutexLock lock(mutex_);
    is_making_ = true;
    is_put_off_ = is_over_ = false;  // by a pause
    if (requests_.empty()) {
      PendingSample first = ask(request(wanted), /*is_for_another=*/false);
      request_ahead();
      return first;
    }
    wanted.reset();
    PendingSample first = std::move(requests_.front());
    requests_.pop_front();
    request_ahead();
    return first;
  }

  // Puts what was drawn earlier before `result`; what exceeds a batch is for the next one.
  void put_before(SampleBatch early, SampleResult& result) {
    if (early.empty()) return;
    early.retain();
    if (!result.batch.empty()) early.append(result.batch);
    result.batch = std::move(early);
    if (result.batch.size() < options_.batch_size) return;
    result.status = {};
    if (result.batch.size() > options_.batch_size) {
      surplus_ = result.batch.split_off(options_.batch_size);
    }
  }

  // The next request that was made ahead, in place of one that was late; none if there is none.
  // No other is made for it: no user may be waiting.
  std::optional<PendingSample> take_ahead() {
    MutexLock lock(mutex_);
    if (requests_.empty()) return std::nullopt;
    std::optional<PendingSample> next(std::move(requests_.front()));
    requests_.pop_front();
    return next;
  }

  // Keeps the items drawn for a batch that comes too late, until its user waits for it. Distinct
  // ones go back to the table, as another request may draw them again.
  SampleBatch put_off(SampleBatch drawn) {
    {
      MutexLock lock(mutex_);
      is_put_off_ = true;
    }
    if (!options_.distinct) {
      drawn.retain();  // a pin would hold up the table
      return drawn;
    }
    if (are_spent()) {
      hand_back_or_warn(*service_, options_.table, max_times_sampled_, {&drawn, 1}, "prefetch");
    } else if (!drawn.empty()) {
      (void)service_->hand_back(options_.table, drawn);
    }
    return {};
  }

  // Draws what `result` lacks of a batch, for a user that waits since `wanted`.
  void draw_rest(TimePoint wanted, const WaitOptions& wait, SampleResult& result) {
    SampleRequest rest = request(wanted);
    rest.count = rest.min_count = options_.batch_size - result.batch.size();
    SampleResult more = ask_rest(std::move(rest)).wait(wait);
    result.status = std::move(more.status);
    if (result.batch.empty()) {
      result.batch = std::move(more.batch);
    } else if (!more.batch.empty()) {
      result.batch.append(more.batch);
    }
  }

  PendingSample ask_rest(SampleRequest rest) {
    MutexLock lock(mutex_);
    is_put_off_ = false;
    PendingSample asked = ask(std::move(rest), /*is_for_another=*/false);
    request_ahead();
    return asked;
  }

  // Gathers the samples of `result`, which are in `drawn` afterwards whatever the status.
  Status gather(SampleResult& result, const WaitOptions& wait, DrawnBatch& drawn) {
    Status status = reverie::gather(*service_, request(), result,
                                    {{options_.pad, memory_.get(), options_.files.get()},
                                     options_.weighing,
                                     options_.on_corrupt},
                                    wait, drawn);
    if (drawn.samples.empty()) drawn.samples = std::move(result.batch);
    return status;
  }

  void request_ahead() REVERIE_REQUIRES(mutex_) {
    // The batch that was put off comes first.
    if (ahead_ == 0 || is_over_ || is_put_off_) return;
    const std::size_t most = ahead_ + (is_wanted_ ? 1 : 0);
    while (requests_.size() < kRequestsMax &&
           requests_.size() + (is_making_ ? 1 : 0) + made_count_ < most) {
      requests_.push_back(ask(request(), /*is_for_another=*/true));
    }
  }
  PendingSample ask(SampleRequest asked, bool is_for_another) REVERIE_REQUIRES(mutex_) {
    asked.follows = last_id_;
    PendingSample pending(*service_, std::move(asked), is_for_another);
    last_id_ = pending.id();
    return pending;
  }

  // For a user that waits since `wanted`, if it does.
  SampleRequest request(std::optional<TimePoint> wanted = {}) const {
    SampleRequest request;
    request.table = options_.table;
    request.count = request.min_count = options_.batch_size;
    request.distinct = options_.distinct;
    request.wants_least = options_.weighing.beta && options_.weighing.over_table;
    request.awaits_receipt = receipts_.are_kept();
    request.deadline = deadline_of(options_.timeout, wanted);
    return request;
  }

  const std::shared_ptr<ReplayService> service_;
  const BatchStreamOptions options_;
  const std::int64_t max_times_sampled_;
  ReadReceipts receipts_;
  const std::shared_ptr<BatchMemory> memory_;  // of the arrays
  const std::size_t ahead_;
  SampleBatch surplus_;            // drawn for the next batch already
  std::vector<SampleBatch> left_;  // drawn for a batch that was not made
  Status end_;

  Mutex mutex_;
  std::deque<PendingSample> requests_ REVERIE_GUARDED_BY(mutex_);  // for the next batches, in order
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t made_count_ REVERIE_GUARDED_BY(mutex_) = 0;  // batches that were not taken
  bool is_making_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_wanted_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_put_off_ REVERIE_GUARDED_BY(mutex_) = false;  // the batch that is made
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
};

struct BatchStream::Running {
  Running(std::size_t depth, std::shared_ptr<Maker> made, AheadReaders* readers)
      : maker(std::move(made)),
        prefetcher(
            depth, [this](const WaitOptions& wait) { return maker->make(wait, prefetcher); },
            /*pauses=*/1),
        pause(PrefetcherPause<DrawnBatch>::start(readers, prefetcher,
                                                 [this](std::deque<DrawnBatch> unused) {
                                                   maker->hand_back_to_go_on(std::move(unused));
                                                 })) {}

  const std::shared_ptr<Maker> maker;
  Prefetcher<DrawnBatch> prefetcher;
  const std::shared_ptr<PrefetcherPause<DrawnBatch>> pause;
};

BatchStream::BatchStream(std::shared_ptr<ReplayService> service, BatchStreamOptions options)
    : service_(std::move(service)), options_(std::move(options)) {
  MutexLock lock(mutex_);
  // If it cannot start, next() tries again and says why.
  if (options_.max_times_sampled) (void)start(*options_.max_times_sampled);
}

Status BatchStream::start(std::int64_t max_times_sampled) {
  const std::size_t depth = options_.depth.value_or(max_times_sampled >= 1 ? 0 : kDepth);
  try {
    running_ =
        std::make_shared<Running>(depth,
                                  std::make_shared<Maker>(service_, options_, max_times_sampled,
                                                          options_.is_far ? depth : std::size_t{0}),
                                  readers_of(*service_, max_times_sampled));
  } catch (const std::system_error& error) {
    return no_thread("a stream of batches", error.what());
  }
  return {};
}

std::shared_ptr<BatchStream::Running> BatchStream::running() const {
  MutexLock lock(mutex_);
  return is_closed_ ? nullptr : running_;
}

// 0 if the service does not know the table or this request: then sampling will report why. Without
// an answer it is unknown whether samples remove items, so that nothing may be drawn.
Result<std::int64_t> BatchStream::ask_max_times_sampled(const WaitOptions& wait) const {
  bool is_late = false;
  WaitOptions until_deadline = wait;
  until_deadline.interrupted = [this, &is_late, until = answer_deadline(options_.timeout),
                                asked = wait.interrupted] {
    is_late = Clock::system().now() >= until;
    return is_late || is_closed() || (asked && asked());
  };
  const auto infos = info_and_wait(*service_, until_deadline);
  const StatusCode code = infos.status().code();
  if (is_late && code == StatusCode::kCancelled) {
    return deadline_exceeded("the server did not describe table '{}' in time", options_.table);
  }
  if (code == StatusCode::kUnavailable || code == StatusCode::kCancelled) return infos.status();
  if (!infos.ok()) return 0;
  for (const TableInfo& info : infos.value()) {
    if (info.options.name == options_.table) return info.options.max_times_sampled;
  }
  return 0;
}

Result<DrawnBatch> BatchStream::next(const WaitOptions& wait) {
  std::shared_ptr<Running> stream = running();
  if (stream == nullptr && !is_closed()) {
    const Result<std::int64_t> max_times_sampled = ask_max_times_sampled(wait);
    if (!max_times_sampled.ok() && !is_closed()) return max_times_sampled.status();
    MutexLock lock(mutex_);
    if (!is_closed_ && running_ == nullptr) REVERIE_RETURN_IF_ERROR(start(*max_times_sampled));
    if (!is_closed_) stream = running_;
  }
  if (stream == nullptr) return cancelled("this stream of batches is closed");
  if (std::optional<DrawnBatch> ready = take_ready(*stream)) return *std::move(ready);
  stream->maker->wait_begins();
  Result<DrawnBatch> made = stream->prefetcher.next(wait);
  stream->maker->wait_ends();
  if (made.ok()) stream->maker->taken(*made);
  return made;
}

std::optional<DrawnBatch> BatchStream::next_now() {
  const std::shared_ptr<Running> stream = running();
  return stream == nullptr ? std::nullopt : take_ready(*stream);
}

std::optional<DrawnBatch> BatchStream::take_ready(Running& stream) {
  stream.maker->finish_taken();
  std::optional<DrawnBatch> ready = stream.prefetcher.next_now();
  if (ready) stream.maker->taken(*ready);
  return ready;
}

bool BatchStream::is_closed() const {
  MutexLock lock(mutex_);
  return is_closed_;
}

void BatchStream::close() {
  std::shared_ptr<Running> ended;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    ended = std::move(running_);
  }
  if (ended == nullptr) return;
  std::deque<DrawnBatch> unused = ended->prefetcher.close();
  ended->pause->detach();
  ended->maker->finish_taken();
  ended->maker->hand_back(std::move(unused));
}

}  // namespace reverie
