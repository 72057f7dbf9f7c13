// Memory that several processes map, known by a file descriptor alone.
//
// It has no name in any file system (memfd_create), so nothing stays behind however its processes
// end: the kernel frees it with the last mapping and descriptor. Who is to share it gets the
// descriptor, inherited or sent through a socket. The size is sealed: no process can shrink it
// under another's feet.
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
  // New memory, zeroed, readable and writable. `name` is for people: /proc shows it. Pages are
  // taken when first touched. RESOURCE_EXHAUSTED without memory, or for 0 bytes.
  static Result<SharedMemory> create(const std::string& name, std::size_t size_bytes);
  // How another process's memory is mapped: where it is kCopyOnWrite, what is written here is seen
  // here alone; where it is kReadOnly, to write here ends the program.
  enum class Mapping { kShared, kCopyOnWrite, kReadOnly };
  // Maps what another process created and handed over as `fd`, which stays the caller's.
  // INVALID_ARGUMENT if `fd` is not such memory.
  static Result<SharedMemory> open(int fd, Mapping mapping = Mapping::kShared);
  // Maps what the process `pid` holds open as its descriptor `fd`, of the same user and seen by
  // /proc here: that process may have gone, and another have its number, so the caller looks for
  // what only the right memory holds. UNAVAILABLE where it cannot be opened.
  static Result<SharedMemory> open_of(std::int64_t pid, int fd, Mapping mapping = Mapping::kShared);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {data_, size_bytes_}; }
  // Copies `from` to where `offset` is, which costs less than to touch pages that were not used
  // before. RESOURCE_EXHAUSTED without memory. Requires that it lies within.
  Status write(std::size_t offset, std::span<const std::byte> from) const;
  // Who holds memory is known to the kernel, so that the one that made it can use it again: what
  // open_of() gave can be held until it goes, also by the death of its process, and is reserved
  // while nothing that open_of() gave holds it. Neither waits. Advice: it keeps no process from
  // writing.
  bool try_hold() const;
  bool try_reserve() const;
  void end_reservation() const;
  // To be handed over; closed with this object. Not inherited by programs that are executed.
  int fd() const { return fd_; }
  // Closes it; the bytes stay mapped. From then on fd() is -1, and nothing may need it.
  void close_fd();
  // A descriptor of the same memory by which it can be read and not written; the caller closes it.
  // From then on no other user of this machine can open it to write. UNAVAILABLE without /proc.
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
