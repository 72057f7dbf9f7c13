// Tested in tests/integration/served_store_test.cc and tests/integration/served_reading_test.cc.
#include "reverie/adapters/reverb/reverb_client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reverie/base/log.h"
#include "reverie/base/random.h"
#include "reverie/base/start_thread.h"
#include "reverie/native_wire/chunk_bounds.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/reverb_wire/tensor_type.h"
#include "reverie/service/request_checks.h"
#include "reverie/service/served_checkpoints.h"

namespace reverie {
namespace {

// The pause before a query is repeated; it grows each time.
constexpr Duration kAskPauseMin = std::chrono::milliseconds(10);
constexpr Duration kAskPauseMax = std::chrono::milliseconds(250);
// A server that does not answer a question within this time is said not to answer.
constexpr Duration kAnswerPatience = std::chrono::milliseconds(500);
// An insert's id: the sender's number in the high bits, its own in the low bits.
constexpr int kSenderShift = 48;
// At most this many writers have their own stream.
constexpr std::size_t kSendersMax = 60'000;

// Checks an item before it shares a stream with others.
Status check_sendable(const Item& item) {
  REVERIE_RETURN_IF_ERROR(check_item(item));
  REVERIE_RETURN_IF_ERROR(check_chunk_rows(item, /*counts_room=*/false));
  for (const LayoutColumn& column : item.trajectory.layout().columns()) {
    if (!wire::dtype_to_wire(column.spec.dtype)) {
      return unimplemented("column '{}' is {}, which Reverb's protocol has no number for",
                           column.spec.name, dtype_name(column.spec.dtype));
    }
  }
  return {};
}

}  // namespace

std::string ReverbClient::path_of(std::string_view method) {
  return std::string(wire::kServicePath) + std::string(method);
}

Status ReverbClient::closed_status() {
  return cancelled("the client is closed");
}

Result<std::shared_ptr<ReverbClient>> ReverbClient::open(IoThreads& io_threads,
                                                         std::string_view target,
                                                         ReverbClientOptions options) {
  REVERIE_ASSIGN_OR_RETURN(auto grpc,
                           GrpcClient::open(io_threads, target, std::move(options.grpc)));
  return std::shared_ptr<ReverbClient>(
      new ReverbClient(std::move(grpc), options), [&io_threads](ReverbClient* client) {
        const bool is_here = client->fork_guard_.check("client").ok();
        if (!is_here || !client->world_.is_own_thread()) return delete client;
        io_threads.ending().end("a client", [client] { delete client; });
      });
}

struct ReverbClient::PendingQuery {
  RequestId id = 0;
  // Begins the call. If it ends with UNAVAILABLE, repeat() may call this again.
  std::function<std::shared_ptr<GrpcClientCall>(const PendingQueryPtr&)> call;
  std::function<void(const Status&)> fail;
  std::string_view method = {};
  TimePoint begun_at = {};
  TimePoint give_up_at = TimePoint::max();
  TimePoint due = {};  // once it is paused
  int attempts = 0;
  bool is_in_order = false;
  bool is_logged = false;  // the retry was logged
};

ReverbClient::~ReverbClient() {
  close();
  timers_.stop();
  client_->close();  // again: a timer may have begun a call meanwhile, whose end needs this
}

void ReverbClient::close() {
  std::vector<std::shared_ptr<InsertSender>> senders;
  std::vector<PendingQueryPtr> paused;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    senders = senders_by_number_;
    for (auto& [id, pending] : pending_) {
      if (pending.paused) paused.push_back(std::exchange(pending.paused, nullptr));
    }
  }
  for (const auto& sender : senders) {
    if (sender) sender->close(closed_status());
  }
  for (const PendingQueryPtr& query : paused) {
    forget(query->id);
    query->fail(closed_status());
  }
  client_->close();  // ends every call, and its `done` with it
}

bool ReverbClient::is_closed() {
  MutexLock lock(mutex_);
  return is_closed_;
}

// --- Requests that can be cancelled ---------------------------------------------------------

RequestId ReverbClient::keep(RequestId id, std::shared_ptr<GrpcClientCall> call, int step) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end() || found->second.step > step) return id;
  if (found->second.is_cancelled) call->cancel();
  found->second.call = std::move(call);
  found->second.step = step;
  return id;
}

void ReverbClient::forget(RequestId id) {
  MutexLock lock(mutex_);
  pending_.erase(id);
}

void ReverbClient::cancel(RequestId id) {
  if (id >> kSenderShift != 0) {
    std::shared_ptr<InsertSender> sender;
    {
      MutexLock lock(mutex_);
      const auto index = static_cast<std::size_t>(id >> kSenderShift) - 1;
      if (index < senders_by_number_.size()) sender = senders_by_number_[index];
    }
    const RequestId request = id & ((RequestId{1} << kSenderShift) - 1);
    if (sender) sender->cancel(request, cancelled("the insert was cancelled"));
    return;
  }
  Pending pending;
  Done<SampleResult> behind;  // that of a sample request which waits for another
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    found->second.is_cancelled = true;
    pending = found->second;
    found->second.paused = nullptr;
    const auto nameless = nameless_.find(id);
    if (nameless != nameless_.end() && nameless->second.is_behind) {
      behind = std::exchange(nameless->second.done, nullptr);
    }
  }
  if (behind) {
    forget(id);
    behind({cancelled("the call was cancelled"), {}});
  } else if (pending.paused) {
    forget(id);
    pending.paused->fail(cancelled("the call was cancelled"));
  } else if (pending.call) {
    pending.call->cancel();
  }
  if (pending.channel) pending.channel->cancel(id);
}

GrpcCallOptions ReverbClient::patient() const {
  GrpcCallOptions options;
  options.is_waiting_for_ready = true;
  options.ready_time = retry_time_;
  return options;
}

TimePoint ReverbClient::give_up_at() const {
  return retry_time_ == Duration::max() ? TimePoint::max() : Clock::system().now() + retry_time_;
}

RequestId ReverbClient::unary(std::string_view method, std::string request, Repeats repeats,
                              GrpcClient::UnaryDone done) {
  auto query = std::make_shared<PendingQuery>();
  query->method = method;
  query->begun_at = Clock::system().now();
  query->give_up_at = give_up_at();
  query->is_in_order = repeats == Repeats::kInOrder;
  query->fail = [done](const Status& status) { done(status); };
  query->call = [this, path = path_of(method), request = std::move(request), repeats,
                 done = std::move(done)](const PendingQueryPtr& self) {
    return client_->unary(
        path, GrpcPayload::of(request), patient(),
        [this, repeats, done, self](Result<Ref<GrpcMessage>> response) {
          if (repeats != Repeats::kNever && response.status().code() == StatusCode::kUnavailable) {
            repeat(self, response.status());
            return;
          }
          forget(self->id);
          done(std::move(response));
        });
  };
  {
    MutexLock lock(mutex_);
    query->id = begin();
    Pending& pending = pending_[query->id];
    if (query->is_in_order && is_holding_ && !is_closed_) {
      pending.paused = query;
      return query->id;
    }
  }
  begin_call(query);
  return query->id;
}

void ReverbClient::begin_call(const PendingQueryPtr& query) {
  const int attempt = ++query->attempts;
  keep(query->id, query->call(query), attempt);
}

void ReverbClient::repeat(const PendingQueryPtr& query, const Status& why) {
  const TimePoint now = Clock::system().now();
  query->due = now + std::min(kAskPauseMin * query->attempts, kAskPauseMax);
  bool is_paused = false;
  bool is_held = false;  // it begins with others
  if (now < query->give_up_at) {
    MutexLock lock(mutex_);
    const auto found = pending_.find(query->id);
    if (!is_closed_ && found != pending_.end() && !found->second.is_cancelled) {
      found->second.paused = query;
      is_paused = true;
      is_held = query->is_in_order && std::exchange(is_holding_, true);
    }
  }
  if (!is_paused) {
    forget(query->id);
    query->fail(why);
    return;
  }
  if (now - query->begun_at >= kSilentRetries && !std::exchange(query->is_logged, true)) {
    log_warning("{} has failed for {:.3g} s, and is retried: {}", query->method,
                to_seconds(kSilentRetries), why.message());
  }
  if (is_held) return;
  if (query->is_in_order) return begin_held();
  const std::uint64_t timer = world_.schedule(query->due, [this, id = query->id] {
    if (const PendingQueryPtr paused = take_paused(id)) begin_call(paused);
  });
  if (timer != 0 || !take_paused(query->id)) return;
  forget(query->id);
  query->fail(no_thread(format("the next try of {}", query->method)));
}

ReverbClient::PendingQueryPtr ReverbClient::take_paused(RequestId id) {
  MutexLock lock(mutex_);
  const auto found = pending_.find(id);
  return found == pending_.end() ? nullptr : std::exchange(found->second.paused, nullptr);
}

ReverbClient::PendingQueryPtr ReverbClient::next_held() {
  MutexLock lock(mutex_);
  for (const auto& [id, pending] : pending_) {
    if (pending.paused && pending.paused->is_in_order) return pending.paused;
  }
  is_holding_ = false;
  return nullptr;
}

void ReverbClient::begin_held() {
  while (const PendingQueryPtr query = next_held()) {
    const bool is_due = query->due <= Clock::system().now();
    if (!is_due && world_.schedule(query->due, [this] { begin_held(); }) != 0) return;
    if (!take_paused(query->id)) continue;  // it was cancelled
    if (is_due) {
      begin_call(query);
    } else {
      forget(query->id);
      query->fail(no_thread(format("the next try of {}", query->method)));
    }
  }
}

// --- Inserts --------------------------------------------------------------------------------

ReverbClient::Sender ReverbClient::sender_of(std::string_view table, std::uint64_t writer) {
  MutexLock lock(mutex_);
  if (writer != 0) {
    if (const auto found = writers_.find(writer); found != writers_.end()) return found->second;
    if (senders_by_number_.size() < kSendersMax) {
      return writers_.emplace(writer, make_sender("a writer's tables")).first->second;
    }
  }
  if (const auto found = senders_.find(table); found != senders_.end()) return found->second;
  return senders_.emplace(std::string(table), make_sender(format("table '{}'", table)))
      .first->second;
}

ReverbClient::Sender ReverbClient::make_sender(std::string what) {
  InsertSender::Options options;
  options.retry_time = retry_time_;
  options.seed = random_seed();
  auto made = std::make_shared<InsertSender>(std::move(what), world_, options);
  senders_by_number_.push_back(made);
  return {std::move(made), senders_by_number_.size()};
}

void ReverbClient::end_writer(std::uint64_t writer) {
  std::shared_ptr<InsertSender> sender;
  {
    MutexLock lock(mutex_);
    const auto found = writers_.find(writer);
    if (found == writers_.end()) return;
    sender = std::move(found->second.sender);
    senders_by_number_[found->second.number - 1] = nullptr;
    writers_.erase(found);
  }
  sender->close(cancelled("the writer has ended"));
}

RequestId ReverbClient::insert(InsertRequest request, Done<InsertResult> done) {
  // In a forked child the locks may be held for ever, by threads that it does not have.
  Status status = fork_guard_.check("client");
  if (status.ok() && is_closed()) status = closed_status();
  if (status.ok()) status = check_each(request.items, check_sendable);
  if (!status.ok() || request.items.empty()) {
    done({std::move(status), 0});
    return 0;
  }
  const Sender sender = sender_of(request.table, request.writer);
  return (sender.number << kSenderShift) | sender.sender->insert(request, std::move(done));
}

// --- Updates and questions ------------------------------------------------------------------

RequestId ReverbClient::mutate(const MutateRequest& request, Done<MutateResult> done) {
  MutateResult result;
  result.status = is_closed() ? closed_status() : check_mutate_request(request);
  if (!result.status.ok()) {
    done(std::move(result));
    return 0;
  }
  std::vector<ItemKey> keys(request.tickets.begin(), request.tickets.end());
  keys.insert(keys.end(), request.keys.begin(), request.keys.end());
  std::vector<double> priorities(request.ticket_priorities.begin(),
                                 request.ticket_priorities.end());
  priorities.insert(priorities.end(), request.key_priorities.begin(), request.key_priorities.end());
  // dm-reverb's server deletes them, and reports no count.
  std::vector<ItemKey> deletes;
  std::vector<wire::MutatePrioritiesRequest::Corrupt> corrupt;
  for (const CorruptItem& item : request.corrupt) {
    corrupt.push_back({item.key, item.chunk, item.why});
    if (std::ranges::count(deletes, item.key) > 0) continue;  // drawn twice
    deletes.push_back(item.key);
    log_warning("item {} of table '{}' cannot be decoded, and its server removes it: {}", item.key,
                request.table, item.why);
  }
  deletes.insert(deletes.end(), request.deletes.begin(), request.deletes.end());
  result.updated = keys.size();
  result.deleted = deletes.size();
  return unary("MutatePriorities",
               wire::write_mutate_request(request.table, keys, priorities, deletes, corrupt),
               Repeats::kInOrder,
               [result, done = std::move(done)](const Result<Ref<GrpcMessage>>& response) mutable {
                 if (!response.ok()) result = {.status = response.status()};
                 done(std::move(result));
               });
}

RequestId ReverbClient::lookup(const LookupRequest&, Done<LookupResult> done) {
  done({is_closed() ? closed_status()
                    : unimplemented("Reverb's protocol has no look-up of items by key"),
        {},
        {}});
  return 0;
}

RequestId ReverbClient::reset(std::string_view table, Done<Status> done) {
  if (is_closed()) {
    done(closed_status());
    return 0;
  }
  // Not repeated: that would also drop items inserted in between.
  return unary("Reset", wire::write_reset_request(table), Repeats::kNever,
               [done = std::move(done)](const Result<Ref<GrpcMessage>>& response) {
                 done(response.status());
               });
}

RequestId ReverbClient::info(Done<Result<std::vector<TableInfo>>> done) {
  if (is_closed()) {
    done(closed_status());
    return 0;
  }
  return unary("ServerInfo", "", Repeats::kInAnyOrder,
               [done = std::move(done)](const Result<Ref<GrpcMessage>>& response) {
                 if (!response.ok()) return done(response.status());
                 auto infos = wire::read_info_response((*response)->bytes());
                 if (!infos.ok()) return done(infos.status());
                 done(std::move(infos->tables));
               });
}

RequestId ReverbClient::new_client(Done<Result<std::uint64_t>> done) {
  if (is_closed()) {
    done(closed_status());
    return 0;
  }
  return unary(
      "ServerInfo", wire::write_info_request({.wants_client_number = true}), Repeats::kInAnyOrder,
      [done = std::move(done)](const Result<Ref<GrpcMessage>>& response) {
        if (!response.ok()) return done(response.status());
        const auto info = wire::read_info_response((*response)->bytes());
        if (!info.ok()) return done(info.status());
        if (info->client_number == 0) {
          return done(
              unimplemented("the server does not number its clients, as dm-reverb's does not"));
        }
        done(info->client_number);
      });
}

Result<std::string> ReverbClient::checkpoint_and_wait(std::string_view payload,
                                                      const Interrupted& interrupted) {
  REVERIE_RETURN_IF_ERROR(check_user_payload(payload.size()));
  REVERIE_ASSIGN_OR_RETURN(const Ref<GrpcMessage> message,
                           unary_and_wait(*client_, path_of("Checkpoint"),
                                          GrpcPayload::of(wire::write_checkpoint_request(payload)),
                                          patient(), interrupted));
  REVERIE_ASSIGN_OR_RETURN(const wire::CheckpointResponse response,
                           wire::read_checkpoint_response(message->bytes()));
  if (response.payload_bytes != payload.size()) {
    return unimplemented(
        "the server wrote '{}' without the payload of {} bytes: dm-reverb's servers and earlier "
        "ones of reverie store none; keep the payload in a file of your own",
        response.path, payload.size());
  }
  return std::string(response.path);
}

Result<StoreOrigin> ReverbClient::origin_and_wait(const Interrupted& interrupted) {
  REVERIE_ASSIGN_OR_RETURN(
      const Ref<GrpcMessage> message,
      unary_and_wait(*client_, path_of("ServerInfo"),
                     GrpcPayload::of(wire::write_info_request({.wants_origin = true})), patient(),
                     interrupted));
  REVERIE_ASSIGN_OR_RETURN(wire::ServerInfoResponse response,
                           wire::read_info_response(message->bytes()));
  if (!response.origin) {
    return unimplemented(
        "the server does not tell which checkpoint it was loaded from; dm-reverb's servers and "
        "earlier ones of reverie do not");
  }
  return *std::move(response.origin);
}

void ReverbClient::ping(TimePoint deadline, std::function<void(Status)> done) {
  GrpcCallOptions options;
  options.deadline = deadline;
  client_->unary(path_of("ServerInfo"), GrpcPayload(), std::move(options),
                 [done = std::move(done)](const Result<Ref<GrpcMessage>>& response) {
                   done(response.status());
                 });
}

// As ping(): the call fails with the first attempt to connect that fails.
Status ReverbClient::why_unreachable() {
  GrpcCallOptions options;
  options.deadline = Clock::system().now() + kAnswerPatience;
  const Status status =
      unary_and_wait(*client_, path_of("ServerInfo"), GrpcPayload(), std::move(options)).status();
  if (status.code() == StatusCode::kDeadlineExceeded) {
    return unavailable("no answer within {:.3g} s", to_seconds(kAnswerPatience));
  }
  return status.code() == StatusCode::kUnavailable ? status : Status();
}

RequestId ReverbClient::why_blocked(std::string_view table, Done<Result<BlockedReport>> done) {
  if (is_closed()) {
    done(closed_status());
    return 0;
  }
  done(unimplemented("Reverb's protocol has no report on why requests of table '{}' wait", table));
  return 0;
}

}  // namespace reverie
