// BatchMemory: keeps memory that is returned for the next batch of the same size, so that a stream
// of batches touches no fresh pages.
//
//     lent   [ 12 MB ] [ 4 KB ]      returned by the batch's holder
//     kept   [ 12 MB ] [ 4 KB ]      at most `kept_max`; one more drops the oldest
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// Thread-safe. Lives until the last of its buffers has come back, whichever thread holds it.
class BatchMemory final : public Allocator,
                          private BufferOwner,
                          public std::enable_shared_from_this<BatchMemory> {
 public:
  static std::shared_ptr<BatchMemory> make(std::size_t kept_max);
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;

  Result<Buffer> allocate(std::size_t size_bytes) override;

 private:
  explicit BatchMemory(std::size_t kept_max) : kept_max_(kept_max) {}
  void take_back(std::byte* data, std::size_t size_bytes) noexcept override;

  const std::size_t kept_max_;
  Mutex mutex_;
  std::vector<Buffer> kept_ REVERIE_GUARDED_BY(mutex_);  // oldest first
  std::vector<Buffer> lent_ REVERIE_GUARDED_BY(mutex_);
  std::shared_ptr<BatchMemory> self_ REVERIE_GUARDED_BY(mutex_);  // while buffers are lent
};

}  // namespace reverie
