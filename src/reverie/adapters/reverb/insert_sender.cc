#include "reverie/adapters/reverb/insert_sender.h"

#include <algorithm>
#include <string>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/base/random.h"
#include "reverie/base/start_thread.h"
#include "reverie/native_wire/stored_chunk.h"

namespace reverie {
namespace {

constexpr Duration kResendPauseMin = std::chrono::milliseconds(10);
constexpr Duration kResendPauseMax = std::chrono::seconds(1);
// A stream that lasted this long is not a failure, even without an answer: items may wait long.
constexpr Duration kLifeGood = std::chrono::seconds(2);
// The bounds of one message.
constexpr std::size_t kItemsMax = 1000;
constexpr std::size_t kMessageBytesMax = std::size_t{256} << 10;
// This much is sent although the server is busy: larger messages do not cost less per byte.
constexpr std::size_t kMessageBytesGood = std::size_t{64} << 10;
// How many messages may be unanswered at a server that does not report what it has accepted.
constexpr std::uint64_t kUnansweredMax = 4;
// Added to a deadline, for a server that does not answer.
constexpr Duration kInsertAnswerTime = std::chrono::seconds(2);

// Whether an item may be the reason. All other ends of a stream concern all of its items.
bool is_of_an_item(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kNotFound ||
         status.code() == StatusCode::kFailedPrecondition;
}

Status too_late(const InsertWindow::Request& request) {
  return deadline_exceeded("the server took fewer than {} items for table '{}' before the deadline",
                           request.count, request.table);
}

std::string name_of_session(std::uint64_t seed) {
  Random random(seed);
  return format("{:016x}{:016x}", random.next(), random.next());
}

}  // namespace

// One call. Its events go to its sender, and are ignored once the sender has another stream.
class InsertSender::Stream final : public GrpcClientEvents,
                                   public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(std::shared_ptr<InsertSender> sender) : sender_(std::move(sender)) {}

  void on_connected() override { sender_->on_connected(shared_from_this()); }
  void on_message(Ref<GrpcMessage> message) override {
    const auto response = wire::read_insert_response(message->bytes());
    if (response.ok()) {
      sender_->on_response(shared_from_this(), *response);
    } else {
      sender_->on_end(shared_from_this(), internal_error("{}", response.status().message()));
    }
  }
  void on_room() override {
    Outcome outcome;
    sender_->pump(outcome);
    sender_->finish(outcome);
  }
  void on_end(const Status& status) override { sender_->on_end(shared_from_this(), status); }

  std::shared_ptr<GrpcClientCall> call;

 private:
  const std::shared_ptr<InsertSender> sender_;
};

InsertSender::InsertSender(std::string what, CallWorld& world, const Options& options)
    : what_(std::move(what)),
      session_(name_of_session(options.seed)),
      retry_time_(options.retry_time),
      world_(world),
      chunks_(Random(options.seed + 1).next()) {}

void InsertSender::finish(Outcome& outcome) {
  for (auto& [done, result] : outcome.ended) done(std::move(result));
}

// --- Sending --------------------------------------------------------------------------------

std::uint64_t InsertSender::insert(const InsertRequest& request, Done done) {
  Outcome outcome;
  std::uint64_t first = 0;
  bool has_timer = true;
  {
    MutexLock lock(mutex_);
    if (is_closed_) {
      outcome.ended.emplace_back(std::move(done),
                                 InsertResult{cancelled("the client is closed"), 0});
    } else {
      const bool may_be_late = request.deadline != TimePoint::max();
      const TimePoint deadline =
          may_be_late ? std::max(request.deadline, world_.now()) : TimePoint::max();
      InsertWindow::Request& made =
          window_.add(request.items, deadline, std::move(done), kept(request.table));
      first = made.first;
      if (may_be_late) has_timer = set_timer(made);
    }
  }
  if (!has_timer) {
    cancel(first, no_thread("the deadline of an insert"));
    return first;
  }
  pump(outcome);
  finish(outcome);
  return first;
}

// A copy of the name that lives as long as this.
std::string_view InsertSender::kept(std::string_view table) {
  const auto found = std::ranges::find(tables_, table);
  return found != tables_.end() ? *found : tables_.emplace_back(table);
}

bool InsertSender::is_busy() const {
  return progress_.has_numbers ? progress_.sent > progress_.taken
                               : progress_.unanswered >= kUnansweredMax;
}

bool InsertSender::may_send() {
  if (is_closed_ || is_writing_ || is_resuming_ || retry_timer_ != 0 || window_.empty()) {
    return false;
  }
  if (!stream_) begin_stream();
  if (!window_.has_waiting()) return false;
  if (is_busy() && window_.waiting_bytes() < kMessageBytesGood) return false;
  return stream_->call->has_room();
}

std::size_t InsertSender::items_max() {
  const std::uint64_t next = window_.next();
  if (next >= alone_.end) return kItemsMax;
  if (next >= alone_.first) return 1;
  return static_cast<std::size_t>(std::min<std::uint64_t>(kItemsMax, alone_.first - next));
}

void InsertSender::cancel_timers() {
  for (const auto& [timer, deadline] : window_.take_timers()) world_.cancel(timer, deadline);
}

// Sends what may be sent. One thread writes at a time, without the lock; it looks again for what
// was added meanwhile.
void InsertSender::pump(Outcome& outcome) {
  while (true) {
    InsertWindow::Batch batch;
    StreamPtr stream;
    std::uint64_t settled_below = 0;
    bool is_new = false;
    bool takes_stored = false;
    {
      MutexLock lock(mutex_);
      cancel_timers();
      if (!may_send()) return;
      is_writing_ = true;
      stream = stream_;
      is_new = std::exchange(is_stream_new_, false);
      batch = window_.take(items_max(), kMessageBytesMax);
      settled_below = window_.base();
      takes_stored = progress_.takes_stored;
    }
    if (is_new) chunks_.restart();
    Result<GrpcPayload> payload = write_message(batch, settled_below, takes_stored);
    const Numbers numbers{batch.first, batch.first + batch.items.size()};
    MutexLock lock(mutex_);
    is_writing_ = false;
    if (!payload.ok()) {
      single_out(numbers, payload.status(), outcome);
      drop_stream();  // the chunks of the message count as sent
      continue;
    }
    if (stream_ != stream) continue;  // it is sent again on the next stream
    ++progress_.sent;
    ++progress_.unanswered;
    progress_.messages.push_back(numbers);
    stream->call->write(std::move(payload).value());
  }
}

Result<GrpcPayload> InsertSender::write_message(const InsertWindow::Batch& batch,
                                                std::uint64_t settled_below, bool takes_stored) {
  std::string items;
  for (const InsertWindow::Outgoing& item : batch.items) {
    scratch_.key = item.key;
    scratch_.table = item.table;
    scratch_.priority = item.priority;
    chunks_.add(item.trajectory, scratch_);
    wire::put_item(items, scratch_);
  }
  PayloadBuilder message;
  REVERIE_RETURN_IF_ERROR(chunks_.put_due(message, takes_stored));
  wire::put_numbered_fields(message.own(), items, chunks_.keep_keys(), batch.first, settled_below);
  return message.build();
}

// --- Streams --------------------------------------------------------------------------------

void InsertSender::begin_stream() {
  stream_ = std::make_shared<Stream>(shared_from_this());
  window_.restart();
  progress_ = {};
  is_stream_new_ = true;
  GrpcCallOptions options;
  options.is_waiting_for_ready = true;
  const TimePoint now = world_.now();
  if (broken_since_ == TimePoint::max()) broken_since_ = now;
  if (retry_time_ != Duration::max()) options.ready_time = broken_since_ + retry_time_ - now;
  options.metadata = {{std::string(wire::kSessionName), session_},
                      {std::string(wire::kStreamName), std::to_string(++stream_count_)}};
  stream_->call =
      world_.start(std::string(wire::kServicePath) + "InsertStream", std::move(options), stream_);
}

void InsertSender::drop_stream() {
  if (stream_) stream_->call->cancel();
  stream_.reset();
}

void InsertSender::on_connected(const StreamPtr& stream) {
  MutexLock lock(mutex_);
  if (stream_ == stream) progress_.since = world_.now();
}

void InsertSender::on_response(const StreamPtr& stream,
                               const wire::InsertStreamResponse& response) {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    if (stream_ != stream) return;
    broken_since_ = TimePoint::max();
    is_logged_ = false;
    progress_.unanswered = 0;
    if (response.requests_taken > 0) {
      progress_.has_numbers = true;
      progress_.taken = std::min(response.requests_taken, progress_.sent);
    }
    std::deque<Numbers>& messages = progress_.messages;
    if (!response.keys.empty()) messages.clear();  // this server sends no numbers
    while (messages.size() > 1 + progress_.sent - std::max<std::uint64_t>(progress_.taken, 1)) {
      messages.pop_front();
    }
    if (response.stored_chunk_version >= kStoredChunkVersion) progress_.takes_stored = true;
    for (const wire::NumberRun& run : response.confirmed) {
      window_.confirm(run.first, run.count, outcome);
    }
    for (const ItemKey key : response.keys) window_.confirm_key(key, outcome);
    if (!outcome.freed.empty()) {
      progress_.has_confirmed = true;
      pause_ = Duration::zero();
    }
    end_late(outcome);
  }
  pump(outcome);
  finish(outcome);
}

void InsertSender::cancel(std::uint64_t request, const Status& status) {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    InsertWindow::Request* const found = window_.find(request);
    if (!found) return;
    withdraw(*found, status, outcome);
  }
  pump(outcome);
  finish(outcome);
}

void InsertSender::withdraw(InsertWindow::Request& request, const Status& status,
                            Outcome& outcome) {
  const bool is_sent = window_.is_sent(request);
  late_.erase(request.first);
  window_.give_up(request, status, outcome);
  // Ending the stream withdraws the request at the server; all other items are sent again.
  if (!is_sent) return;
  drop_stream();
  resume_soon();
}

// A caller that cancels one request often cancels others next: one new stream serves all of them.
void InsertSender::resume_soon() {
  if (std::exchange(is_resuming_, true)) return;
  world_.post([self = shared_from_this()] {
    Outcome outcome;
    {
      MutexLock lock(self->mutex_);
      self->is_resuming_ = false;
    }
    self->pump(outcome);
    self->finish(outcome);
  });
}

void InsertSender::close(const Status& status) {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    window_.give_up_all(status, outcome);
    cancel_timers();
    drop_stream();
  }
  finish(outcome);
}

void InsertSender::on_end(const StreamPtr& stream, const Status& status) {
  Outcome outcome;
  bool is_log_due = false;
  {
    MutexLock lock(mutex_);
    if (stream_ != stream) return;  // it was ended before
    const Progress progress = std::exchange(progress_, {});
    drop_stream();
    const TimePoint now = world_.now();
    const bool is_passing = status.ok() || status.code() == StatusCode::kUnavailable ||
                            status.code() == StatusCode::kCancelled;
    const bool was_healthy =
        progress.since != TimePoint::max() && now - progress.since >= kLifeGood;
    if (was_healthy || broken_since_ == TimePoint::max()) broken_since_ = now;
    if (is_refusal(progress, status, outcome)) {
      // The other items are sent again at once: the server answers.
    } else if (!is_passing) {
      window_.give_up_all(status, outcome);
    } else if (!may_retry(now)) {
      window_.give_up_all(
          unavailable(
              "no server took items for {} for {:.3g} s, the time to retry: {}; see that it "
              "runs and can be reached, or let the client retry for longer",
              what_, to_seconds(retry_time_), status.message()),
          outcome);
    } else if (!window_.empty() && !progress.has_confirmed) {
      if (!try_later()) window_.give_up_all(no_thread(format("a retry for {}", what_)), outcome);
      is_log_due = now - broken_since_ >= kSilentRetries && !std::exchange(is_logged_, true);
    }
    if (window_.empty()) broken_since_ = TimePoint::max();
  }
  pump(outcome);
  finish(outcome);
  if (!is_log_due) return;
  log_warning("no server has taken items for {} for {:.3g} s, and they are sent again: {}", what_,
              to_seconds(kSilentRetries), status.message());
}

bool InsertSender::is_refusal(const Progress& progress, const Status& status, Outcome& outcome) {
  // Nothing was taken: the server refuses the stream, or it sends no numbers.
  if (!is_of_an_item(status) || progress.taken == 0) return false;
  if (progress.messages.size() != 1 + progress.sent - progress.taken) return false;  // malformed
  return single_out(progress.messages.front(), status, outcome);
}

// Ends: each time a request is settled, or `alone_` grows, by items that shared a message. Items
// stay in it, since many may be at fault: else each fault would repeat a message of all the rest.
bool InsertSender::single_out(const Numbers& numbers, const Status& status, Outcome& outcome) {
  const std::vector<InsertWindow::Request*> requests =
      window_.open_requests(numbers.first, numbers.end - numbers.first);
  if (requests.empty()) return false;
  if (requests.size() == 1) {
    window_.give_up(*requests.front(), status, outcome);
  } else if (alone_.end <= window_.base()) {  // all of those are settled
    alone_ = numbers;
  } else {
    alone_ = {std::min(alone_.first, numbers.first), std::max(alone_.end, numbers.end)};
  }
  return true;
}

bool InsertSender::may_retry(TimePoint now) const {
  return retry_time_ == Duration::max() || now - broken_since_ < retry_time_;
}

bool InsertSender::try_later() {
  if (is_closed_ || retry_timer_ != 0) return true;
  pause_ = pause_ == Duration::zero() ? kResendPauseMin : std::min(2 * pause_, kResendPauseMax);
  retry_timer_ = world_.schedule(world_.now() + pause_, [self = shared_from_this()] {
    Outcome outcome;
    {
      MutexLock lock(self->mutex_);
      self->retry_timer_ = 0;
    }
    self->pump(outcome);
    self->finish(outcome);
  });
  return retry_timer_ != 0;
}

// --- Deadlines ------------------------------------------------------------------------------

// False if the system has no thread for it.
bool InsertSender::set_timer(InsertWindow::Request& request) {
  request.timer = world_.schedule(
      request.deadline,
      [self = shared_from_this(), first = request.first] { self->on_deadline(first); });
  return request.timer != 0;
}

void InsertSender::on_deadline(std::uint64_t first) {
  Outcome outcome;
  {
    MutexLock lock(mutex_);
    InsertWindow::Request* const request = window_.find(first);
    if (!request) return;
    const bool may_wait = late_.try_emplace(first).second;
    if (may_wait) request->deadline = world_.now() + kInsertAnswerTime;
    if (may_wait && set_timer(*request)) {
      end_late(outcome);
    } else {
      withdraw(*request, too_late(*request), outcome);
    }
  }
  pump(outcome);
  finish(outcome);
}

void InsertSender::end_late(Outcome& outcome) {
  if (late_.empty() || !stream_ || progress_.taken == 0 || progress_.messages.empty()) return;
  const std::uint64_t taken_end = progress_.messages.front().end;
  bool must_restart = false;
  for (auto place = late_.begin(); place != late_.end();) {
    InsertWindow::Request* const request = window_.find(place->first);
    Late& late = place->second;
    if (request) {
      const bool is_taken = request->first + request->count <= taken_end;
      // While earlier items wait for their table, the server may read no more: on a new stream they
      // share a message with the request.
      const bool is_held_up = !is_taken && !late.was_held_up && window_.base() < taken_end;
      if (!is_taken && !is_held_up) break;
      must_restart = true;
      if (!std::exchange(is_taken ? late.is_asked_again : late.was_held_up, true)) {
        ++place;
        continue;
      }
      window_.give_up(*request, too_late(*request), outcome);
    }
    place = late_.erase(place);
  }
  if (!must_restart) return;
  drop_stream();
  resume_soon();
}

}  // namespace reverie
