#include "reverie/os/shared_memory.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace reverie {

Result<SharedMemory> SharedMemory::create(const std::string& name, std::size_t size_bytes) {
  if (size_bytes == 0) return resource_exhausted("shared memory of 0 bytes; it must have some");
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    return resource_exhausted("no descriptor for shared memory: {}", std::strerror(errno));
  }
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(fd);
    return resource_exhausted("no shared memory of {} bytes: {}", size_bytes, std::strerror(error));
  }
  return map(fd, size_bytes, Mapping::kShared);
}

Result<SharedMemory> SharedMemory::open(int fd, Mapping mapping) {
  struct stat about {};
  if (fstat(fd, &about) != 0) {
    return invalid_argument("descriptor {} is not shared memory: {}", fd, std::strerror(errno));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || about.st_size <= 0) {
    return invalid_argument(
        "descriptor {} is not shared memory of a fixed size; hand over SharedMemory::fd()", fd);
  }
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return resource_exhausted("no descriptor left: {}", std::strerror(errno));
  return map(own, static_cast<std::size_t>(about.st_size), mapping);
}

Result<SharedMemory> SharedMemory::open_of(std::int64_t pid, int fd, Mapping mapping) {
  const std::string path = format("/proc/{}/fd/{}", pid, fd);
  // Only memory is opened, since opening a device or a pipe may have effects.
  std::array<char, 64> target{};
  const ssize_t size = readlink(path.c_str(), target.data(), target.size());
  if (size < 0) return unavailable("{} cannot be read: {}", path, std::strerror(errno));
  if (!std::string_view(target.data(), static_cast<std::size_t>(size)).starts_with("/memfd:")) {
    return unavailable("{} is not shared memory", path);
  }
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (own < 0) return unavailable("{} cannot be opened: {}", path, std::strerror(errno));
  Result<SharedMemory> memory = open(own, mapping);
  close(own);
  return memory;
}

Result<SharedMemory> SharedMemory::map(int fd, std::size_t size_bytes, Mapping mapping) {
  const int flags =
      mapping == Mapping::kCopyOnWrite ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
  const int rights = mapping == Mapping::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const at = mmap(nullptr, size_bytes, rights, flags, fd, 0);
  if (at == MAP_FAILED) {
    const int error = errno;
    close(fd);
    return resource_exhausted("shared memory of {} bytes cannot be mapped: {}", size_bytes,
                              std::strerror(error));
  }
  return SharedMemory(fd, static_cast<std::byte*>(at), size_bytes);
}

Result<int> SharedMemory::make_read_only_fd() const {
  (void)fchmod(fd_, S_IRUSR | S_IWUSR);
  const std::string path = format("/proc/self/fd/{}", fd_);
  const int made = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (made < 0) {
    return unavailable("{} cannot be opened to read alone: {}", path, std::strerror(errno));
  }
  return made;
}

Status SharedMemory::write(std::size_t offset, std::span<const std::byte> from) const {
  while (!from.empty()) {
    const ssize_t size = pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      return resource_exhausted("{} bytes cannot be written to shared memory: {}", from.size(),
                                std::strerror(errno));
    }
    offset += static_cast<std::size_t>(size);
    from = from.subspan(static_cast<std::size_t>(size));
  }
  return {};
}

// Locks belong to an open file, which open_of() makes again, not to the process.
bool SharedMemory::lock(short type) const {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;  // the whole file
  return fcntl(fd_, F_OFD_SETLK, &range) == 0;
}

bool SharedMemory::try_hold() const {
  return lock(F_RDLCK);
}

bool SharedMemory::try_reserve() const {
  return lock(F_WRLCK);
}

void SharedMemory::end_reservation() const {
  (void)lock(F_UNLCK);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

void SharedMemory::close_fd() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
  close_fd();
}

}  // namespace reverie
