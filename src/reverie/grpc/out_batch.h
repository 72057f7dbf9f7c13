// OutBatch: bytes for the socket's next system calls. Small pieces are copied, large ones borrowed.
//
// It is filled, written completely, and filled again; it keeps what it borrows until then.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reverie/base/stat_counter.h"
#include "reverie/base/status.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/net/connection.h"

namespace reverie {

// Used on its connection's I/O thread only.
class OutBatch {
 public:
  // Appends a copy.
  void append_copy(std::span<const std::byte> bytes);
  // Copies a small piece, borrows a large one until the batch is written; true if it was
  // borrowed.
  bool append(std::span<const std::byte> bytes);
  // Keeps the memory of borrowed pieces.
  void keep(GrpcPayload payload) { kept_.push_back(std::move(payload)); }

  bool empty() const { return pieces_.empty(); }
  // Whether it should be written before more is appended.
  bool is_full() const { return size_bytes_ >= kBytesMax || pieces_.size() >= kPiecesMax; }

  enum class Outcome { kWritten, kBlocked, kLost };
  // Continues where it stopped. kWritten: the batch is empty again.
  Outcome write_to(Connection& connection, Status* why_lost);
  std::uint64_t sent_bytes() const { return sent_bytes_.count(); }

 private:
  static constexpr std::size_t kBytesMax = std::size_t{256} << 10;
  static constexpr std::size_t kPiecesMax = 250;  // limit of one system call
  static constexpr std::size_t kCopiedBytesMax = 1024;

  struct Piece {
    const std::byte* data;  // null: at `offset` in copies_
    std::size_t offset;
    std::size_t size_bytes;
  };
  void clear();

  std::vector<Piece> pieces_;
  std::vector<std::byte> copies_;
  std::vector<GrpcPayload> kept_;
  std::size_t size_bytes_ = 0;
  // Used while it is written.
  std::vector<std::span<const std::byte>> spans_;
  std::size_t next_ = 0;
  StatCounter sent_bytes_;
};

}  // namespace reverie
