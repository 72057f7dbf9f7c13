#include "reverie/adapters/reverb/insert_stream.h"

#include <algorithm>
#include <utility>

namespace reverie {
namespace {

// What a store that was closed answers becomes what makes Reverb's writers try again.
Status status_for_writer(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return unavailable("Cancelling all calls");
  return status;
}

}  // namespace

Status reverb_no_table(std::string_view table) {
  return not_found("Priority table {} was not found", table);
}

void InsertStream::on_message(Ref<GrpcMessage> message) {
  if (call_->is_over()) return;
  const Status status = take(message);
  write_keys(inserted_now_);
  if (!status.ok()) call_->finish(status_for_writer(status));
}

void InsertStream::on_half_close() {
  call_->finish({});
}

void InsertStream::on_end(const Status& why) {
  chunks_.clear();
  if (why.ok()) return;  // what waits was let in by a writer that said goodbye
  std::vector<RequestId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, id] : waiting_) ids.push_back(id);
  }
  for (const RequestId id : ids) store_->service->cancel(id);
}

Status InsertStream::take(const Ref<GrpcMessage>& message) {
  REVERIE_ASSIGN_OR_RETURN(const wire::InsertStreamRequest request,
                           wire::read_insert_request(message->bytes()));
  if (request.chunks.empty() && request.items.empty()) {
    return invalid_argument(
        "ProcessIncomingRequest: Request lacks both chunks and item; send at least one");
  }
  REVERIE_RETURN_IF_ERROR(take_chunks(message, request.chunks));
  if (request.items.empty()) return {};
  for (const wire::WireItem& item : request.items) REVERIE_RETURN_IF_ERROR(take_item(item));
  return release_chunks(request.keep_chunk_keys);
}

Status InsertStream::take_chunks(const Ref<GrpcMessage>& message,
                                 const std::vector<wire::Bytes>& chunks) {
  for (const wire::Bytes bytes : chunks) {
    REVERIE_ASSIGN_OR_RETURN(const ChunkKey key, wire::chunk_key_of(bytes));
    if (chunks_.contains(key)) continue;  // older writers send some again: the first one counts
    if (kept_bytes_ + bytes.size() > store_->kept_bytes_max) {
      return resource_exhausted(
          "the stream keeps chunks of {} bytes and sent another of {}; the bound is {}; leave "
          "those "
          "without use out of keep_chunk_keys",
          kept_bytes_, bytes.size(), store_->kept_bytes_max);
    }
    const auto offset = static_cast<std::size_t>(bytes.data() - message->bytes().data());
    REVERIE_ASSIGN_OR_RETURN(
        Ref<Chunk> chunk,
        wire::read_chunk(Ref<GrpcMessage>(message)->view(offset, bytes.size()), schemas_));
    kept_bytes_ += bytes.size();
    chunks_.emplace(key, KeptChunk{std::move(chunk), bytes.size()});
  }
  return {};
}

Status InsertStream::take_item(const wire::WireItem& wire_item) {
  static const ReverbTable unknown;
  const ReverbTable* const table = store_->find(wire_item.table);
  const auto find_chunk = [&](ChunkKey key) -> const Chunk* {
    const auto found = chunks_.find(key);
    return found == chunks_.end() ? nullptr : found->second.chunk.get();
  };
  REVERIE_ASSIGN_OR_RETURN(
      Trajectory trajectory,
      trajectories_.read(wire_item, (table ? *table : unknown).names, find_chunk));
  if (!table) return reverb_no_table(wire_item.table);
  return insert(wire_item, *table, std::move(trajectory));
}

Status InsertStream::release_chunks(const std::vector<std::uint64_t>& keep) {
  std::unordered_map<ChunkKey, KeptChunk> kept;
  kept.reserve(keep.size());
  std::size_t kept_bytes = 0;
  for (const std::uint64_t key : keep) {
    const auto found = chunks_.find(key);
    if (found == chunks_.end()) continue;
    kept_bytes += found->second.size_bytes;
    kept.insert(chunks_.extract(found));
  }
  chunks_ = std::move(kept);
  kept_bytes_ = kept_bytes;
  if (chunks_.size() == keep.size()) return {};
  return failed_precondition(
      "ReleaseOutOfRangeChunks: Kept less chunks than expected.  chunks_.size() == {} != "
      "keep_keys.size() == {}.",
      chunks_.size(), keep.size());
}

Status InsertStream::insert(const wire::WireItem& wire_item, const ReverbTable& table,
                            Trajectory trajectory) {
  Item item{wire_item.key, wire_item.priority, std::move(trajectory), 0};
  const std::uint64_t number = ++last_number_;
  {
    MutexLock lock(mutex_);
    under_way_ = {number, std::this_thread::get_id()};
    waiting_.emplace(number, 0);
  }
  status_now_ = {};
  const RequestId id = store_->service->insert(
      {wire_item.table, {&item, 1}, TimePoint::max()},
      [self = shared_from_this(), number, key = wire_item.key](const InsertResult& result) {
        self->on_inserted(number, key, result);
      });
  MutexLock lock(mutex_);
  under_way_ = {};
  const auto found = waiting_.find(number);
  if (found != waiting_.end()) found->second = id;
  if (waiting_.size() >= table.pending_max) {
    resume_below_ = table.pending_max;
    call_->pause_reading();  // under the lock, lest it come behind the resumption
  }
  return status_now_;
}

void InsertStream::on_inserted(std::uint64_t number, ItemKey key, const InsertResult& result) {
  if (result.status.ok()) store_->inserts.fetch_add(1, std::memory_order_relaxed);
  bool is_within_call = false;
  {
    MutexLock lock(mutex_);
    waiting_.erase(number);
    is_within_call = under_way_.number == number && under_way_.thread == std::this_thread::get_id();
    if (resume_below_ > 0 && waiting_.size() < resume_below_) {
      resume_below_ = 0;
      call_->resume_reading();
    }
  }
  if (is_within_call) {
    if (result.status.ok()) {
      inserted_now_.push_back(key);
    } else {
      status_now_ = result.status;
    }
  } else if (result.status.ok()) {
    std::vector<ItemKey> keys = {key};
    write_keys(keys);
  } else {
    call_->finish(status_for_writer(result.status));
  }
}

void InsertStream::write_keys(std::vector<ItemKey>& keys) {
  if (keys.empty()) return;
  call_->write(GrpcPayload::of(wire::write_insert_response(keys)));
  keys.clear();
}

}  // namespace reverie
