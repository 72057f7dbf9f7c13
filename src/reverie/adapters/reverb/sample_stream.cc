// Tested in tests/integration/reverb_streams_test.cc.
#include "reverie/adapters/reverb/sample_stream.h"

#include <algorithm>
#include <utility>

namespace reverie {
namespace {

constexpr std::size_t kFirstBreath = 128;
constexpr std::size_t kBreathMax = 1024;
// For a Reverie client: a learner's batch is one draw.
constexpr std::size_t kPackedBreath = 4096;
// The memory of a sample in a batch, without its chunks.
constexpr std::size_t kSampleBytes = 128;
// Clients send their next request once they have all samples of the last one.
constexpr std::size_t kRequestsMax = 64;

Status status_for_sampler(const Status& status) {
  if (status.code() == StatusCode::kDeadlineExceeded) {
    // Clients distinguish this from the call's deadline by its text, "insert" included.
    return deadline_exceeded(
        "Rate Limiter: Timeout exceeded before the right to insert was acquired.");
  }
  if (status.code() == StatusCode::kCancelled) {
    return cancelled("RateLimiter has been cancelled");
  }
  return status;
}

}  // namespace

void SampleStream::on_message(Ref<GrpcMessage> message) {
  const Result<wire::SampleStreamRequest> request = wire::read_sample_request(message->bytes());
  if (!request.ok()) return end(request.status());
  if (request->num_samples <= 0) {
    return end(invalid_argument("`num_samples` must be > 0 (got{}).", request->num_samples));
  }
  if (!store_->find(request->table)) return end(reverb_no_table(request->table));
  receive_up_to(request->received.value_or(UINT64_MAX));
  {
    MutexLock lock(mutex_);
    if (is_over_) return;
    if (requests_.size() == kRequestsMax) {
      ending_ = resource_exhausted(
          "the stream has {} requests that wait; send the next when the samples are there",
          kRequestsMax);
    } else {
      const bool is_packed = request->packed_version >= packed::kFirstVersion;
      requests_.push({std::string(request->table),
                      static_cast<std::uint64_t>(request->num_samples),
                      request->timeout_ms,
                      is_packed ? kPackedBreath : kFirstBreath,
                      request->packed_version,
                      {}});
    }
    call_->pause_reading();
  }
  pump();
}

void SampleStream::on_half_close() {
  {
    MutexLock lock(mutex_);
    is_half_closed_ = true;
  }
  pump();
}

void SampleStream::on_end(const Status&) {
  RequestId id = 0;
  SampleBatch unsent;
  {
    MutexLock lock(mutex_);
    is_over_ = true;
    id = draw_id_;
    unsent = std::exchange(drawn_, SampleBatch());
    requests_.clear();
  }
  drop_unsent(std::move(unsent));
  receive_up_to(UINT64_MAX);
  if (id != 0) store_->service->cancel(id);
  pump();  // releases what the writer has
}

// For a client that has disconnected. Called without the lock: others may draw undone samples at
// once.
void SampleStream::drop_unsent(SampleBatch batch) {
  if (batch.empty()) return;
  std::string name;
  {
    MutexLock lock(mutex_);
    name = table_;
  }
  const ReverbTable* const table = store_->find(name);
  if (table != nullptr && table->undoes_unsent) {
    batch.set_all_redelivered();
    if (const auto undone = store_->service->hand_back(name, batch)) {
      store_->undone_samples.fetch_add(*undone, std::memory_order_relaxed);
      return;
    }
  }
  count_lost(batch);
}

void SampleStream::count_lost(const SampleBatch& batch) {
  store_->unsent_samples.fetch_add(batch.size(), std::memory_order_relaxed);
  std::string name;
  {
    MutexLock lock(mutex_);
    name = table_;
  }
  const ReverbTable* const table = store_->find(name);
  if (table == nullptr || !table->keeps_receipts) return;
  store_->service->receive(name, draws_of(batch));
}

void SampleStream::receive_up_to(std::uint64_t count) {
  std::vector<Sent> received;
  {
    MutexLock lock(mutex_);
    while (!sent_.empty() && sent_.front().end <= count) {
      received.push_back(std::move(sent_.front()));
      sent_.pop_front();
    }
  }
  for (const Sent& sent : received) store_->service->receive(sent.table, sent.draws);
}

void SampleStream::end(const Status& status) {
  {
    MutexLock lock(mutex_);
    if (ending_.ok()) ending_ = status;
    is_half_closed_ = true;
  }
  pump();
}

void SampleStream::pump() {
  {
    MutexLock lock(mutex_);
    pump_again_ = true;
    if (is_pumping_) return;
    is_pumping_ = true;
  }
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!pump_again_) {
        is_pumping_ = false;
        return;
      }
      pump_again_ = false;
    }
    while (step()) {
    }
  }
}

bool SampleStream::step() {
  bool must_draw = false;
  bool is_over = false;
  {
    MutexLock lock(mutex_);
    is_over = is_over_;
    if (is_over) {
      release();
    } else if (writer_.is_done()) {
      if (!drawn_.empty()) {
        keeps_receipts_ = store_->find(requests_.front().table)->keeps_receipts;
        writer_.begin(requests_.front().table, std::exchange(drawn_, SampleBatch()),
                      requests_.front().packed_version, store_->calendar());
      } else if (is_drawing_) {
        return false;
      } else if (!ending_.ok()) {
        is_over_ = true;
        call_->finish(ending_);
        return false;
      } else if (!requests_.empty() && requests_.front().left == 0) {
        requests_.pop();
        return true;
      } else if (requests_.empty()) {
        if (is_half_closed_) {
          is_over_ = true;
          call_->finish({});
        } else {
          call_->resume_reading();
        }
        return false;
      } else {
        if (!call_->has_room_to_draw()) return false;  // on_room() comes
        is_drawing_ = true;
        must_draw = true;
      }
    }
  }
  if (is_over) {
    drop_unsent(writer_.take_rest());
    receive_up_to(UINT64_MAX);  // samples written while on_end() ran
    return false;
  }
  if (must_draw) {
    draw();
    return true;
  }
  if (!call_->has_room()) {
    hold();  // on_room() comes
    return false;
  }
  const std::size_t before = writer_.left();
  std::vector<DrawId> draws;
  if (keeps_receipts_) draws = writer_.draws_left();
  Result<std::optional<GrpcPayload>> response = writer_.next();
  if (!response.ok()) {
    // Not undone: the next reader could not decode it either.
    count_lost(writer_.take_rest());
    MutexLock lock(mutex_);
    is_over_ = true;
    release();
    call_->finish(response.status());
    return false;
  }
  {
    // Counted before it is written, since the client may answer at once.
    const std::size_t count = before - writer_.left();
    MutexLock lock(mutex_);
    sent_count_ += count;
    if (keeps_receipts_ && count > 0) {
      draws.resize(count);
      sent_.push_back({writer_.table(), std::move(draws), sent_count_});
    }
  }
  const std::size_t corrupt = take_out_corrupt();
  store_->samples.fetch_add(before - writer_.left() - corrupt, std::memory_order_relaxed);
  if (*response) call_->write(std::move(**response));
  if (writer_.is_done()) {
    store_->spare_batches.keep(writer_.take_spent());
    MutexLock lock(mutex_);
    release();
  }
  return true;
}

std::size_t SampleStream::take_out_corrupt() {
  const std::vector<CorruptItem> corrupt = writer_.take_corrupt();
  if (corrupt.empty()) return 0;
  std::string table;
  {
    MutexLock lock(mutex_);
    if (requests_.empty()) return corrupt.size();  // the stream is over
    requests_.front().left += corrupt.size();      // others are drawn in their place
    table = requests_.front().table;
  }
  MutateRequest request;
  request.table = table;
  request.corrupt = corrupt;
  store_->service->mutate(request, [](const MutateResult&) {});
  return corrupt.size();
}

void SampleStream::hold() {
  if (held_bytes_ > 0) return;
  held_bytes_ = writer_.hold();
  call_->hold(held_bytes_);
}

// Releases the memory of the batch that is written or dropped.
void SampleStream::release() {
  call_->release(std::exchange(held_bytes_, 0) + std::exchange(reserved_bytes_, 0));
}

void SampleStream::draw() {
  SampleRequest request;
  std::string table;
  {
    MutexLock lock(mutex_);
    if (requests_.empty()) {  // the stream is over
      is_drawing_ = false;
      return;
    }
    Request& front = requests_.front();
    table = front.table;
    table_ = table;
    request.count = call_->reserve_up_to(
        static_cast<std::size_t>(std::min<std::uint64_t>(front.left, front.breath)), kSampleBytes);
    request.min_count = 1;
    request.awaits_receipt = true;
    reserved_bytes_ = request.count * kSampleBytes;
    request.batch = store_->spare_batches.take();
    if (front.timeout_ms > 0 && (front.packed_version == 0 || !front.deadline)) {
      const std::int64_t ms = std::min<std::int64_t>(front.timeout_ms, std::int64_t{1} << 40);
      front.deadline = store_->clock.now() + std::chrono::milliseconds(ms);
    }
    if (front.deadline) request.deadline = *front.deadline;
  }
  request.table = table;
  const RequestId id = store_->service->sample(
      std::move(request),
      [self = shared_from_this()](SampleResult result) { self->on_drawn(std::move(result)); });
  if (id == 0) return;
  bool is_orphan = false;
  {
    MutexLock lock(mutex_);
    if (!is_drawing_) return;  // complete already
    draw_id_ = id;
    is_orphan = is_over_;
  }
  if (is_orphan) store_->service->cancel(id);
}

void SampleStream::on_drawn(SampleResult result) {
  SampleBatch unsent;
  {
    MutexLock lock(mutex_);
    is_drawing_ = false;
    draw_id_ = 0;
    unsent = take_batch(std::move(result));
  }
  drop_unsent(std::move(unsent));
  pump();
}

SampleBatch SampleStream::take_batch(SampleResult result) {
  if (is_over_) return std::move(result.batch);
  if (!result.status.ok() && ending_.ok()) ending_ = status_for_sampler(result.status);
  if (result.batch.empty()) {
    release();
    store_->spare_batches.keep(std::move(result.batch));
    return {};
  }
  Request& front = requests_.front();
  front.left -= result.batch.size();
  if (front.packed_version == 0) front.breath = std::min(2 * result.batch.size(), kBreathMax);
  drawn_ = std::move(result.batch);
  return {};
}

}  // namespace reverie
