// InsertStream: inserts what one writer sends into the tables.
//
//     message { chunks, items, keep_chunk_keys }
//        chunks --> kept by key: long ones where they were received, each in its own memory,
//                   others as a view of the message if they are nearly all of it, or as copies
//        items  --> ReplayService, as many at once as fit; each is confirmed once it is inserted
//        then every chunk not in keep_chunk_keys is released (its items hold what they need)
// Chunks kept for later items and for waiting items count towards bounds of the stream and of the
// server. Items of a session (insert_session.h) are numbered: those that were inserted before are
// confirmed without being processed. While items wait for their table, or answers are not read,
// reading of the stream pauses. When the client disconnects, waiting items are withdrawn, the last
// first, so that no later item overtakes an earlier one; in a stream without a session they stay
// after a half-close.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "reverie/adapters/reverb/reverb_store.h"
#include "reverie/base/fifo_queue.h"
#include "reverie/base/mutex.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/requests.h"

namespace reverie {

// Events arrive on the call's I/O thread, completions of inserts on any thread.
class InsertStream final : public GrpcServerEvents,
                           public std::enable_shared_from_this<InsertStream> {
 public:
  InsertStream(std::shared_ptr<ReverbStore> store, std::shared_ptr<GrpcServerCall> call);
  ~InsertStream() override;

  std::uint32_t apart_field() const override { return wire::kChunksField; }
  void on_message(Ref<GrpcMessage> message) override;
  void on_half_close() override;
  void on_room() override;
  void on_end(const Status& why) override;

 private:
  struct KeptChunk {
    Ref<Chunk> chunk;
    std::size_t size_bytes = 0;
    std::uint64_t kept_until = 0;  // the last message that asked to keep it
  };
  // An item of a message.
  struct Place {
    std::uint64_t number = 0;
    const wire::WireItem* item = nullptr;
  };

  Status take(const Ref<GrpcMessage>& message);
  // The chunks in `parts` are in `chunks` too, in the same order.
  Status take_chunks(const Ref<GrpcMessage>& message, std::span<const GrpcMessage::Part> parts,
                     const std::vector<wire::Bytes>& chunks, bool are_stored);
  Result<Buffer> keep_part(const Ref<GrpcMessage>& message, wire::Bytes bytes);
  Result<Ref<Chunk>> read_chunk(const Ref<GrpcMessage>& message, wire::Bytes bytes, bool is_stored);
  Status take_items(const wire::InsertStreamRequest& request);
  Result<Item> read_item(const wire::WireItem& wire_item);
  void give_back(std::size_t bytes) {
    if (store_->in_flight) store_->in_flight->give_back(bytes);
  }
  void keep_for_waiting(std::size_t bytes);
  void resume() REVERIE_REQUIRES(mutex_);
  Status release_chunks(const std::vector<std::uint64_t>& keep);
  Status insert_items();
  Status insert_waiting(const Place& place, Item item);
  void on_inserted(std::uint64_t number, ItemKey key, const InsertResult& result);
  void confirm_now(std::uint64_t number, ItemKey key);
  void answer();
  bool has_waiting();

  const std::shared_ptr<ReverbStore> store_;
  const std::shared_ptr<GrpcServerCall> call_;
  const std::shared_ptr<InsertCall> turn_;  // this call's turn in the session
  std::string session_id_;                  // empty without one
  std::shared_ptr<InsertSession> session_;  // null without one

  // I/O thread only.
  std::unordered_map<ChunkKey, KeptChunk> chunks_;
  std::uint64_t release_count_ = 0;
  // The parsed message that is being processed; a member so that its memory is reused.
  wire::InsertStreamRequest request_;
  std::vector<wire::ChunkApart> apart_;
  std::size_t kept_bytes_ = 0;
  std::size_t received_bytes_ = 0;  // of chunks, since the stream began
  wire::SchemaCache schemas_;
  wire::TrajectoryReader trajectories_;
  std::uint64_t last_number_ = 0;    // without a session
  std::string table_;                // of the last item
  bool has_several_tables_ = false;  // among its items
  // Items of this message that are being inserted into one table, and their places in the message.
  std::vector<Item> items_;
  std::vector<Place> places_;
  // To be confirmed with this message.
  std::vector<ItemKey> keys_now_;
  std::vector<wire::NumberRun> runs_now_;
  std::uint64_t requests_taken_ = 0;
  Status status_now_;         // of the insert that completed within its call
  bool has_refused_ = false;  // a message: those behind it are not read

  // The insert whose call is in progress, and on which thread.
  struct UnderWay {
    std::uint64_t number = 0;
    std::thread::id thread;
  };
  Mutex mutex_;
  UnderWay under_way_ REVERIE_GUARDED_BY(mutex_);
  // Inserts that wait, by number; the id is 0 until the service has returned it.
  std::map<std::uint64_t, RequestId> waiting_ REVERIE_GUARDED_BY(mutex_);
  std::size_t resume_below_ REVERIE_GUARDED_BY(mutex_) = 0;  // 0: they do not pause reading
  // Bytes of chunks that the stream has released while items up to this number still wait.
  struct WaitingBytes {
    std::uint64_t last_number = 0;
    std::size_t size_bytes = 0;
  };
  FifoQueue<WaitingBytes> waiting_chunks_ REVERIE_GUARDED_BY(mutex_);
  std::size_t waiting_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool has_long_wait_ REVERIE_GUARDED_BY(mutex_) = false;  // too many bytes wait
  bool is_unread_ REVERIE_GUARDED_BY(mutex_) = false;      // too many answers wait
};

}  // namespace reverie
