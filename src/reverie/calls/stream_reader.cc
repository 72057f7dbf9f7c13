// Tested in stream_test.cc.
#include "reverie/calls/stream_reader.h"

#include <chrono>
#include <utility>
#include <vector>

#include "reverie/tensor/value_reader.h"

namespace reverie {
namespace {

// How long a server that cannot be reached just now may still be told that a stream is closed.
constexpr Duration kTellWithin = std::chrono::seconds(30);

// Why a call brought no answer.
Status failure_of(const CallResult& result) {
  return result.status.ok() ? internal_error("a stream's call ended without an answer")
                            : result.status;
}

}  // namespace

// Refuses a thread while another one does the same.
class StreamReader::Alone {
 public:
  explicit Alone(std::atomic<bool>& is_busy)
      : is_busy_(is_busy), is_alone_(!is_busy.exchange(true)) {}
  ~Alone() {
    if (is_alone_) is_busy_.store(false);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  Status check(const char* what) const {
    if (is_alone_) return {};
    return failed_precondition(
        "another thread {} this stream; a stream has one thread to read and one to send", what);
  }

 private:
  std::atomic<bool>& is_busy_;
  const bool is_alone_;
};

Result<std::unique_ptr<StreamReader>> StreamReader::open(const std::shared_ptr<Peer>& peer,
                                                         const std::string& to,
                                                         const std::string& function,
                                                         Payload arguments,
                                                         const Options& options) {
  if (options.window == 0) return invalid_argument("window is 0; it must be at least 1");
  CallOptions call;
  call.deadline = options.deadline;
  const CallResult begun = peer->sync(to, function, std::move(arguments), call);
  if (begun.kind != CallResult::Kind::kAnswer) return failure_of(begun);
  ValueReader reader(begun.payload);
  if (reader.done()) return data_loss("'{}' on '{}' is not a stream", function, to);
  REVERIE_ASSIGN_OR_RETURN(const ValueToken number, reader.next());
  if (number.kind != ValueKind::kInteger || number.integer < 0) {
    return data_loss("'{}' on '{}' is not a stream: it answers with another value", function, to);
  }
  std::unique_ptr<StreamReader> made(
      new StreamReader(peer, to, static_cast<std::uint64_t>(number.integer), options.window));
  REVERIE_ASSIGN_OR_RETURN(Call watch, made->ask(StreamAsk::kWatch, 0));
  {
    MutexLock lock(made->mutex_);
    made->watch_ = std::move(watch);
  }
  REVERIE_RETURN_IF_ERROR(made->fill_window());
  return made;
}

Result<StreamReader::Call> StreamReader::ask(StreamAsk what, std::uint64_t number, Payload value,
                                             TimePoint deadline) {
  CallOptions options;
  options.deadline = deadline;
  options.copies_bulk = true;
  return PendingCall::begin(peer_, to_, std::string(kStreamsFunction),
                            encode_stream_message({number_, what, number, std::move(value)}),
                            options);
}

// By one thread at a time: the one that reads.
Status StreamReader::fill_window() {
  while (true) {
    std::uint64_t number = 0;
    {
      MutexLock lock(mutex_);
      if (is_over_ || wanted_.size() >= window_) return {};
      number = asked_++;
    }
    Result<Call> call = ask(StreamAsk::kNext, number);
    if (!call.ok()) {
      MutexLock lock(mutex_);
      --asked_;
      return wanted_.empty() ? call.status() : Status();
    }
    keep(&StreamReader::wanted_, *std::move(call));
  }
}

// Adds a call, which close() ends; if that has happened, it is ended here.
void StreamReader::keep(Calls StreamReader::*calls, Call call) {
  {
    MutexLock lock(mutex_);
    if (!is_over_) {
      (this->*calls).push_back(std::move(call));
      return;
    }
  }
  call->cancel();
}

Result<StreamReader::Call> StreamReader::wait_for_first(Calls StreamReader::*calls, TimePoint until,
                                                        const char* what) {
  Call first;
  {
    MutexLock lock(mutex_);
    if (is_over_ || (this->*calls).empty()) return Call();
    first = (this->*calls).front();
  }
  if (!first->wait_until(until)) {
    return deadline_exceeded("'{}' has not {} in time; the stream continues", to_, what);
  }
  MutexLock lock(mutex_);
  if (is_over_) return cancelled("this stream of '{}' was closed", to_);
  (this->*calls).pop_front();
  return first;
}

Result<std::optional<Payload>> StreamReader::next(TimePoint until) {
  const Alone alone(is_reading_);
  REVERIE_RETURN_IF_ERROR(alone.check("reads"));
  REVERIE_RETURN_IF_ERROR(fill_window());
  REVERIE_ASSIGN_OR_RETURN(const Call first, wait_for_first(&StreamReader::wanted_, until,
                                                            "sent the stream's next value"));
  if (!first) return std::optional<Payload>();
  const CallResult& came = first->result();
  Result<StreamAnswer> answer = came.kind == CallResult::Kind::kAnswer
                                    ? decode_stream_answer(came.payload)
                                    : Result<StreamAnswer>(failure_of(came));
  if (!answer.ok()) {
    close();
    return answer.status();
  }
  if (answer->is_end) {
    {
      MutexLock lock(mutex_);
      result_ = std::move(answer->value);
    }
    (void)cancel_calls();
    return std::optional<Payload>();
  }
  (void)fill_window();  // if it cannot, the next call of this function says why
  return std::optional<Payload>(std::move(answer->value));
}

std::optional<Payload> StreamReader::result() const {
  MutexLock lock(mutex_);
  return result_;
}

Status StreamReader::send(Payload value, TimePoint until) {
  const Alone alone(is_sending_);
  REVERIE_RETURN_IF_ERROR(alone.check("sends to"));
  while (true) {
    bool has_room = false;
    std::uint64_t number = 0;
    {
      MutexLock lock(mutex_);
      if (is_over_ || is_finished_) {
        return failed_precondition("this stream of '{}' has {}; nothing can be sent", to_,
                                   is_over_ ? "ended" : "been finished");
      }
      has_room = untaken_.size() < window_;
      number = sent_;
    }
    if (has_room) {
      REVERIE_ASSIGN_OR_RETURN(Call call, ask(StreamAsk::kSend, number, std::move(value)));
      {
        MutexLock lock(mutex_);
        ++sent_;
      }
      keep(&StreamReader::untaken_, std::move(call));
      return {};
    }
    REVERIE_ASSIGN_OR_RETURN(const Call taken, wait_for_first(&StreamReader::untaken_, until,
                                                              "taken a value that was sent"));
    if (taken && taken->result().kind != CallResult::Kind::kAnswer) {
      return failure_of(taken->result());
    }
  }
}

Status StreamReader::finish(TimePoint until) {
  const Alone alone(is_sending_);
  REVERIE_RETURN_IF_ERROR(alone.check("sends to"));
  std::uint64_t count = 0;
  {
    MutexLock lock(mutex_);
    if (is_over_ || std::exchange(is_finished_, true)) return {};
    count = sent_;
  }
  const Result<Call> told = ask(StreamAsk::kFinish, count);
  if (!told.ok()) {  // the server was not told, so it may be tried again
    MutexLock lock(mutex_);
    is_finished_ = false;
    return told.status();
  }
  if (!(*told)->wait_until(until)) return deadline_exceeded("'{}' has not answered in time", to_);
  const CallResult& result = (*told)->result();
  return result.kind == CallResult::Kind::kAnswer ? Status() : failure_of(result);
}

void StreamReader::close() {
  if (!cancel_calls()) return;
  // A server that has not read the watch yet never does, so its end would tell it nothing.
  (void)ask(StreamAsk::kClose, 0, {}, Clock::system().now() + kTellWithin);
}

bool StreamReader::cancel_calls() {
  std::vector<Call> calls;
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_over_, true)) return false;
    calls.assign(wanted_.begin(), wanted_.end());
    calls.insert(calls.end(), untaken_.begin(), untaken_.end());
    wanted_.clear();
    untaken_.clear();
    if (watch_) calls.push_back(std::move(watch_));
  }
  for (const Call& call : calls) {
    if (!call->is_done()) call->cancel();
  }
  return true;
}

}  // namespace reverie
