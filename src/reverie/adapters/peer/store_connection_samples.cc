// The part of StoreConnection that draws samples and sends them.
//
// Tested in tests/integration/peer_store_test.cc.
#include <algorithm>
#include <cstring>
#include <utility>

#include "reverie/adapters/peer/store_connection.h"
#include "reverie/native_wire/packed_writer.h"
#include "reverie/tensor/block_heap.h"

namespace reverie {
namespace {

constexpr std::size_t kSpareMax = 4;

// The pieces of a message, joined into one.
Result<BulkPiece> flat(const GrpcPayload& payload) {
  REVERIE_ASSIGN_OR_RETURN(Buffer buffer, BlockHeap::shared().allocate(payload.size_bytes()));
  std::size_t at = 0;
  for (std::size_t i = 0; i < payload.piece_count(); ++i) {
    const auto piece = payload.piece(i);
    if (!piece.empty()) std::memcpy(buffer.data() + at, piece.data(), piece.size());
    at += piece.size();
  }
  const auto kept = std::make_shared<const Buffer>(std::move(buffer));
  return BulkPiece{kept->bytes(), kept};
}

}  // namespace

// For a client that has disconnected. Called under no lock: others may draw undone samples at once.
void StoreConnection::drop_unsent(const std::string& table, SampleBatch batch) {
  if (batch.empty()) return;
  const PeerStore::Table& known = store_->find(table);
  if (known.undoes_unsent) {
    batch.set_all_redelivered();
    if (const auto undone = store_->service->hand_back(table, batch)) {
      store_->undone_samples.fetch_add(*undone, std::memory_order_relaxed);
      return;
    }
  }
  store_->unsent_samples.fetch_add(batch.size(), std::memory_order_relaxed);
  if (known.keeps_receipts) store_->service->receive(table, draws_of(batch));
}

Status StoreConnection::take_sample(std::uint64_t id, const Payload& payload) {
  REVERIE_ASSIGN_OR_RETURN(const store_wire::SampleMessage ask, store_wire::read_sample(payload));
  receive(ask.received);
  take_back(ask.returned);
  if (ask.count > store_wire::kRequestSamplesMax) {
    store_wire::SamplePart part;
    part.status =
        invalid_argument("{} samples were asked for at once; the bound is {}; ask for fewer",
                         ask.count, store_wire::kRequestSamplesMax);
    answer(id, store_wire::StoreCall::kSample, store_wire::write_part(part));
    return {};
  }
  WaitingDraw asked{id, std::string(ask.table), ask, TimePoint::max()};
  if (ask.timeout) asked.deadline = store_->clock.now() + *ask.timeout;
  {
    MutexLock lock(mutex_);
    if (!unsent_.empty() || !waiting_draws_.empty() || !link_->has_room()) {
      waiting_draws_.push_back(std::move(asked));
      return {};
    }
  }
  draw(asked);
  return {};
}

void StoreConnection::draw(const WaitingDraw& asked) {
  SampleRequest request;
  request.table = asked.table;
  request.count = asked.ask.count;
  request.min_count = asked.ask.min_count;
  request.distinct = asked.ask.is_distinct;
  request.wants_least = asked.ask.wants_least;
  request.awaits_receipt = store_->find(asked.table).keeps_receipts;
  request.deadline = asked.deadline;
  const std::uint64_t id = asked.id;
  bool is_repeated = false;
  {
    MutexLock lock(mutex_);
    if (is_over_) return;
    is_repeated = !draws_.emplace(id, 0).second;
    if (!is_repeated && !spare_.empty()) {
      request.batch = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (is_repeated) return end(data_loss("sample request {} is in progress already", id));
  const RequestId draw_id = store_->service->sample(
      std::move(request),
      [self = shared_from_this(), id, table = asked.table, wants_names = asked.ask.wants_names](
          SampleResult result) { self->on_drawn(id, table, wants_names, std::move(result)); });
  if (draw_id == 0) return;
  bool is_orphan = false;
  {
    MutexLock lock(mutex_);
    const auto found = draws_.find(id);
    if (found == draws_.end()) return;  // complete already
    found->second = draw_id;
    is_orphan = is_over_;
  }
  if (is_orphan) store_->service->cancel(draw_id);
}

void StoreConnection::on_drawn(std::uint64_t id, std::string table, bool wants_names,
                               SampleResult result) {
  Drawn drawn{id, std::move(table), wants_names, std::move(result.status), std::move(result.batch),
              0};
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    draws_.erase(id);
    is_over = is_over_;
  }
  if (is_over) return drop_unsent(drawn.table, std::move(drawn.batch));
  if (send_parts(drawn)) return;
  // No pin is held while a client reads.
  drawn.batch.retain();
  if (!keep_unsent(drawn, /*is_next=*/false)) {
    return drop_unsent(drawn.table, std::move(drawn.batch));
  }
  // There may have been room before it was kept.
  if (link_->has_room()) post([self = shared_from_this()] { self->on_room(); });
}

bool StoreConnection::keep_unsent(Drawn& drawn, bool is_next) {
  MutexLock lock(mutex_);
  if (!is_over_) unsent_.insert(is_next ? unsent_.begin() : unsent_.end(), std::move(drawn));
  return !is_over_;
}

bool StoreConnection::send_parts(Drawn& drawn) {
  thread_local PackedWriter writer;
  SampleBatch& batch = drawn.batch;
  const PeerStore::Table& table = store_->find(drawn.table);
  bool is_last = false;
  while (!is_last) {
    if (drawn.next > 0 && !link_->has_room()) return false;
    store_wire::SamplePart part;
    Payload bulk;
    const std::size_t begin = drawn.next;
    if (drawn.next < batch.size()) {
      Status status;
      MappedChunks mapped;
      const std::shared_ptr<SharedArena> arena = store_->arena.arena();
      if (arena && link_->offer_map(arena)) {
        mapped.arena = arena.get();
        MutexLock lock(mutex_);
        // Draws that are sent at once may exceed the bound together.
        mapped.size_bytes_max =
            store_->leased_bytes_max - std::min(store_->leased_bytes_max, leased_bytes_);
      }
      Result<PayloadBuilder> packed =
          writer.write_bare(batch, &drawn.next, mapped.arena != nullptr ? &mapped : nullptr);
      if (packed.ok()) {
        Result<BulkPiece> piece = flat(packed->build());
        status = piece.status();
        if (piece.ok()) {
          bulk.bulk.push_back(std::move(piece).value());
          if (mapped.size_bytes > 0) lend(drawn.id, std::move(mapped));
        }
      } else {
        status = packed.status();
      }
      if (status.ok()) {
        const auto tickets = batch.tickets().subspan(begin, drawn.next - begin);
        part.tickets.assign(tickets.begin(), tickets.end());
      } else {
        drawn.next = batch.size();
        drawn.status = std::move(status);
      }
    }
    is_last = drawn.next == batch.size();
    if (is_last) part.status = drawn.status;
    part.sampler_mass = batch.sampler_mass();
    part.least_probability = batch.least_probability();
    part.table_size = batch.table_size();
    part.is_rate_limited = batch.rate_limited();
    if (std::exchange(drawn.wants_names, false)) part.names = table.names;
    Payload payload = store_wire::write_part(part);
    payload.bulk = std::move(bulk.bulk);
    if (table.keeps_receipts && is_last && !batch.empty()) keep_sent(drawn);
    store_->samples.fetch_add(drawn.next - begin, std::memory_order_relaxed);
    if (is_last) request_count_.fetch_sub(1);
    link_->send({FrameKind::kAnswer, static_cast<std::uint64_t>(store_wire::StoreCall::kSample),
                 is_last ? 0 : store_wire::kMoreFollows, drawn.id},
                store_wire::message_of(std::move(payload)));
    if (is_last) end_request();
  }
  batch.clear();
  MutexLock lock(mutex_);
  if (spare_.size() < kSpareMax) spare_.push_back(std::move(batch));
  return true;
}

// The client may have been lost since its samples were drawn: then it sends no receipt.
void StoreConnection::keep_sent(const Drawn& drawn) {
  Sent sent{drawn.table, draws_of(drawn.batch)};
  {
    MutexLock lock(mutex_);
    if (!is_over_) {
      sent_.emplace(drawn.id, std::move(sent));
      return;
    }
  }
  store_->service->receive(sent.table, sent.draws);
}

// Called before the message is sent: the client returns what it refers to later.
void StoreConnection::lend(std::uint64_t id, MappedChunks mapped) {
  MutexLock lock(mutex_);
  if (is_over_) return;
  Lease& lease = leases_[id];
  lease.size_bytes += mapped.size_bytes;
  for (auto& chunk : mapped.chunks) lease.chunks.push_back(std::move(chunk));
  leased_bytes_ += mapped.size_bytes;
  store_->leased_bytes.fetch_add(mapped.size_bytes, std::memory_order_relaxed);
}

// Ids that the client does not hold are ignored: parts of a cancelled sample may follow its return.
void StoreConnection::take_back(std::span<const std::uint64_t> ids) {
  std::vector<Lease> gone;  // under no lock
  {
    MutexLock lock(mutex_);
    for (const std::uint64_t id : ids) {
      const auto found = leases_.find(id);
      if (found == leases_.end()) continue;
      leased_bytes_ -= found->second.size_bytes;
      store_->leased_bytes.fetch_sub(found->second.size_bytes, std::memory_order_relaxed);
      gone.push_back(std::move(found->second));
      leases_.erase(found);
    }
  }
  if (!gone.empty()) note_idle();
}

void StoreConnection::on_room() {
  while (link_->has_room()) {
    Drawn drawn;
    WaitingDraw asked;
    bool has_drawn = false;
    {
      MutexLock lock(mutex_);
      has_drawn = !unsent_.empty();
      if (is_over_ || (!has_drawn && waiting_draws_.empty())) return;
      if (has_drawn) {
        drawn = std::move(unsent_.front());
        unsent_.pop_front();
      } else {
        asked = std::move(waiting_draws_.front());
        waiting_draws_.pop_front();
      }
    }
    if (!has_drawn) {
      draw(asked);
      continue;
    }
    if (send_parts(drawn)) continue;
    if (!keep_unsent(drawn, /*is_next=*/true)) {
      return drop_unsent(drawn.table, std::move(drawn.batch));
    }
  }
}

void StoreConnection::cancel(std::uint64_t id) {
  RequestId draw_id = 0;
  bool was_asked = false;
  {
    MutexLock lock(mutex_);
    const auto found = draws_.find(id);
    if (found != draws_.end()) draw_id = found->second;
    const auto place = std::ranges::find(waiting_draws_, id, &WaitingDraw::id);
    if (place != waiting_draws_.end()) {
      waiting_draws_.erase(place);
      was_asked = true;
    }
  }
  if (draw_id != 0) return store_->service->cancel(draw_id);
  if (!was_asked) return;
  store_wire::SamplePart part;
  part.status = cancelled("the call was cancelled");
  answer(id, store_wire::StoreCall::kSample, store_wire::write_part(part));
}

}  // namespace reverie
