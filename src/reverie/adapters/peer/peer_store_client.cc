// Tested in tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/peer_store_client.h"

#include <algorithm>
#include <utility>

#include "reverie/adapters/peer/peer_store_client_parts.h"
#include "reverie/base/random.h"
#include "reverie/native_wire/chunk_bounds.h"
#include "reverie/service/request_checks.h"
#include "reverie/service/served_checkpoints.h"

namespace reverie {
namespace {

using store_wire::StoreCall;

// Added to the limiter's time, for a server that does not answer at all.
constexpr Duration kAnswerTime = std::chrono::seconds(2);
// How long a cancelled request waits for the server's report of what it has done.
constexpr Duration kCancelTime = std::chrono::milliseconds(500);
// An insert's id: the pump's number in the high bits, its own in the low bits.
constexpr int kPumpShift = 48;

Status closed_status() {
  return cancelled("the client is closed");
}

Status check_sendable(const Item& item) {
  REVERIE_RETURN_IF_ERROR(check_item(item));
  return check_chunk_rows(item, /*counts_room=*/true);  // the server opens chunks with theirs
}

}  // namespace

Result<std::shared_ptr<PeerStoreClient>> PeerStoreClient::open(LinkLoops& loops,
                                                               std::string_view target,
                                                               PeerStoreOptions options) {
  REVERIE_ASSIGN_OR_RETURN(Endpoint endpoint, parse_endpoint(target));
  return std::shared_ptr<PeerStoreClient>(
      new PeerStoreClient(loops, std::move(endpoint), std::move(options)), &PeerStoreClient::end);
}

void PeerStoreClient::end(PeerStoreClient* client) {
  const bool is_own_thread = client->loop_.is_current() || client->timers_.is_own_thread();
  if (!is_own_thread || !client->fork_guard_.check("client").ok()) return delete client;
  client->loops_.io_threads().ending().end("a client", [client] { delete client; });
}

PeerStoreClient::PeerStoreClient(LinkLoops& loops, Endpoint endpoint, PeerStoreOptions options)
    : loops_(loops),
      loop_(loops.io_threads().next()),
      endpoint_(std::move(endpoint)),
      options_(std::move(options)),
      timers_(Clock::system()),
      alarm_(timers_, [this] { sweep(); }) {}

PeerStoreClient::~PeerStoreClient() {
  if (!fork_guard_.check("client").ok()) {
    leave_to_parent(std::move(session_));
    leave_to_parent(std::move(connecting_));
    return;
  }
  close();
  timers_.stop();
}

Status PeerStoreClient::check_usable() {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("client"));
  MutexLock lock(mutex_);
  return is_closed_ ? closed_status() : Status();
}

TimePoint PeerStoreClient::give_up_at() const {
  return options_.retry_time == Duration::max() ? TimePoint::max()
                                                : Clock::system().now() + options_.retry_time;
}

void PeerStoreClient::finish(Outcome& outcome) {
  for (auto& [answer, why] : outcome.failed) answer(why, nullptr);
  for (auto& [done, result] : outcome.ended) done(std::move(result));
}

void PeerStoreClient::fail_all(const Status& why, Outcome& outcome) {
  for (auto& [id, pending] : pending_) {
    if (!pending.is_reading) outcome.failed.emplace_back(std::move(pending.answer), why);
  }
  std::erase_if(pending_, [](const auto& entry) { return !entry.second.is_reading; });
}

std::optional<bool> PeerStoreClient::look(const std::function<bool()>& is_done) {
  if (!fork_guard_.check("client").ok()) return std::nullopt;
  return loops_.polls_of(loop_).wait(Clock::system(), is_done, TimePoint::max(), /*yields=*/false);
}

Status PeerStoreClient::why_unreachable() {
  if (!fork_guard_.check("client").ok()) return {};
  MutexLock lock(mutex_);
  if (session_ && session_->stage == Session::Stage::kOpen) return {};
  if (!last_failure_.ok()) return last_failure_;
  return unavailable("{} has not answered yet", endpoint_.to_string());
}

std::string PeerStoreClient::transport() {
  MutexLock lock(mutex_);
  return session_ ? session_->link->transport() : "nothing";
}

std::vector<std::shared_ptr<InsertPump>> PeerStoreClient::pumps() {
  std::vector<std::shared_ptr<InsertPump>> found;
  for (const auto& pump : pumps_) {
    if (pump) found.push_back(pump);
  }
  return found;
}

void PeerStoreClient::close() {
  if (!fork_guard_.check("client").ok()) return;
  Outcome outcome;
  SessionPtr session;
  std::vector<std::shared_ptr<InsertPump>> all;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    session = std::move(session_);
    session_ = nullptr;
    all = pumps();
    for (auto& [id, pending] : pending_) {
      if (session && pending.is_sent) send_cancel(*session, id);
    }
    fail_all(closed_status(), outcome);
    connect_at_ = TimePoint::max();
  }
  for (const auto& pump : all) pump->close(closed_status(), outcome.ended);
  // Samples that are still being read keep their memory.
  if (session && !session->returns->keep(session->link)) session->link->hang_up();
  loop_.run_and_wait([this] { connecting_ = nullptr; });
  finish(outcome);
}

// --- Requests -------------------------------------------------------------------------------

RequestId PeerStoreClient::ask(Pending pending) {
  const std::size_t size = pending.message ? pending.message->payload.head.size() : 0;
  const std::size_t size_max = FrameLimits().head_bytes_max;
  Answer refused;
  Status why;
  Outcome outcome;
  RequestId id = 0;
  TimePoint due = TimePoint::max();
  {
    MutexLock lock(mutex_);
    if (is_closed_) {
      refused = std::move(pending.answer);
      why = closed_status();
    } else if (size > size_max) {
      refused = std::move(pending.answer);
      why = resource_exhausted("a request has {} bytes, and a server accepts {}: ask for less",
                               size, size_max);
    } else {
      id = ++last_id_;
      pending.give_up_at = give_up_at();
      Pending& kept = pending_[id] = std::move(pending);
      if (session_ && session_->stage == Session::Stage::kOpen) {
        if (kept.kind != StoreCall::kMutate) {
          for (const auto& pump : pumps_) {
            if (pump) pump->pump(outcome.ended, /*all=*/true);
          }
        }
        send(id, kept);
        due = kept.answer_by;
      } else {
        due = std::min(kept.deadline, kept.give_up_at);
        need_connection();
      }
    }
  }
  if (refused) refused(why, nullptr);
  if (due != TimePoint::max()) watch(due);
  finish(outcome);
  return id;
}

void PeerStoreClient::send(RequestId id, Pending& pending) {
  pending.is_sent = true;
  if (pending.sampling) pending.message = sample_message(*pending.sampling);
  session_->link->send({FrameKind::kCall, static_cast<std::uint64_t>(pending.kind), 0, id},
                       pending.message);
}

// Made when it is sent: it depends on the connection.
std::shared_ptr<const Message> PeerStoreClient::sample_message(Sampling& sampling) {
  const auto found = names_.find(sampling.table);
  sampling.names = found == names_.end() ? nullptr : found->second;
  sampling.ask.wants_names = sampling.names == nullptr;
  if (sampling.deadline != TimePoint::max()) {
    sampling.ask.timeout = std::max(Duration::zero(), sampling.deadline - Clock::system().now());
  }
  sampling.ask.received = std::exchange(received_, {});
  sampling.ask.returned = session_->returns->take();
  return store_wire::message_of(store_wire::write_sample(sampling.ask));
}

RequestId PeerStoreClient::sample(SampleRequest request, Done<SampleResult> done) {
  SampleResult refused;
  request.min_count = std::min(request.min_count, request.count);
  refused.status = check_usable();
  if (refused.status.ok()) refused.status = check_sample_request(request);
  request.batch.clear();
  if (!refused.status.ok()) {
    refused.batch = std::move(request.batch);
    done(std::move(refused));
    return 0;
  }
  Pending pending;
  pending.kind = StoreCall::kSample;
  auto sampling = std::make_shared<Sampling>();
  sampling->table = request.table;
  sampling->count = request.count;
  sampling->batch = std::move(request.batch);
  sampling->done = std::move(done);
  store_wire::SampleMessage& ask_for = sampling->ask;
  ask_for.table = sampling->table;
  ask_for.count = request.count;
  ask_for.min_count = request.min_count;
  ask_for.is_distinct = request.distinct;
  ask_for.wants_least = request.wants_least;
  if (request.deadline != TimePoint::max()) {
    sampling->deadline = request.deadline;
    pending.deadline = std::max(request.deadline, Clock::system().now() + InsertPump::kConnectTime);
    pending.answer_by = pending.deadline + kAnswerTime;
  }
  pending.answer = [sampling](const Status& why, const Payload*) {
    SampleResult result;
    result.status = why;
    if (!sampling->batch.empty()) {
      if (why.code() == StatusCode::kDeadlineExceeded) sampling->batch.set_rate_limited();
      sampling->batch.add_pin(Pin(sampling->held, 0));
    }
    result.batch = std::move(sampling->batch);
    sampling->done(std::move(result));
  };
  pending.sampling = std::move(sampling);
  return ask(std::move(pending));
}

template <typename T>
RequestId PeerStoreClient::question(StoreCall kind, bool is_repeatable, Payload asked,
                                    T (*read)(const Payload&), Done<T> done) {
  if (Status status = check_usable(); !status.ok()) {
    done(T{std::move(status)});
    return 0;
  }
  Pending pending;
  pending.kind = kind;
  pending.is_repeatable = is_repeatable;
  pending.message = store_wire::message_of(std::move(asked));
  pending.answer = [done = std::move(done), read](const Status& why, const Payload* answer) {
    done(answer ? read(*answer) : T{why});
  };
  return ask(std::move(pending));
}

RequestId PeerStoreClient::mutate(const MutateRequest& request, Done<MutateResult> done) {
  Status status = check_usable();
  if (status.ok()) status = check_mutate_request(request);
  if (!status.ok()) {
    done({.status = std::move(status)});
    return 0;
  }
  return question(StoreCall::kMutate, /*is_repeatable=*/true, store_wire::write_mutate(request),
                  store_wire::read_mutated, std::move(done));
}

RequestId PeerStoreClient::lookup(const LookupRequest& request, Done<LookupResult> done) {
  if (Status status = check_usable(); !status.ok()) {
    done({std::move(status), {}, {}});
    return 0;
  }
  Pending pending;
  pending.kind = StoreCall::kLookup;
  pending.is_repeatable = true;
  pending.message = store_wire::message_of(store_wire::write_lookup(request));
  pending.answer = [done = std::move(done), count = request.keys.size()](const Status& why,
                                                                         const Payload* answer) {
    LookupResult result = answer ? store_wire::read_found(*answer) : LookupResult{why, {}, {}};
    if (result.status.ok() &&
        (result.priorities.size() != count || result.tickets.size() != count)) {
      result = {data_loss("the server answered for {} of {} keys", result.priorities.size(), count),
                {},
                {}};
    }
    done(std::move(result));
  };
  return ask(std::move(pending));
}

RequestId PeerStoreClient::reset(std::string_view table, Done<Status> done) {
  // Not repeated: that would also drop items inserted in between.
  return question(StoreCall::kReset, /*is_repeatable=*/false, store_wire::write_text(table),
                  store_wire::read_status, std::move(done));
}

RequestId PeerStoreClient::info(Done<Result<std::vector<TableInfo>>> done) {
  return question(StoreCall::kInfo, /*is_repeatable=*/true, {}, store_wire::read_infos,
                  std::move(done));
}

RequestId PeerStoreClient::why_blocked(std::string_view table, Done<Result<BlockedReport>> done) {
  return question(StoreCall::kWhyBlocked, /*is_repeatable=*/true, store_wire::write_text(table),
                  store_wire::read_report, std::move(done));
}

RequestId PeerStoreClient::new_client(Done<Result<std::uint64_t>> done) {
  return question(StoreCall::kNewClient, /*is_repeatable=*/true, {}, store_wire::read_number,
                  std::move(done));
}

RequestId PeerStoreClient::checkpoint(std::string_view payload, Done<Result<std::string>> done) {
  if (Status status = check_user_payload(payload.size()); !status.ok()) {
    done(std::move(status));
    return 0;
  }
  return question(StoreCall::kCheckpoint, /*is_repeatable=*/false, store_wire::write_text(payload),
                  store_wire::read_path, std::move(done));
}

Result<std::string> PeerStoreClient::checkpoint_and_wait(std::string_view payload,
                                                         const WaitOptions& options) {
  return text_and_wait(
      *this,
      [this, payload](Done<Result<std::string>> done) {
        return checkpoint(payload, std::move(done));
      },
      options);
}

RequestId PeerStoreClient::origin(Done<Result<StoreOrigin>> done) {
  return question(StoreCall::kOrigin, /*is_repeatable=*/true, {}, store_wire::read_origin,
                  std::move(done));
}

Result<StoreOrigin> PeerStoreClient::origin_and_wait(const WaitOptions& options) {
  return reverie::origin_and_wait(
      *this, [this](Done<Result<StoreOrigin>> done) { return origin(std::move(done)); }, options);
}

// --- Inserts --------------------------------------------------------------------------------

std::shared_ptr<InsertPump> PeerStoreClient::make_pump(RequestId& base) {
  const auto number = static_cast<std::uint32_t>(pumps_.size() + 1);
  auto pump = std::make_shared<InsertPump>(number, random_seed());
  pumps_.push_back(pump);
  base = RequestId{number} << kPumpShift;
  if (session_ && session_->stage == Session::Stage::kOpen) {
    InsertPump::Ended none;
    pump->connect(session_->link, session_->limits, none);
  } else {
    need_connection();
  }
  return pump;
}

std::shared_ptr<InsertPump> PeerStoreClient::pump_of(std::string_view table, std::uint64_t writer,
                                                     RequestId& base) {
  MutexLock lock(mutex_);
  if (!session_) need_connection();
  Pump* found = nullptr;
  const bool has_own = writer_pumps_.contains(writer);
  if (has_own || (writer != 0 && pumps_.size() < store_wire::kWritersMax / 2)) {
    found = &writer_pumps_[writer];
  } else {
    const auto place = table_pumps_.find(table);
    found = place != table_pumps_.end() ? &place->second : &table_pumps_[std::string(table)];
  }
  if (!found->pump) {
    found->pump = make_pump(base);
    found->number = found->pump->number();
  }
  base = RequestId{found->number} << kPumpShift;
  return found->pump;
}

RequestId PeerStoreClient::insert(InsertRequest request, Done<InsertResult> done) {
  Status status = check_usable();
  if (status.ok()) status = check_each(request.items, check_sendable);
  if (!status.ok() || request.items.empty()) {
    done({std::move(status), 0});
    return 0;
  }
  RequestId base = 0;
  const std::shared_ptr<InsertPump> pump = pump_of(request.table, request.writer, base);
  Outcome outcome;
  const std::uint64_t first = pump->insert(request, give_up_at(), done, outcome.ended);
  if (first == 0) {
    done({closed_status(), 0});
    return 0;
  }
  const TimePoint due = pump->next_due();
  if (due != TimePoint::max()) watch(due);
  if (!pump->is_connected()) {
    // An attempt that failed before the pump had the items was the last, if nothing else waited.
    MutexLock lock(mutex_);
    need_connection();
  }
  finish(outcome);
  return base | first;
}

void PeerStoreClient::on_room(const SessionPtr& session) {
  Outcome outcome;
  std::vector<std::shared_ptr<InsertPump>> all;
  {
    MutexLock lock(mutex_);
    if (session_ != session) return;
    all = pumps();
  }
  for (const auto& pump : all) pump->pump(outcome.ended);
  finish(outcome);
}

void PeerStoreClient::on_inserted(const Session& session, const Payload& payload) {
  Result<store_wire::Inserted> inserted = store_wire::read_inserted(payload);
  if (!inserted.ok()) return;
  std::shared_ptr<InsertPump> pump;
  {
    MutexLock lock(mutex_);
    const std::size_t index = std::size_t{inserted->writer} - 1;
    if (index < pumps_.size()) pump = pumps_[index];
  }
  if (!pump) return;
  Outcome outcome;
  pump->on_inserted(*session.link, *inserted, outcome.ended);
  finish(outcome);
}

void PeerStoreClient::end_writer(std::uint64_t writer) {
  if (!fork_guard_.check("client").ok()) return;
  std::shared_ptr<InsertPump> pump;
  {
    MutexLock lock(mutex_);
    const auto found = writer_pumps_.find(writer);
    if (found == writer_pumps_.end()) return;
    pump = std::move(found->second.pump);
    pumps_[found->second.number - 1] = nullptr;
    writer_pumps_.erase(found);
  }
  Outcome outcome;
  pump->close(cancelled("the writer has ended"), outcome.ended);
  finish(outcome);
}

void PeerStoreClient::cancel(RequestId id) {
  if (!fork_guard_.check("client").ok()) return;
  Outcome outcome;
  const TimePoint until = Clock::system().now() + kCancelTime;
  if (id >> kPumpShift != 0) {
    std::shared_ptr<InsertPump> pump;
    {
      MutexLock lock(mutex_);
      const auto index = static_cast<std::size_t>(id >> kPumpShift) - 1;
      if (index < pumps_.size()) pump = pumps_[index];
    }
    if (!pump) return;
    pump->cancel(id & ((RequestId{1} << kPumpShift) - 1), cancelled("the insert was cancelled"),
                 until, outcome.ended);
    watch(until);
    return finish(outcome);
  }
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    Pending& pending = found->second;
    if (!pending.is_sent) {
      outcome.failed.emplace_back(std::move(pending.answer), cancelled("the call was cancelled"));
      pending_.erase(found);
    } else if (pending.late_with.ok()) {
      // It completes with what the server has done by then.
      pending.late_with = cancelled("the call was cancelled");
      pending.answer_by = until;
      if (session_ && session_->stage == Session::Stage::kOpen) send_cancel(*session_, id);
    }
  }
  watch(until);
  finish(outcome);
}

}  // namespace reverie
