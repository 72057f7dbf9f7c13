// The part of PeerStoreClient for the connection: connecting and reconnecting, received messages,
// and timeouts.
//
// Tested in tests/integration/peer_store_test.cc.
#include <algorithm>
#include <optional>
#include <utility>

#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/adapters/peer/peer_store_client_parts.h"
#include "reverie/base/log.h"
#include "reverie/base/random.h"

namespace reverie {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(10);
constexpr Duration kPauseMax = std::chrono::milliseconds(500);
// A connection that lasted this long is no failed attempt, even without an answer.
constexpr Duration kLifeGood = std::chrono::seconds(2);
// For this long, failed attempts are repeated without a message in the log.
constexpr Duration kSilentRetries = std::chrono::seconds(2);

bool is_transient(const Status& why) {
  return why.code() == StatusCode::kUnavailable || why.code() == StatusCode::kDeadlineExceeded ||
         why.code() == StatusCode::kDataLoss || why.code() == StatusCode::kInvalidArgument;
}

}  // namespace

// --- Time -----------------------------------------------------------------------------------

Status PeerStoreClient::unreachable() {
  return unavailable(
      "no server answered at {} for {:.3g} s, the time to retry: {}; see that it runs and can be "
      "reached, or let the client retry for longer",
      endpoint_.to_string(), to_seconds(options_.retry_time),
      last_failure_.ok() ? "there is no connection" : last_failure_.message());
}

Status PeerStoreClient::gone() {
  return is_closed_ ? cancelled("the client is closed")
                    : unavailable("the connection to {} was lost", endpoint_.to_string());
}

void PeerStoreClient::send_cancel(Session& session, RequestId id) {
  session.link->send({FrameKind::kCancel, 0, 0, id}, store_wire::message_of({}));
}

// Ends late requests, connects when that is due, and sets the alarm for the next deadline.
void PeerStoreClient::sweep() {
  Outcome outcome;
  std::vector<std::shared_ptr<InsertPump>> all;
  Status why;
  TimePoint next = TimePoint::max();
  const TimePoint now = Clock::system().now();
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
    why = unreachable();
    for (auto entry = pending_.begin(); entry != pending_.end();) {
      Pending& pending = entry->second;
      if (pending.is_reading) {
        ++entry;
        continue;
      }
      const TimePoint due =
          pending.is_sent ? pending.answer_by : std::min(pending.deadline, pending.give_up_at);
      if (due > now) {
        next = std::min(next, due);
        ++entry;
        continue;
      }
      Status late = pending.late_with;
      if (late.ok() && (pending.is_sent || pending.deadline <= now)) {
        late = deadline_exceeded("the server at {} did not answer before the deadline{}{}",
                                 endpoint_.to_string(), last_failure_.ok() ? "" : ": ",
                                 last_failure_.message());
      } else if (late.ok()) {
        late = why;
      }
      if (pending.is_sent && session_ && pending.kind == store_wire::StoreCall::kSample) {
        send_cancel(*session_, entry->first);
      }
      outcome.failed.emplace_back(std::move(pending.answer), std::move(late));
      entry = pending_.erase(entry);
    }
    if (session_ && session_->stage == Session::Stage::kOpen) {
      const std::vector<std::uint64_t> returned = session_->returns->take_due(now);
      if (!returned.empty()) {
        session_->link->send(
            {FrameKind::kCall, static_cast<std::uint64_t>(store_wire::StoreCall::kReturned), 0, 0},
            store_wire::message_of(store_wire::write_returned(returned)));
      }
      next = std::min(next, session_->returns->due());
    }
    all = pumps();
    if (connect_at_ <= now) {
      connect_at_ = TimePoint::max();
      need_connection();
    }
    next = std::min(next, connect_at_);
  }
  for (const auto& pump : all) next = std::min(next, pump->sweep(now, why, outcome.ended));
  if (next != TimePoint::max()) watch(next);
  finish(outcome);
}

// --- The connection -------------------------------------------------------------------------

void PeerStoreClient::need_connection() {
  if (is_closed_ || session_ || is_connecting_ || connect_at_ != TimePoint::max()) return;
  is_connecting_ = true;
  if (broken_since_ == TimePoint::max()) broken_since_ = Clock::system().now();
  loop_.post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->start_connecting();
  });
}

void PeerStoreClient::start_connecting() {
  {
    MutexLock lock(mutex_);
    if (is_closed_) return;
  }
  connecting_ = reverie::connect(
      loop_, endpoint_, nullptr, {}, options_.connect_timeout,
      [weak = weak_from_this(), &loop = loop_](Result<std::unique_ptr<Connection>> connection) {
        const auto self = weak.lock();
        if (!self) return;
        // The handle is dropped later: this code runs within it.
        loop.post([weak] {
          const auto client = weak.lock();
          if (client) client->connecting_ = nullptr;
        });
        self->connected(std::move(connection));
      },
      /*uses_local_door=*/true);
}

void PeerStoreClient::connected(Result<std::unique_ptr<Connection>> connection) {
  if (!connection.ok()) {
    return connect_failed(connection.status(), !is_transient(connection.status()));
  }
  if (!(*connection)->is_peer_local()) {
    return connect_failed(
        failed_precondition(
            "{} is on another machine, and the protocol 'peer' is for servers on this one; use "
            "protocol='grpc'",
            endpoint_.to_string()),
        /*is_final=*/true);
  }
  const auto session = std::make_shared<Session>(weak_from_this());
  session->link = StoreLink::make(loops_, std::move(connection).value(), session, FrameLimits());
  session->mine.name = std::string(store_wire::kClientName);
  session->mine.run = {random_seed(), random_seed()};
  for (std::uint64_t& part : session->mine.nonce) part = random_seed();
  {
    MutexLock lock(mutex_);
    is_connecting_ = false;
    if (is_closed_) return session->link->hang_up();
    session_ = session;
  }
  session->link->send({FrameKind::kHello, 0, 0, 0},
                      std::make_shared<const Message>(encode(session->mine)));
  session->link->start({});
}

void PeerStoreClient::connect_failed(const Status& why, bool is_final) {
  Outcome outcome;
  std::vector<std::shared_ptr<InsertPump>> all;
  bool is_log_due = false;
  TimePoint next = TimePoint::max();
  {
    MutexLock lock(mutex_);
    is_connecting_ = false;
    if (is_closed_) return;
    last_failure_ = why;
    const TimePoint now = Clock::system().now();
    if (is_final) {
      fail_all(why, outcome);
      all = pumps();
      broken_since_ = TimePoint::max();
      pause_ = Duration::zero();
    } else {
      if (broken_since_ == TimePoint::max()) broken_since_ = now;
      pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
      const bool is_needed = !pending_.empty() || std::ranges::any_of(pumps_, [](const auto& pump) {
        return pump && !pump->empty();
      });
      if (is_needed) next = connect_at_ = now + pause_;
      is_log_due = now - broken_since_ >= kSilentRetries && !std::exchange(is_logged_, true);
    }
  }
  for (const auto& pump : all) {
    pump->disconnect(TimePoint(), outcome.ended);
    pump->sweep(Clock::system().now(), why, outcome.ended);
  }
  if (next != TimePoint::max()) watch(next);
  finish(outcome);
  if (!is_log_due) return;
  log_warning("no server has answered at {} for {:.3g} s, and it is tried again: {}",
              endpoint_.to_string(), to_seconds(kSilentRetries), why.message());
}

Status PeerStoreClient::handle_handshake(const SessionPtr& session, const Frame& frame) {
  const FrameKind kind = frame.header.kind;
  if (session->stage == Session::Stage::kWelcome && kind == FrameKind::kWelcome) {
    REVERIE_ASSIGN_OR_RETURN(const Greeting theirs, decode_greeting(frame.message));
    if (theirs.name != store_wire::kServerName) {
      return failed_precondition("at {} is '{}', which is not a store of this version",
                                 endpoint_.to_string(), theirs.name);
    }
    // A client without a token is refused by a server that has one.
    if (!options_.token.empty() && !is_proof_right(options_.token, /*is_dialler=*/false,
                                                   session->mine, theirs, theirs.proof)) {
      return Status(
          StatusCode::kUnauthenticated,
          format("the server at {} has {}; give both the same", endpoint_.to_string(),
                 theirs.proof.empty() ? "no token, and the client has one" : "another token"));
    }
    Resumption resumption;
    resumption.proof = make_proof(options_.token, /*is_dialler=*/true, session->mine, theirs);
    resumption.session = 1;  // there is only one
    resumption.receiver_session = store_wire::kKnowsEndedWriters;
    session->stage = Session::Stage::kResumed;
    session->link->send({FrameKind::kResume, 0, 0, 0},
                        std::make_shared<const Message>(encode(resumption)));
    return {};
  }
  if (session->stage == Session::Stage::kResumed && kind == FrameKind::kResumed) {
    REVERIE_ASSIGN_OR_RETURN(const Resumption resumed, decode_resumption(frame.message));
    if (resumed.received != 0) session->limits.bulk_bytes_max = resumed.received;
    session->link->trust();
    on_open(session);
    return {};
  }
  return data_loss("{}: a frame of kind {} arrived during the handshake", endpoint_.to_string(),
                   static_cast<int>(kind));
}

void PeerStoreClient::on_open(const SessionPtr& session) {
  Outcome outcome;
  std::vector<std::shared_ptr<InsertPump>> all;
  TimePoint next = TimePoint::max();
  {
    MutexLock lock(mutex_);
    if (session_ != session) return;
    session->opened_at = Clock::system().now();
    session->stage = Session::Stage::kOpen;
    last_failure_ = {};
    all = pumps();
    names_.clear();  // the server may be another one
    received_.clear();
    for (auto& [id, pending] : pending_) {
      if (pending.is_reading) continue;
      send(id, pending);
      next = std::min(next, pending.answer_by);
    }
    // Under the lock, so that a pump made meanwhile is connected either by its maker or here.
    for (const auto& pump : all) pump->connect(session->link, session->limits, outcome.ended);
  }
  if (next != TimePoint::max()) watch(next);
  finish(outcome);
}

void PeerStoreClient::on_lost(const SessionPtr& session, const Status& why) {
  // The same answer would be too large on the next connection.
  end_session(session, why, /*is_final=*/why.code() == StatusCode::kResourceExhausted);
}

void PeerStoreClient::end_session(const SessionPtr& session, const Status& why, bool is_final,
                                  bool is_goodbye) {
  // Samples that are still being read keep their memory.
  if (!session->returns->keep(session->link)) session->link->hang_up();
  Outcome outcome;
  std::vector<std::shared_ptr<InsertPump>> all;
  bool was_good = false;
  {
    MutexLock lock(mutex_);
    if (session_ != session) return;
    session_ = nullptr;
    // Else it counts as a failed attempt: a pause follows, and the time to retry goes on.
    was_good = session->stage == Session::Stage::kOpen &&
               (session->has_answered || Clock::system().now() - session->opened_at >= kLifeGood);
    if (was_good) {
      pause_ = Duration::zero();
      broken_since_ = TimePoint::max();
      is_logged_ = false;
    }
    const TimePoint until = give_up_at();
    for (auto entry = pending_.begin(); entry != pending_.end();) {
      Pending& pending = entry->second;
      // In case that the connection is kept.
      if (pending.is_sent) send_cancel(*session, entry->first);
      if (pending.is_reading) {
        ++entry;
        continue;
      }
      if (pending.is_sent && (!(pending.is_repeatable || is_goodbye) || !pending.late_with.ok())) {
        Status failed = pending.late_with.ok()
                            ? (is_final ? why
                                        : unavailable("the connection to {} was lost: {}",
                                                      endpoint_.to_string(), why.message()))
                            : pending.late_with;
        outcome.failed.emplace_back(std::move(pending.answer), std::move(failed));
        entry = pending_.erase(entry);
        continue;
      }
      if (std::exchange(pending.is_sent, false) && was_good) pending.give_up_at = until;
      ++entry;
    }
    all = pumps();
    for (const auto& pump : all) pump->disconnect(until, outcome.ended);
  }
  if (was_good && !is_final) {
    // The first attempt follows at once: a restarted server listens again soon.
    bool is_needed = false;
    TimePoint next = TimePoint::max();
    {
      MutexLock lock(mutex_);
      is_needed = !pending_.empty() ||
                  std::ranges::any_of(all, [](const auto& pump) { return !pump->empty(); });
      last_failure_ = why;
      if (is_needed) need_connection();
      for (const auto& [id, pending] : pending_) {
        next = std::min({next, pending.deadline, pending.give_up_at});
      }
    }
    for (const auto& pump : all) next = std::min(next, pump->next_due());
    if (next != TimePoint::max()) watch(next);
  } else {
    connect_failed(why, is_final);
  }
  finish(outcome);
}

// --- What arrives ---------------------------------------------------------------------------

void PeerStoreClient::on_frames(const SessionPtr& session, const std::vector<Frame>& frames) {
  for (const Frame& frame : frames) {
    if (session->link->is_over()) return;
    const FrameKind kind = frame.header.kind;
    if (kind == FrameKind::kAnswer && session->stage == Session::Stage::kOpen) {
      session->has_answered = true;
      on_answer(session, frame);
      continue;
    }
    if (kind == FrameKind::kAck) continue;
    if (kind == FrameKind::kBye) {
      return end_session(session, store_wire::read_status(frame.message.payload),
                         /*is_final=*/false, /*is_goodbye=*/true);
    }
    if (kind == FrameKind::kRefused) {
      const bool is_open = session->stage == Session::Stage::kOpen;
      const Status why =
          is_open ? store_wire::read_status(frame.message.payload) : decode_refusal(frame.message);
      return end_session(session, why, why.code() != StatusCode::kUnavailable);
    }
    if (const Status status = handle_handshake(session, frame); !status.ok()) {
      return end_session(session, status, !is_transient(status));
    }
  }
}

void PeerStoreClient::on_answer(const SessionPtr& session, const Frame& frame) {
  const auto kind = static_cast<store_wire::StoreCall>(frame.header.sequence);
  if (kind == store_wire::StoreCall::kInsert) {
    return on_inserted(*session, frame.message.payload);
  }
  const RequestId id = frame.header.call;
  Answer answer;
  std::shared_ptr<Sampling> sampling;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (session_ != session || found == pending_.end() || found->second.kind != kind) {
      // The rest of a sample whose request was cancelled.
      if (kind == store_wire::StoreCall::kSample) end_orphan(session, id, frame);
      return;
    }
    sampling = found->second.sampling;
    if (!sampling) {
      answer = std::move(found->second.answer);
      pending_.erase(found);
    }
  }
  if (sampling) return on_part(session, id, sampling, frame);
  answer({}, &frame.message.payload);
}

void PeerStoreClient::end_orphan(const SessionPtr& session, RequestId id, const Frame& frame) {
  if (frame.header.received == store_wire::kMoreFollows) return;
  if (session_ == session) received_.push_back(id);
  if (session->returns->begin()) session->returns->end(id);
}

// While its batch is written to, the request is marked, so that nothing else ends it.
void PeerStoreClient::on_part(const SessionPtr& session, RequestId id,
                              const std::shared_ptr<Sampling>& sampling, const Frame& frame) {
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return end_orphan(session, id, frame);  // it has just ended
    found->second.is_reading = true;
  }
  const bool is_last = frame.header.received != store_wire::kMoreFollows;
  Status status;
  Result<store_wire::SamplePart> part = store_wire::read_part(frame.message.payload);
  if (part.ok()) {
    status = part->status;
    if (part->names) {
      auto names = std::make_shared<const wire::ColumnNames>(std::move(*part->names));
      MutexLock lock(mutex_);
      if (session_ == session) names_.insert_or_assign(sampling->table, names);
      sampling->names = std::move(names);
    }
    if (!part->tickets.empty()) {
      read_items(session, id, *sampling, *part, frame.message.payload, status);
    }
    sampling->batch.set_sampler_mass(part->sampler_mass);
    sampling->batch.set_least_probability(part->least_probability);
    if (part->table_size > 0) sampling->batch.set_table_size(part->table_size);
    if (part->is_rate_limited) sampling->batch.set_rate_limited();
  } else {
    status = part.status();
  }
  bool is_done = is_last || !status.ok();
  Answer over;
  TimePoint answer_by = TimePoint::max();
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (is_last && session_ == session) received_.push_back(id);
    if (!is_done && session_ != session) {
      // The connection has ended meanwhile, on another thread, which left the request here.
      status = gone();
      is_done = true;
    }
    if (is_done) {
      over = std::move(found->second.answer);
      pending_.erase(found);
    } else {
      found->second.is_reading = false;
      answer_by = found->second.answer_by;
    }
  }
  if (over) return over(status, nullptr);
  // The alarm may have rung meanwhile.
  if (answer_by != TimePoint::max()) watch(answer_by);
}

void PeerStoreClient::read_items(const SessionPtr& session, RequestId id, Sampling& sampling,
                                 const store_wire::SamplePart& part, const Payload& payload,
                                 Status& status) {
  static const auto* const no_names = new wire::ColumnNames;
  Sampling::Rows& rows = *sampling.held->rows;
  const std::size_t before = sampling.batch.size();
  const auto view = [&](std::span<const std::byte> bytes) { return rows.view(bytes); };
  const auto find_mapped = [&](const packed::Mapped& at) -> Result<std::span<std::byte>> {
    if (!rows.map) rows.map = session->link->map();
    if (!rows.map) return data_loss("samples are in memory that the server has not shared");
    return rows.map->bytes({rows.map->id(), at.offset, at.size_bytes, at.generation});
  };
  for (const BulkPiece& piece : payload.bulk) rows.bytes.push_back(piece.keep);
  PackedSamples& packed = sampling.held->packed.emplace_back();
  Status read =
      read_packed(payload.bulk.empty() ? std::span<const std::byte>() : payload.bulk.front().bytes,
                  view, sampling.names ? *sampling.names : *no_names, sampling.count - before,
                  sampling.batch, packed, find_mapped);
  if (read.ok() && sampling.batch.size() - before != part.tickets.size()) {
    read = data_loss("the server sent {} samples with {} tickets", sampling.batch.size() - before,
                     part.tickets.size());
  }
  if ((packed.is_mapped || !read.ok()) && !rows.returns) {
    if (session->returns->begin()) {
      rows.returns = session->returns;
      rows.id = id;
    } else if (read.ok()) {
      MutexLock lock(mutex_);
      read = gone();
    }
  }
  if (!read.ok()) {
    status = std::move(read);
    return;
  }
  std::ranges::copy(part.tickets, sampling.batch.rows().tickets + before);
}

}  // namespace reverie
