#include "reverie/client/batch_stream.h"

#include <deque>
#include <utility>
#include <vector>

#include "reverie/client/hand_back.h"
#include "reverie/tensor/batch_memory.h"

namespace reverie {
namespace {

constexpr std::size_t kBuffersKept = 16;  // buffers of released batches that are reused
// How long to wait for samples that a server has drawn for a cancelled request.
constexpr double kOnItsWayS = 0.25;

TimePoint deadline_of(std::optional<Duration> timeout) {
  return timeout ? Clock::system().now() + *timeout : TimePoint::max();
}

}  // namespace

// Makes batches until one is not available in time; the items drawn for that one are the last
// batch. Used by the prefetcher's thread; hand_back() is called after that has ended.
class BatchStream::Maker {
 public:
  Maker(std::shared_ptr<ReplayService> service, BatchStreamOptions options,
        std::int64_t max_times_sampled, bool requests_ahead)
      : service_(std::move(service)),
        options_(std::move(options)),
        max_times_sampled_(max_times_sampled),
        memory_(BatchMemory::make(kBuffersKept)),
        requests_ahead_(requests_ahead) {}

  Result<DrawnBatch> make(const WaitOptions& wait) {
    if (!end_.ok()) return end_;
    PendingSample asked = next_ ? std::move(*next_) : ask(0);
    next_.reset();
    if (requests_ahead_) next_.emplace(ask(asked.id()));
    DrawnBatch drawn;
    SampleResult result = asked.wait(wait);
    const Status status = gather(*service_, request(), result,
                                 {{options_.pad, memory_.get(), options_.files.get()},
                                  options_.weighing,
                                  options_.on_corrupt},
                                 wait, drawn);
    if (drawn.samples.empty()) drawn.samples = std::move(result.batch);
    if (!status.ok()) {
      const bool is_last = status.code() == StatusCode::kDeadlineExceeded &&
                           !drawn.samples.empty() && !options_.drop_last;
      if (!is_last) {
        keep(std::move(drawn.samples));
        end_next();
        return status;
      }
      end_next();
      end_ = status;
    }
    if (are_spent()) {
      drawn.samples.retain();  // until the batch is delivered
    } else {
      drawn.samples.unpin();
    }
    return drawn;
  }

  // Returns `unused`, and other items that were drawn for no batch, to the table.
  void hand_back(std::deque<DrawnBatch> unused) {
    end_next();
    if (!are_spent()) return;
    std::vector<SampleBatch> batches;
    batches.reserve(unused.size() + left_.size());
    for (DrawnBatch& drawn : unused) batches.push_back(std::move(drawn.samples));
    for (SampleBatch& samples : left_) batches.push_back(std::move(samples));
    left_.clear();
    hand_back_or_warn(*service_, options_.table, max_times_sampled_, batches, "prefetch");
  }

 private:
  // Whether sampling removes items from their table, so that only a batch has them.
  bool are_spent() const { return max_times_sampled_ >= 1; }

  void keep(SampleBatch samples) {
    if (!are_spent() || samples.empty()) return;
    samples.retain();
    left_.push_back(std::move(samples));
  }
  // Cancels the next request. Waits a moment for samples that a server has drawn for it, if they
  // would be lost.
  void end_next() {
    if (!next_) return;
    if (are_spent()) {
      WaitOptions wait;
      wait.interrupted = [until = Clock::system().now() + seconds(kOnItsWayS)] {
        return Clock::system().now() >= until;
      };
      keep(next_->wait(wait).batch);
    }
    next_.reset();
  }

  PendingSample ask(RequestId follows) {
    SampleRequest asked = request();
    asked.follows = follows;
    return {*service_, std::move(asked)};
  }

  SampleRequest request() const {
    SampleRequest request;
    request.table = options_.table;
    request.count = request.min_count = options_.batch_size;
    request.distinct = options_.distinct;
    request.wants_least = options_.weighing.beta && options_.weighing.over_table;
    request.deadline = deadline_of(options_.timeout);
    return request;
  }

  const std::shared_ptr<ReplayService> service_;
  const BatchStreamOptions options_;
  const std::int64_t max_times_sampled_;
  const std::shared_ptr<BatchMemory> memory_;  // of the arrays
  const bool requests_ahead_;
  std::optional<PendingSample> next_;
  std::vector<SampleBatch> left_;  // drawn for a batch that was not made
  Status end_;
};

struct BatchStream::Running {
  Running(std::size_t depth, std::shared_ptr<Maker> made)
      : maker(std::move(made)),
        prefetcher(depth, [maker = maker](const WaitOptions& wait) { return maker->make(wait); }) {}

  const std::shared_ptr<Maker> maker;
  Prefetcher<DrawnBatch> prefetcher;
};

BatchStream::BatchStream(std::shared_ptr<ReplayService> service, BatchStreamOptions options)
    : service_(std::move(service)), options_(std::move(options)) {
  MutexLock lock(mutex_);
  if (options_.max_times_sampled) start(*options_.max_times_sampled);
}

// One of the batches may be in transit instead of waiting, so that a remote service works
// meanwhile.
void BatchStream::start(std::int64_t max_times_sampled) {
  const std::size_t depth = options_.depth.value_or(max_times_sampled >= 1 ? 0 : kDepth);
  const bool requests_ahead = options_.is_far && depth > 1;
  running_ = std::make_shared<Running>(
      requests_ahead ? depth - 1 : depth,
      std::make_shared<Maker>(service_, options_, max_times_sampled, requests_ahead));
}

std::shared_ptr<BatchStream::Running> BatchStream::running() const {
  MutexLock lock(mutex_);
  return is_closed_ ? nullptr : running_;
}

// 0 if the service does not answer in time: then sampling will report why.
std::int64_t BatchStream::ask_max_times_sampled(const WaitOptions& wait, Status& failed) const {
  WaitOptions until_deadline = wait;
  until_deadline.interrupted = [until = deadline_of(options_.timeout), asked = wait.interrupted] {
    return Clock::system().now() >= until || (asked && asked());
  };
  const auto infos = info_and_wait(*service_, until_deadline);
  if (infos.status().code() == StatusCode::kUnavailable) failed = infos.status();
  if (!infos.ok()) return 0;
  for (const TableInfo& info : infos.value()) {
    if (info.options.name == options_.table) return info.options.max_times_sampled;
  }
  return 0;
}

Result<DrawnBatch> BatchStream::next(const WaitOptions& wait) {
  std::shared_ptr<Running> stream = running();
  if (stream == nullptr && !is_closed()) {
    Status failed;
    const std::int64_t max_times_sampled = ask_max_times_sampled(wait, failed);
    REVERIE_RETURN_IF_ERROR(failed);
    MutexLock lock(mutex_);
    if (!is_closed_ && running_ == nullptr) start(max_times_sampled);
    if (!is_closed_) stream = running_;
  }
  if (stream == nullptr) return cancelled("this stream of batches is closed");
  return stream->prefetcher.next(wait);
}

std::optional<DrawnBatch> BatchStream::next_now() {
  const std::shared_ptr<Running> stream = running();
  return stream == nullptr ? std::nullopt : stream->prefetcher.next_now();
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
  ended->maker->hand_back(std::move(unused));
}

}  // namespace reverie
