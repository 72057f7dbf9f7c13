// Tested in tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/store_connection.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace reverie {
namespace {

using store_wire::StoreCall;

constexpr std::size_t kLogBytesMax = 200;

// A client's text, made safe for one line of the log.
std::string line_of(std::string_view text) {
  std::string line(text.substr(0, kLogBytesMax));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

}  // namespace

std::shared_ptr<StoreConnection> StoreConnection::make(
    std::shared_ptr<PeerStore> store, const MakeLink& make_link, std::shared_ptr<void> place,
    std::function<void(const StoreConnection*)> on_end) {
  std::shared_ptr<StoreConnection> made(new StoreConnection(std::move(store)));
  made->place_ = std::move(place);
  made->on_end_ = std::move(on_end);
  made->link_ = make_link(made, {.bulk_bytes_max = made->store_->message_bytes_max});
  made->store_->connections.fetch_add(1, std::memory_order_relaxed);
  return made;
}

StoreConnection::~StoreConnection() {
  store_->connections.fetch_sub(1, std::memory_order_relaxed);
}

bool StoreConnection::begin_request() {
  unanswered_count_.fetch_add(1);
  mark_in_use();
  return request_count_.fetch_add(1) < store_wire::kRequestsMax;
}

void StoreConnection::end_request() {
  if (unanswered_count_.fetch_sub(1) == 1) note_idle();
}

void StoreConnection::note_idle() {
  if (unanswered_count_.load() > 0) return;  // until end_request()
  {
    MutexLock lock(mutex_);
    if (!leases_.empty()) return;  // until take_back()
  }
  idle_since_ns_.store(Clock::system().now().ns, std::memory_order_relaxed);
}

bool StoreConnection::is_in_use() {
  if (unanswered_count_.load() > 0) return true;
  const auto is_waiting = [](const auto& it) { return it.second && it.second->is_waiting(); };
  if (std::ranges::any_of(writers_, is_waiting)) return true;
  MutexLock lock(mutex_);
  return !leases_.empty();
}

void StoreConnection::leave_if_idle(const Status& why) {
  if (stage_ == Stage::kOver) return;
  if (stage_ != Stage::kOpen) return end_now(why);
  if (is_in_use()) return;
  link_->send({FrameKind::kBye, 0, 0, 0}, store_wire::message_of(store_wire::write_status(why)));
  end_now({});
}

void StoreConnection::answer(std::uint64_t id, StoreCall kind, Payload payload) {
  request_count_.fetch_sub(1);
  link_->send({FrameKind::kAnswer, static_cast<std::uint64_t>(kind), 0, id},
              store_wire::message_of(std::move(payload)));
  end_request();
}

void StoreConnection::send_inserted(const store_wire::Inserted& inserted) {
  link_->send(
      {FrameKind::kAnswer, static_cast<std::uint64_t>(StoreCall::kInsert), 0, inserted.writer},
      store_wire::message_of(store_wire::write_inserted(inserted)));
  if (!inserted.ended.ok()) {
    if (const auto ended = std::exchange(writers_[inserted.writer], nullptr)) ended->end();
  }
  is_in_use() ? mark_in_use() : note_idle();
}

// --- Its end.

void StoreConnection::end(const Status& why) {
  post([self = shared_from_this(), why] { self->end_now(why); });
}

void StoreConnection::end_now(const Status& why) {
  if (stage_ != Stage::kOver && !why.ok()) {
    const bool is_open = stage_ == Stage::kOpen;
    link_->send({FrameKind::kRefused, 0, 0, 0},
                is_open ? store_wire::message_of(store_wire::write_status(why))
                        : std::make_shared<const Message>(encode_refusal(why)));
  }
  link_->hang_up();
  release(/*is_client_gone=*/false);
}

std::shared_ptr<const Message> StoreConnection::refusal(const Status& why) {
  if (stage_ != Stage::kOpen) return nullptr;
  return store_wire::message_of(store_wire::write_status(why));
}

void StoreConnection::on_lost(const Status& why) {
  release(/*is_client_gone=*/why.code() == StatusCode::kUnavailable);
}

void StoreConnection::release(bool is_client_gone) {
  const auto self = shared_from_this();
  if (stage_.exchange(Stage::kOver) == Stage::kOver) return;
  std::vector<RequestId> ids;
  std::deque<Drawn> unsent;
  std::map<std::uint64_t, Lease> leases;
  std::multimap<std::uint64_t, Sent> unconfirmed;
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    unconfirmed.swap(sent_);
    for (const auto& [id, draw] : draws_) {
      if (draw != 0) ids.push_back(draw);
    }
    unsent.swap(unsent_);
    waiting_draws_.clear();
    leases.swap(leases_);
    store_->leased_bytes.fetch_sub(std::exchange(leased_bytes_, 0), std::memory_order_relaxed);
  }
  if (!leases.empty() && !is_client_gone) store_->arena.leave();
  leases.clear();
  // The last first, so that a queue gets back its order. Those that wait would draw what is undone.
  std::ranges::reverse(ids);
  for (const RequestId id : ids) store_->service->cancel(id);
  std::ranges::sort(unsent, std::ranges::greater(), &Drawn::id);
  for (Drawn& drawn : unsent) {
    std::vector<std::size_t> sent(drawn.next);
    std::iota(sent.begin(), sent.end(), std::size_t{0});
    drawn.batch.remove(sent);
    drop_unsent(drawn.table, std::move(drawn.batch));
  }
  for (const auto& [number, writer] : writers_) {
    if (writer) writer->end();
  }
  writers_.clear();
  for (const auto& [id, sent] : unconfirmed) store_->service->receive(sent.table, sent.draws);
  place_ = nullptr;
  if (on_end_) std::exchange(on_end_, nullptr)(this);
}

void StoreConnection::receive(std::span<const std::uint64_t> ids) {
  std::vector<Sent> received;
  {
    MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      const auto [begin, end] = sent_.equal_range(id);
      for (auto sent = begin; sent != end; ++sent) received.push_back(std::move(sent->second));
      sent_.erase(begin, end);
    }
  }
  for (const Sent& sent : received) store_->service->receive(sent.table, sent.draws);
}

// --- Frames.

void StoreConnection::on_frames(std::vector<Frame> frames) {
  const auto self = shared_from_this();
  for (Frame& frame : frames) {
    if (stage_ == Stage::kOver) return;
    Status status;
    if (stage_ != Stage::kOpen) {
      status = handle_handshake(frame);
    } else if (frame.header.kind == FrameKind::kCancel) {
      cancel(frame.header.call);
    } else if (frame.header.kind == FrameKind::kCall) {
      status = take(std::move(frame));
    } else if (frame.header.kind != FrameKind::kAck && frame.header.kind != FrameKind::kBye) {
      status = data_loss("a frame of kind {} arrived instead of a request",
                         static_cast<int>(frame.header.kind));
    }
    if (!status.ok()) return end_now(status);
  }
}

Status StoreConnection::handle_handshake(const Frame& frame) {
  if (stage_ == Stage::kHello && frame.header.kind == FrameKind::kHello) {
    REVERIE_ASSIGN_OR_RETURN(peer_greeting_, decode_greeting(frame.message));
    if (peer_greeting_.name != store_wire::kClientName) {
      return failed_precondition(
          "'{}' has connected to a Reverie store, which accepts only clients of this version",
          line_of(peer_greeting_.name));
    }
    own_greeting_.name = std::string(store_wire::kServerName);
    own_greeting_.run = {store_->random(), store_->random()};
    for (std::uint64_t& part : own_greeting_.nonce) part = store_->random();
    own_greeting_.proof =
        make_proof(store_->token, /*is_dialler=*/false, peer_greeting_, own_greeting_);
    stage_ = Stage::kResume;
    link_->send({FrameKind::kWelcome, 0, 0, 0},
                std::make_shared<const Message>(encode(own_greeting_)));
    return {};
  }
  if (stage_ == Stage::kResume && frame.header.kind == FrameKind::kResume) {
    REVERIE_ASSIGN_OR_RETURN(const Resumption resumption, decode_resumption(frame.message));
    if (!store_->token.empty() &&
        !is_proof_right(store_->token, /*is_dialler=*/true, peer_greeting_, own_greeting_,
                        resumption.proof)) {
      return Status(StatusCode::kUnauthenticated,
                    resumption.proof.empty()
                        ? "the server asks for a token and the client has none; give it token="
                        : "the client's token is not the server's");
    }
    ends_writers_alone_ = resumption.receiver_session >= store_wire::kKnowsEndedWriters;
    stage_ = Stage::kOpen;
    note_idle();
    link_->trust();
    Resumption resumed;
    resumed.session = 1;
    resumed.received = store_->message_bytes_max;
    link_->send({FrameKind::kResumed, 0, 0, 0}, std::make_shared<const Message>(encode(resumed)));
    return {};
  }
  return data_loss("a frame of kind {} arrived during the handshake",
                   static_cast<int>(frame.header.kind));
}

Status StoreConnection::take(Frame frame) {
  had_request_ = true;
  const auto kind = static_cast<StoreCall>(frame.header.sequence);
  const std::uint64_t id = frame.header.call;
  const Payload& payload = frame.message.payload;
  if (kind == StoreCall::kInsert) {
    REVERIE_ASSIGN_OR_RETURN(const insert_records::Head head, InsertMirror::head_of(payload));
    const auto writer = writers_.find(head.writer);
    if (writer == writers_.end())
      return data_loss("an insert is of writer {}, which is not open", head.writer);
    // Kept: it may end here. What was sent before the client knew of its end is dropped.
    const std::shared_ptr<ServedWriter> served = writer->second;
    return served ? served->take(std::move(frame.message.payload)) : Status();
  }
  if (kind >= StoreCall::kOpenWriter) return take_note(kind, payload);
  if (!begin_request()) {
    return resource_exhausted("a client has more than {} requests that wait for their answer",
                              store_wire::kRequestsMax);
  }
  const auto self = shared_from_this();
  switch (kind) {
    case StoreCall::kSample:
      return take_sample(id, payload);
    case StoreCall::kMutate:
      return take_mutate(id, payload);
    case StoreCall::kLookup: {
      REVERIE_ASSIGN_OR_RETURN(const store_wire::LookupMessage ask,
                               store_wire::read_lookup(payload));
      store_->service->lookup({ask.table, ask.keys}, [self, id, kind](const LookupResult& result) {
        self->answer(id, kind, store_wire::write_found(result));
      });
      return {};
    }
    case StoreCall::kReset: {
      REVERIE_ASSIGN_OR_RETURN(const std::string_view table, store_wire::read_text(payload));
      store_->service->reset(table, [self, id, kind](const Status& status) {
        self->answer(id, kind, store_wire::write_status(status));
      });
      return {};
    }
    case StoreCall::kInfo:
      store_->service->info([self, id, kind](const Result<std::vector<TableInfo>>& infos) {
        self->answer(id, kind, store_wire::write_infos(infos));
      });
      return {};
    case StoreCall::kWhyBlocked: {
      REVERIE_ASSIGN_OR_RETURN(const std::string_view table, store_wire::read_text(payload));
      store_->service->why_blocked(table, [self, id, kind](const Result<BlockedReport>& report) {
        self->answer(id, kind, store_wire::write_report(report));
      });
      return {};
    }
    case StoreCall::kNewClient:
      store_->service->new_client([self, id, kind](const Result<std::uint64_t>& number) {
        self->answer(id, kind, store_wire::write_number(number));
      });
      return {};
    case StoreCall::kCheckpoint: {
      if (!store_->checkpoints.write) {
        answer(
            id, kind,
            store_wire::write_path(failed_precondition(
                "no checkpointer was configured on the server; give it one to write checkpoints")));
        return {};
      }
      REVERIE_ASSIGN_OR_RETURN(const std::string_view bytes, store_wire::read_text(payload));
      store_->checkpoints.write(bytes, [self, id, kind](const Result<std::string>& path) {
        self->answer(id, kind, store_wire::write_path(path));
      });
      return {};
    }
    case StoreCall::kOrigin:
      answer(id, kind, store_wire::write_origin(served_origin(store_->checkpoints)));
      return {};
    default:
      return data_loss("request {} is of the unknown kind {}", id, frame.header.sequence);
  }
}

Status StoreConnection::take_note(StoreCall kind, const Payload& payload) {
  if (kind == StoreCall::kReturned) {
    REVERIE_ASSIGN_OR_RETURN(const auto ids, store_wire::read_returned(payload));
    take_back(ids);
    return {};
  }
  REVERIE_ASSIGN_OR_RETURN(const store_wire::WriterNote note, store_wire::read_note(payload));
  const auto writer = writers_.find(note.writer);
  if (kind == StoreCall::kOpenWriter) {
    const bool is_known = writer != writers_.end();
    if (is_known && writer->second) return data_loss("writer {} is open already", note.writer);
    if (!is_known && writers_.size() == store_wire::kWritersMax) {
      return resource_exhausted("a client has more than {} writers", store_wire::kWritersMax);
    }
    if (!InsertSessions::is_id(note.session)) {
      return invalid_argument("'{}' is not a session; it must be 32 hexadecimal digits",
                              line_of(note.session));
    }
    const auto made = std::make_shared<ServedWriter>(store_, weak_from_this(), note.writer,
                                                     std::string(note.session));
    writers_[note.writer] = made;
    if (made->begin(note.first)) return {};
    return unavailable("writer {} has had a newer connection", note.writer);
  }
  if (writer == writers_.end()) return {};  // it ended
  if (kind == StoreCall::kWithdraw) {
    if (writer->second) writer->second->withdraw(note.first);
    return {};
  }
  if (kind != StoreCall::kEndWriter) return data_loss("a request is of an unknown kind");
  const std::shared_ptr<ServedWriter> ended = std::move(writer->second);
  writers_.erase(writer);
  if (ended) ended->end();
  if (!is_in_use()) note_idle();
  return {};
}

Status StoreConnection::take_mutate(std::uint64_t id, const Payload& payload) {
  REVERIE_ASSIGN_OR_RETURN(store_wire::MutateMessage ask, store_wire::read_mutate(payload));
  for (CorruptItem& item : ask.corrupt) item.why = line_of(item.why);
  MutateRequest request;
  request.table = ask.table;
  request.deletes = ask.deletes;
  request.tickets = ask.tickets;
  request.ticket_priorities = ask.ticket_priorities;
  request.keys = ask.keys;
  request.key_priorities = ask.key_priorities;
  request.corrupt = ask.corrupt;
  store_->service->mutate(request, [self = shared_from_this(), id](const MutateResult& result) {
    self->answer(id, StoreCall::kMutate, store_wire::write_mutated(result));
  });
  return {};
}

}  // namespace reverie
