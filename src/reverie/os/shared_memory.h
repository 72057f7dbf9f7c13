// Memory that several processes map, and that only a file descriptor refers to.
//
// It has no name in any file system (memfd_create), so nothing is left behind, however its
// processes end: the kernel frees it with the last mapping and descriptor. A process that is to
// share it gets the descriptor, inherited or sent through a socket. The size is sealed: no process
// can shrink it while another uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "reverie/base/status.h"

namespace reverie {

// Move-only. Its bytes stay mapped, and at the same address, for as long as it lives.
class SharedMemory {
 public:
  // New memory, zeroed, readable and writable. `name` appears in /proc. Pages are taken when first
  // touched. RESOURCE_EXHAUSTED if there is no memory, and for 0 bytes.
  static Result<SharedMemory> create(const std::string& name, std::size_t size_bytes);
  // How another process's memory is mapped: writes with kCopyOnWrite are private, with kReadOnly
  // they end the program.
  enum class Mapping { kShared, kCopyOnWrite, kReadOnly };
  // Maps what another process created and passed on as `fd`, which stays the caller's.
  // INVALID_ARGUMENT if `fd` is not such memory.
  static Result<SharedMemory> open(int fd, Mapping mapping = Mapping::kShared);
  // Maps what process `pid`, of the same user and visible in /proc, has open as its descriptor
  // `fd`. That process may be gone and its number reused, so the caller must check for contents
  // that only the right memory has. UNAVAILABLE if it cannot be opened.
  static Result<SharedMemory> open_of(std::int64_t pid, int fd, Mapping mapping = Mapping::kShared);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {data_, size_bytes_}; }
  // Copies `from` to `offset`; cheaper than writing to pages that were not used before.
  // RESOURCE_EXHAUSTED without memory. Requires that the bytes fit.
  Status write(std::size_t offset, std::span<const std::byte> from) const;
  // The kernel knows which processes hold the memory, so that its creator can use it again:
  // memory from open_of() is held until the object or its process is gone; the creator reserves
  // it while no process holds it. Neither call waits. Advisory: it keeps no process from
  // writing.
  bool try_hold() const;
  bool try_reserve() const;
  void end_reservation() const;
  // To pass on to another process; closed with this object. Close-on-exec.
  int fd() const { return fd_; }
  // Closes fd(), which is -1 from then on; the bytes stay mapped. Requires that it is not needed.
  void close_fd();
  // A descriptor of the same memory that allows reading and not writing; the caller closes it. From
  // then on no other user can open the memory for writing. UNAVAILABLE without /proc.
  Result<int> make_read_only_fd() const;

 private:
  SharedMemory(int fd, std::byte* data, std::size_t size_bytes)
      : fd_(fd), data_(data), size_bytes_(size_bytes) {}
  bool lock(short type) const;
  static Result<SharedMemory> map(int fd, std::size_t size_bytes, Mapping mapping);

  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace reverie
