// CancellableFile: a file whose writes can be cancelled at any time, and whose sync is short, since
// that cannot.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

// CANCELLED once it is true.
inline Status check_not_cancelled(const std::atomic<bool>& is_cancelled) {
  if (!is_cancelled.load(std::memory_order_relaxed)) return {};
  return cancelled("the checkpoint was cancelled; nothing of it is left");
}

// Writes in pieces, and lets the disk follow (File::settle).
class CancellableFile final : public File {
 public:
  // Bytes that are written at once.
  static constexpr std::size_t kPieceBytesMax = std::size_t{8} << 20;

  // `is_cancelled` outlives it.
  CancellableFile(std::unique_ptr<File> file, const std::atomic<bool>& is_cancelled)
      : file_(std::move(file)), is_cancelled_(is_cancelled) {}

  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      REVERIE_RETURN_IF_ERROR(check_not_cancelled(is_cancelled_));
      const auto piece = bytes.first(std::min(bytes.size(), kPieceBytesMax));
      REVERIE_RETURN_IF_ERROR(file_->append(piece));
      REVERIE_RETURN_IF_ERROR(file_->settle());
      bytes = bytes.subspan(piece.size());
    }
    return {};
  }
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    return file_->write_at(offset, bytes);
  }
  Status sync() override {
    REVERIE_RETURN_IF_ERROR(check_not_cancelled(is_cancelled_));
    return file_->sync();
  }

 private:
  const std::unique_ptr<File> file_;
  const std::atomic<bool>& is_cancelled_;
};

}  // namespace reverie::checkpoint
