// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/send_queue.h"

#include <algorithm>
#include <utility>

namespace reverie {

void SendQueue::push(GrpcPayload payload) {
  size_bytes_ += payload.size_bytes() + kPrefixBytes;
  entries_.push({std::move(payload), false});
}

void SendQueue::take(std::size_t count, OutBatch& batch) {
  REVERIE_CHECK(count <= size_bytes_);
  size_bytes_ -= count;
  while (true) {
    if (entries_.empty()) return;
    Entry& entry = entries_.front();
    const std::size_t size = entry.payload.size_bytes();
    if (prefix_taken_ < kPrefixBytes && count > 0) {
      const std::byte prefix[kPrefixBytes] = {
          std::byte{0}, static_cast<std::byte>(size >> 24u), static_cast<std::byte>(size >> 16u),
          static_cast<std::byte>(size >> 8u), static_cast<std::byte>(size)};
      const std::size_t part = std::min(count, kPrefixBytes - prefix_taken_);
      batch.append_copy({prefix + prefix_taken_, part});
      prefix_taken_ += part;
      count -= part;
    }
    while (count > 0 && piece_ < entry.payload.piece_count()) {
      const auto rest = entry.payload.piece(piece_).subspan(offset_);
      const std::size_t part = std::min(count, rest.size());
      entry.is_borrowed |= batch.append(rest.first(part));
      count -= part;
      offset_ += part;
      if (part == rest.size()) {
        ++piece_;
        offset_ = 0;
      }
    }
    const bool is_taken = prefix_taken_ == kPrefixBytes && piece_ == entry.payload.piece_count();
    if (!is_taken) return;
    Entry done = entries_.pop();
    if (done.is_borrowed) batch.keep(std::move(done.payload));
    prefix_taken_ = piece_ = offset_ = 0;
    if (count == 0) return;
  }
}

void SendQueue::abandon(OutBatch* batch) {
  if (batch != nullptr && !entries_.empty() && entries_.front().is_borrowed) {
    batch->keep(std::move(entries_.front().payload));
  }
  entries_.clear();
  size_bytes_ = prefix_taken_ = piece_ = offset_ = 0;
}

}  // namespace reverie
