// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/out_batch.h"

namespace reverie {

void OutBatch::append_copy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (!pieces_.empty() && pieces_.back().data == nullptr) {
    pieces_.back().size_bytes += bytes.size();
  } else {
    pieces_.push_back({nullptr, copies_.size(), bytes.size()});
  }
  copies_.insert(copies_.end(), bytes.begin(), bytes.end());
  size_bytes_ += bytes.size();
}

bool OutBatch::append(std::span<const std::byte> bytes) {
  if (bytes.size() <= kCopiedBytesMax) {
    append_copy(bytes);
    return false;
  }
  pieces_.push_back({bytes.data(), 0, bytes.size()});
  size_bytes_ += bytes.size();
  return true;
}

OutBatch::Outcome OutBatch::write_to(Connection& connection, Status* why_lost) {
  if (spans_.empty()) {
    for (const Piece& piece : pieces_) {
      const std::byte* const data = piece.data ? piece.data : copies_.data() + piece.offset;
      spans_.emplace_back(data, piece.size_bytes);
    }
  }
  while (next_ < spans_.size()) {
    const IoResult result = connection.write(std::span(spans_).subspan(next_));
    sent_bytes_.add(result.size_bytes);
    std::size_t left = result.size_bytes;
    while (next_ < spans_.size() && left >= spans_[next_].size()) left -= spans_[next_++].size();
    if (left > 0) spans_[next_] = spans_[next_].subspan(left);
    if (!result.status.ok()) {
      *why_lost = result.status;
      return Outcome::kLost;
    }
    if (result.size_bytes == 0) return Outcome::kBlocked;
  }
  clear();
  return Outcome::kWritten;
}

void OutBatch::clear() {
  pieces_.clear();
  kept_.clear();
  spans_.clear();
  next_ = 0;
  size_bytes_ = 0;
  // An idle connection keeps no buffer.
  if (copies_.capacity() > 4096) {
    copies_ = {};
  } else {
    copies_.clear();
  }
}

}  // namespace reverie
