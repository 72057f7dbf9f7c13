// What one call has to send: messages behind their prefixes, taken piece by piece as far as the
// peer's window lets them.
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
  // With the prefixes.
  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t message_count() const { return entries_.size(); }
  // Moves the first `count` bytes into the batch. Requires count <= size_bytes().
  void take(std::size_t count, OutBatch& batch);
  // Drops everything; `batch` keeps what it borrows of the first message. Null: it is gone.
  void abandon(OutBatch* batch);

 private:
  struct Entry {
    GrpcPayload payload;
    bool is_borrowed = false;  // some of it lies in a batch
  };
  FifoQueue<Entry> entries_;
  std::size_t size_bytes_ = 0;
  // How far the first message was taken.
  std::size_t prefix_taken_ = 0;
  std::size_t piece_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace reverie
