// Tested in tests/integration/reverb_streams_test.cc.
#include "reverie/adapters/reverb/insert_stream.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "reverie/codec/column_codec.h"
#include "reverie/grpc/field_scan.h"
#include "reverie/native_wire/stored_chunk.h"
#include "reverie/record/compact.h"
#include "reverie/tensor/block_heap.h"

namespace reverie {
namespace {

// A chunk is copied if more than this fraction of its message's memory is not its own, so that a
// long-lived item does not hold the whole message. Long chunks are received into their own memory
// anyway.
constexpr std::size_t kPartOfMessage = 8;

// Bytes of items that wait for their table; beyond that, reading of the stream pauses.
constexpr std::size_t kWaitingBytesMax = std::size_t{64} << 20;
// How many items of a writer to several tables may wait.
constexpr std::size_t kSeveralPendingMax = 1000;
// Bytes of unread answers, whatever else the connection has to send; beyond that, reading pauses
// too.
constexpr std::size_t kUnreadBytesMax = std::size_t{4} << 10;

// A larger hash table is released with its chunks.
constexpr std::size_t kBucketsMax = 4096;

// Bytes of the schemas of a stream's chunks; beyond that, they take at most twice what was sent.
constexpr std::size_t kSchemaBytesFree = std::size_t{128} << 10;
constexpr std::size_t kOversizedBytesMin = 4096;

// Turns the answer of a closed store into one that makes Reverb's writers retry.
Status status_for_writer(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return unavailable("Cancelling all calls");
  return status;
}

// Checks a chunk without decoding it, so that its sender gets an error before an item refers to it.
Status check_columns(const Chunk& chunk) {
  if (chunk.is_raw()) return {};
  const ChunkSchema& schema = chunk.schema();
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    const Status status = check_column(chunk.encoded_column(c).codec, schema.column(c),
                                       chunk.rows(), chunk.encoded_bytes(c));
    if (!status.ok()) {
      return invalid_argument("chunk {}, column {}: {}", chunk.key(), c, status.message());
    }
  }
  return {};
}

// Too small to be worth an encoder's time.
constexpr std::size_t kPackedBytesMin = 256;

// The same chunk in less memory; unchanged if that saves nothing, or if its rows are not raw.
Ref<Chunk> packed(Ref<Chunk> chunk, CodecChoice choice, Allocator& allocator) {
  if (choice != CodecChoice::kLz4 && choice != CodecChoice::kZstd) return chunk;
  if (!chunk->is_raw_for_good() || chunk->size_bytes() < kPackedBytesMin) return chunk;
  const ChunkSchema& schema = chunk->schema();
  const CodecId codec = choice == CodecChoice::kLz4 ? CodecId::kLz4 : CodecId::kZstd;
  const std::vector<ColumnTry> tries(schema.column_count(), {.codec = codec, .at_most = 1.0});
  Result<Chunk::EncodedColumns> encoded = encode_columns(*chunk, tries, allocator);
  if (!encoded.ok() || encoded->storage.size_bytes() >= chunk->raw_bytes()) return chunk;
  return Chunk::encoded(chunk->shared_schema(),
                        {chunk->key(), chunk->episode(), chunk->first_step()}, chunk->rows(),
                        std::move(encoded->storage), std::move(encoded->columns));
}

class StreamTurn final : public InsertCall {
 public:
  explicit StreamTurn(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
  void pause_reading() override { call_->pause_reading(); }
  void resume_reading() override { call_->resume_reading(); }
  void abort(const Status& why) override { call_->abort(why); }

 private:
  const std::shared_ptr<GrpcServerCall> call_;
};

std::string value_of(const GrpcMetadata& metadata, std::string_view wanted) {
  for (const auto& [name, value] : metadata) {
    if (name == wanted) return value;
  }
  return {};
}

// 0 if the writer does not send it.
Result<std::uint64_t> ordinal_of(const std::string& text) {
  std::uint64_t ordinal = 0;
  if (text.empty()) return ordinal;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ordinal);
  if (error != std::errc() || end != text.data() + text.size() || ordinal == 0) {
    return invalid_argument("'{}' is not the number of a session's stream; the first is 1", text);
  }
  return ordinal;
}

}  // namespace

Status reverb_no_table(std::string_view table) {
  return not_found("Priority table {} was not found", table);
}

InsertStream::InsertStream(std::shared_ptr<ReverbStore> store, std::shared_ptr<GrpcServerCall> call)
    : store_(std::move(store)), call_(std::move(call)), turn_(std::make_shared<StreamTurn>(call_)) {
  std::string id = value_of(call_->info().metadata, wire::kSessionName);
  if (id.empty()) return;
  const auto refuse = [this](const Status& why) {
    call_->pause_reading();  // nothing is delivered before the end
    call_->finish(why);
  };
  if (!InsertSessions::is_id(id)) {
    refuse(invalid_argument("'{}' is not a session; it must be 32 hexadecimal digits", id));
    return;
  }
  const auto ordinal = ordinal_of(value_of(call_->info().metadata, wire::kStreamName));
  if (!ordinal.ok()) {
    refuse(ordinal.status());
    return;
  }
  session_ = store_->sessions->open(id);
  session_id_ = std::move(id);
  if (session_->attach(turn_, *ordinal)) return;
  session_ = nullptr;
  store_->sessions->close(session_id_);
  refuse(unavailable("this session has had a newer stream"));
}

InsertStream::~InsertStream() {
  give_back(kept_bytes_ + waiting_bytes_);
}

void InsertStream::on_message(Ref<GrpcMessage> message) {
  if (call_->is_over() || has_refused_) return;
  const Status status = take(message);
  answer();
  if (!status.ok()) {
    has_refused_ = true;
    return call_->finish(status_for_writer(status));
  }
  if (call_->queued_bytes() < kUnreadBytesMax || call_->has_room()) return;
  MutexLock lock(mutex_);
  is_unread_ = true;
  call_->pause_reading();
}

void InsertStream::on_room() {
  MutexLock lock(mutex_);
  if (std::exchange(is_unread_, false)) resume();
}

// Resumes reading, unless something else still pauses it.
void InsertStream::resume() {
  if (resume_below_ == 0 && !has_long_wait_ && !is_unread_) call_->resume_reading();
}

void InsertStream::on_half_close() {
  call_->finish({});
}

void InsertStream::on_end(const Status& why) {
  chunks_.clear();
  // Waiting items of a writer that closed its stream properly stay; a writer with a session returns
  // for them or abandons them.
  if (why.ok() && !session_) return;
  std::vector<RequestId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, id] : waiting_) ids.push_back(id);
  }
  std::ranges::reverse(ids);
  for (const RequestId id : ids) store_->service->cancel(id);
  if (!session_) return;
  session_->leave(turn_);
  store_->sessions->close(session_id_);
}

Status InsertStream::take(const Ref<GrpcMessage>& message) {
  const std::vector<GrpcMessage::Part> parts = message->take_parts();
  apart_.clear();
  for (const auto& part : parts) apart_.push_back({part.at, part.content->bytes()});
  REVERIE_RETURN_IF_ERROR(wire::read_insert_request(message->bytes(), apart_, request_));
  const wire::InsertStreamRequest& request = request_;
  if (request.chunks.empty() && request.stored_chunks.empty() && request.items.empty()) {
    return invalid_argument(
        "ProcessIncomingRequest: Request lacks both chunks and item; send at least one");
  }
  if (session_ && !request.items.empty() && request.first_number == 0) {
    return invalid_argument("the items of a session must have numbers; first_number is 0");
  }
  REVERIE_RETURN_IF_ERROR(take_chunks(message, parts, request.chunks, /*are_stored=*/false));
  REVERIE_RETURN_IF_ERROR(take_chunks(message, {}, request.stored_chunks, /*are_stored=*/true));
  if (request.items.empty()) return {};
  if (session_ && session_->settle(request.settled_below)) {
    store_->service->settle(session_id_, request.settled_below);
  }
  REVERIE_RETURN_IF_ERROR(take_items(request));
  return release_chunks(request.keep_chunk_keys);
}

Result<Buffer> InsertStream::keep_part(const Ref<GrpcMessage>& message, wire::Bytes bytes) {
  ChunkMemory* const chunks = store_->service->chunk_memory();
  const std::size_t memory = message->memory_bytes();
  if (chunks == nullptr && memory >= FieldScan::kApartBytesMin &&
      bytes.size() >= memory - memory / kPartOfMessage) {
    const auto offset = static_cast<std::size_t>(bytes.data() - message->bytes().data());
    return Ref<GrpcMessage>(message)->view(offset, bytes.size());
  }
  REVERIE_ASSIGN_OR_RETURN(Buffer copy, chunk_allocator(*store_->service).allocate(bytes.size()));
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

Result<Ref<Chunk>> InsertStream::read_chunk(const Ref<GrpcMessage>& message, wire::Bytes bytes,
                                            bool is_stored) {
  if (is_stored) {
    REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk,
                             read_stored_chunk(bytes, schemas_, [&](wire::Bytes part) {
                               return keep_part(message, part);
                             }));
    return packed(std::move(chunk), store_->codec, chunk_allocator(*store_->service));
  }
  REVERIE_ASSIGN_OR_RETURN(Buffer kept, keep_part(message, bytes));
  return wire::read_chunk(std::move(kept), schemas_);
}

Status InsertStream::take_chunks(const Ref<GrpcMessage>& message,
                                 std::span<const GrpcMessage::Part> parts,
                                 const std::vector<wire::Bytes>& chunks, bool are_stored) {
  for (const wire::Bytes bytes : chunks) {
    const bool is_part = !parts.empty() && parts.front().content->bytes().data() == bytes.data();
    const Ref<GrpcMessage>& holder = is_part ? parts.front().content : message;
    if (is_part) parts = parts.subspan(1);
    REVERIE_ASSIGN_OR_RETURN(const ChunkKey key, wire::chunk_key_of(bytes));
    if (chunks_.contains(key))
      continue;  // older writers send some chunks again: the first one counts
    if (kept_bytes_ + bytes.size() > store_->kept_bytes_max) {
      return resource_exhausted(
          "the stream keeps chunks of {} bytes and sent another of {}; the bound is {}; leave "
          "those without use out of keep_chunk_keys",
          kept_bytes_, bytes.size(), store_->kept_bytes_max);
    }
    REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk, read_chunk(holder, bytes, are_stored));
    REVERIE_RETURN_IF_ERROR(check_columns(*chunk));
    received_bytes_ += bytes.size();
    if (schemas_.made_bytes() > kSchemaBytesFree + 2 * received_bytes_) {
      return resource_exhausted(
          "the stream's chunks of {} bytes use more and more kinds of columns, which take {}; use "
          "the same columns for all chunks of a writer",
          received_bytes_, schemas_.made_bytes());
    }
    // Columns that take more memory than their bytes are counted by their memory.
    const bool is_oversized = chunk->size_bytes() > 2 * bytes.size() + kOversizedBytesMin;
    const std::size_t size_bytes = is_oversized ? chunk->size_bytes() : bytes.size();
    if (store_->in_flight) REVERIE_RETURN_IF_ERROR(store_->in_flight->take(size_bytes));
    kept_bytes_ += size_bytes;
    chunks_.emplace(key, KeptChunk{std::move(chunk), size_bytes, 0});
  }
  return {};
}

Result<Item> InsertStream::read_item(const wire::WireItem& wire_item) {
  static const auto* const unknown = new ReverbTable;  // outlives threads that read at exit
  const ReverbTable* const table = store_->find(wire_item.table);
  const auto find_chunk = [&](ChunkKey key) -> const Chunk* {
    const auto found = chunks_.find(key);
    return found == chunks_.end() ? nullptr : found->second.chunk.get();
  };
  REVERIE_ASSIGN_OR_RETURN(
      Trajectory trajectory,
      trajectories_.read(wire_item, (table ? *table : *unknown).names, find_chunk));
  if (!table) return reverb_no_table(wire_item.table);
  return Item{wire_item.key, wire_item.priority, std::move(trajectory), 0};
}

// Items before a malformed one are still inserted.
Status InsertStream::take_items(const wire::InsertStreamRequest& request) {
  std::uint64_t number = session_ ? request.first_number : last_number_ + 1;
  for (const wire::WireItem& wire_item : request.items) {
    const Place place{number++, &wire_item};
    if (!session_) last_number_ = place.number;
    if (wire_item.table != table_) {
      has_several_tables_ |= !std::exchange(table_, wire_item.table).empty();
    }
    if (!places_.empty() && places_.front().item->table != wire_item.table) {
      REVERIE_RETURN_IF_ERROR(insert_items());
    }
    if (session_ && session_->begin(place.number)) {
      confirm_now(place.number, wire_item.key);
      continue;
    }
    Result<Item> item = read_item(wire_item);
    if (!item.ok()) {
      if (session_) session_->note_done(place.number, false);
      REVERIE_RETURN_IF_ERROR(insert_items());
      return item.status();
    }
    items_.push_back(std::move(item).value());
    places_.push_back(place);
  }
  return insert_items();
}

Status InsertStream::release_chunks(const std::vector<std::uint64_t>& keep) {
  ++release_count_;
  std::size_t kept_bytes = 0;
  std::size_t kept_count = 0;
  for (const std::uint64_t key : keep) {
    const auto found = chunks_.find(key);
    if (found == chunks_.end()) continue;
    if (std::exchange(found->second.kept_until, release_count_) == release_count_) continue;
    kept_bytes += found->second.size_bytes;
    ++kept_count;
  }
  if (kept_count == 0 && chunks_.bucket_count() > kBucketsMax) {
    chunks_ = {};
  } else if (kept_count == 0) {
    chunks_.clear();
  } else {
    std::erase_if(chunks_,
                  [&](const auto& kept) { return kept.second.kept_until != release_count_; });
  }
  keep_for_waiting(kept_bytes_ - kept_bytes);
  kept_bytes_ = kept_bytes;
  if (chunks_.size() == keep.size()) return {};
  return failed_precondition(
      "ReleaseOutOfRangeChunks: Kept less chunks than expected.  chunks_.size() == {} != "
      "keep_keys.size() == {}.",
      chunks_.size(), keep.size());
}

// Waiting items hold their chunks, which count until the items are inserted.
void InsertStream::keep_for_waiting(std::size_t bytes) {
  {
    MutexLock lock(mutex_);
    if (!waiting_.empty() && bytes > 0) {
      waiting_chunks_.push({waiting_.rbegin()->first, bytes});
      waiting_bytes_ += bytes;
      if (waiting_bytes_ >= kWaitingBytesMax && !std::exchange(has_long_wait_, true)) {
        call_->pause_reading();
      }
      return;
    }
  }
  give_back(bytes);
}

bool InsertStream::has_waiting() {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

// Inserts items_, which are of one table.
Status InsertStream::insert_items() {
  std::vector<Item> items = std::exchange(items_, {});
  std::vector<Place> places = std::exchange(places_, {});
  if (items.empty()) return {};
  std::size_t done = 0;
  if (!has_waiting()) {
    done = store_->service->insert_at_once(places.front().item->table, items);
    for (std::size_t i = 0; i < done; ++i) {
      if (session_) session_->note_done(places[i].number, true);
      confirm_now(places[i].number, places[i].item->key);
    }
    store_->inserts.fetch_add(done, std::memory_order_relaxed);
  }
  Status status;
  for (std::size_t i = done; i < items.size(); ++i) {
    if (status.ok()) {
      status = insert_waiting(places[i], std::move(items[i]));
    } else if (session_) {
      session_->note_done(places[i].number, false);
    }
  }
  items.clear();
  items_ = std::move(items);  // keeps their memory
  places.clear();
  places_ = std::move(places);
  return status;
}

Status InsertStream::insert_waiting(const Place& place, Item item) {
  const std::uint64_t number = place.number;
  {
    MutexLock lock(mutex_);
    under_way_ = {number, std::this_thread::get_id()};
    waiting_.emplace(number, 0);
  }
  status_now_ = {};
  const RequestId id = store_->service->insert(
      {.table = place.item->table,
       .items = {&item, 1},
       .numbers = {session_id_, session_ ? number : 0}},
      [self = shared_from_this(), number, key = place.item->key](const InsertResult& result) {
        self->on_inserted(number, key, result);
      });
  std::size_t pending_max = store_->find(place.item->table)->pending_max;
  // One table does not delay another until as many items wait as Reverie's writers permit.
  if (session_ && has_several_tables_) pending_max = std::max(pending_max, kSeveralPendingMax);
  MutexLock lock(mutex_);
  under_way_ = {};
  const auto found = waiting_.find(number);
  if (found != waiting_.end()) found->second = id;
  if (waiting_.size() >= pending_max) {
    resume_below_ = pending_max;
    call_->pause_reading();  // under the lock, so that it cannot follow the resumption
  }
  return status_now_;
}

void InsertStream::on_inserted(std::uint64_t number, ItemKey key, const InsertResult& result) {
  if (result.status.ok()) store_->inserts.fetch_add(1, std::memory_order_relaxed);
  if (session_) session_->note_done(number, result.status.ok());
  bool is_within_call = false;
  std::size_t let_go_bytes = 0;
  {
    MutexLock lock(mutex_);
    waiting_.erase(number);
    while (!waiting_chunks_.empty() &&
           (waiting_.empty() || waiting_chunks_.front().last_number < waiting_.begin()->first)) {
      let_go_bytes += waiting_chunks_.pop().size_bytes;
    }
    waiting_bytes_ -= let_go_bytes;
    is_within_call = under_way_.number == number && under_way_.thread == std::this_thread::get_id();
    if (resume_below_ > 0 && waiting_.size() < resume_below_) {
      resume_below_ = 0;
      resume();
    }
    if (waiting_bytes_ < kWaitingBytesMax && std::exchange(has_long_wait_, false)) resume();
  }
  give_back(let_go_bytes);
  if (is_within_call) {
    if (result.status.ok()) {
      confirm_now(number, key);
    } else {
      status_now_ = result.status;
    }
  } else if (!result.status.ok()) {
    call_->finish(status_for_writer(result.status));
  } else if (session_) {
    const wire::NumberRun run{number, 1};
    call_->write(GrpcPayload::of(wire::write_numbered_response({&run, 1}, 0)));
  } else {
    call_->write(GrpcPayload::of(wire::write_insert_response({&key, 1})));
  }
}

void InsertStream::confirm_now(std::uint64_t number, ItemKey key) {
  if (!session_) {
    keys_now_.push_back(key);
  } else if (!runs_now_.empty() && runs_now_.back().first + runs_now_.back().count == number) {
    ++runs_now_.back().count;
  } else {
    runs_now_.push_back({number, 1});
  }
}

// A session's writer gets an answer to each message, so that it knows when to send the next.
void InsertStream::answer() {
  if (session_) {
    call_->write(GrpcPayload::of(
        wire::write_numbered_response(runs_now_, ++requests_taken_, kStoredChunkVersion)));
    runs_now_.clear();
  } else if (!keys_now_.empty()) {
    call_->write(GrpcPayload::of(wire::write_insert_response(keys_now_)));
    keys_now_.clear();
  }
}

}  // namespace reverie
