// SendQueue: the messages of one call, with their prefixes, sent as far as the peer's window
// allows.
#pragma once

#include <cstddef>

#include "reverie/base/fifo_queue.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/grpc/out_batch.h"

namespace reverie {

// Used on its connection's I/O thread only.
class SendQueue {
 public:
  static constexpr std::size_t kPrefixBytes = 5;

  // Requires payload.size_bytes() < 2^32.
  void push(GrpcPayload payload);
  // Prefixes included.
  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t message_count() const { return entries_.size(); }
  // Moves the first `count` bytes into the batch. Requires count <= size_bytes().
  void take(std::size_t count, OutBatch& batch);
  // Drops everything; `batch` keeps what it borrows of the first message. Null: it is gone.
  void abandon(OutBatch* batch);

 private:
  struct Entry {
    GrpcPayload payload;
    bool is_borrowed = false;  // a batch borrows part of it
  };
  FifoQueue<Entry> entries_;
  std::size_t size_bytes_ = 0;
  // How much of the first message was taken.
  std::size_t prefix_taken_ = 0;
  std::size_t piece_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace reverie
