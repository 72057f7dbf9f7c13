// Tested in mlp_file_test.cc.
#include "reverie/nn/file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace reverie::nn {
namespace {

// A file descriptor that is closed at the end.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }
  // 0, or -1 and errno.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

StatusCode code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return StatusCode::kResourceExhausted;
    default:
      return StatusCode::kUnavailable;
  }
}

Status error_of(int error, const char* what, const std::string& path) {
  return Status(code_of(error), format("'{}' cannot be {}: {}", path, what, std::strerror(error)));
}

// 0 or errno.
int write_all(File& file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.fd(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return ::fsync(file.fd()) == 0 && file.close() == 0 ? 0 : errno;
}

// The folder's own entry reaches the disk too. What cannot be synchronised (some network file
// systems) is not worth an error: the file itself is whole.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.fd() >= 0) ::fsync(file.fd());
}

}  // namespace

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::string temporary = path + ".XXXXXX";
  File file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (file.fd() < 0) return error_of(errno, "written", path);
  int error = write_all(file, bytes);
  if (error == 0 && ::chmod(temporary.c_str(), 0644) != 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    return error_of(error, "written", path);
  }
  sync_folder_of(path);
  return {};
}

Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t size_bytes_max) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about = {};
  if (file.fd() < 0 || ::fstat(file.fd(), &about) != 0) return error_of(errno, "read", path);
  if (!S_ISREG(about.st_mode)) return error_of(EISDIR, "read", path);
  const auto size = static_cast<std::size_t>(about.st_size);
  if (size > size_bytes_max) {
    return resource_exhausted("'{}' has {} bytes; at most {} are read", path, size, size_bytes_max);
  }
  std::vector<std::byte> bytes(size);
  std::size_t at = 0;
  while (at < size) {
    const ssize_t count = ::read(file.fd(), bytes.data() + at, size - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error_of(errno, "read", path);
    if (count == 0) return data_loss("'{}' became shorter while it was read", path);
    at += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace reverie::nn
