#include "reverie/record/external_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace reverie {
namespace {

class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

// The file offset of the first row of a read. An error if the rows leave its range.
Result<std::uint64_t> begin_of(const ExternalRead& read) {
  const ExternalRange& range = read.range;
  const std::uint64_t row_bytes = read.row_bytes();
  std::uint64_t end = 0;  // of the rows, in the range
  if (__builtin_mul_overflow(std::uint64_t{read.first_row} + read.row_count, row_bytes, &end) ||
      end > range.size_bytes) {
    return data_loss(
        "rows {} to {} of column '{}', of {} bytes each, leave the {} bytes at offset {} of '{}'",
        read.first_row, std::uint64_t{read.first_row} + read.row_count - 1, read.spec->name,
        row_bytes, range.size_bytes, range.offset, range.file);
  }
  return range.offset + read.first_row * row_bytes;
}

Status read_rows(int fd, const std::string& folder, std::uint64_t begin, const ExternalRead& read) {
  std::size_t done = 0;
  while (done < read.out.size()) {
    const ssize_t got =
        pread(fd, read.out.data() + done, read.out.size() - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return unavailable("cannot read '{}' below '{}' at offset {}: {}", read.range.file, folder,
                         begin + done, std::strerror(errno));
    }
    if (got == 0) {
      return data_loss(
          "column '{}' wants {} bytes at offset {} of '{}' below '{}', which ends at {}",
          read.spec->name, read.out.size(), begin, read.range.file, folder, begin + done);
    }
    done += static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<FileRoot>> FileRoot::open(const std::string& folder) {
  if (folder.empty() || folder.find('\0') != std::string::npos) {
    return invalid_argument("the folder of files is '{}'; give the path of a folder",
                            folder.c_str());
  }
  const int fd = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) return std::shared_ptr<FileRoot>(new FileRoot(folder, fd));
  const int error = errno;
  if (error == ENOENT) {
    return not_found("the folder of files '{}' does not exist; give one that does", folder);
  }
  return invalid_argument(
      "the folder of files '{}' cannot be opened: {}; give the path of a folder", folder,
      std::strerror(error));
}

FileRoot::~FileRoot() {
  close(fd_);
}

// With RESOLVE_BENEATH the kernel itself refuses paths that leave the folder; an earlier check of
// the path would fail if another process moves a link. A pipe must not make the call wait, and a
// terminal must not become the program's.
Result<int> FileRoot::open_file(const std::string& name) const {
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  while (true) {
    const long fd = syscall(SYS_openat2, fd_, name.c_str(), &how, sizeof(how));
    if (fd >= 0) {
      struct stat status {};
      if (fstat(static_cast<int>(fd), &status) == 0 && S_ISREG(status.st_mode)) {
        return static_cast<int>(fd);
      }
      close(static_cast<int>(fd));
      return data_loss("'{}' below '{}' is no regular file", name, folder_);
    }
    switch (errno) {
      case EINTR:
      case EAGAIN:  // a part of the path was moved meanwhile
        continue;
      case ENOENT: {
        struct stat root {};
        if (fstat(fd_, &root) != 0 || root.st_nlink == 0) {
          return unavailable("the folder of files '{}' is gone", folder_);
        }
        return data_loss("there is no file '{}' below '{}'", name, folder_);
      }
      case ENOTDIR:
      case ENAMETOOLONG:
      case ELOOP:
        return data_loss("there is no file '{}' below '{}'", name, folder_);
      case EXDEV:
        return data_loss("file '{}' is not below '{}'; only files there are read", name, folder_);
      case EACCES:
      case EPERM:
        return Status(StatusCode::kPermissionDenied,
                      format("cannot open '{}' below '{}': {}; let this user read it", name,
                             folder_, std::strerror(errno)));
      case ENOSYS:
        return unimplemented(
            "this kernel has no openat2 (Linux 5.6), without which a name could lead out of '{}'; "
            "give a function in the place of the folder",
            folder_);
      default:
        return unavailable("cannot open '{}' below '{}': {}", name, folder_, std::strerror(errno));
    }
  }
}

Status FileRoot::read(std::span<const ExternalRead> reads) {
  std::vector<std::size_t> order(reads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const int names = reads[a].range.file.compare(reads[b].range.file);
    if (names != 0) return names < 0;
    return std::pair(reads[a].range.offset, reads[a].first_row) <
           std::pair(reads[b].range.offset, reads[b].first_row);
  });
  for (std::size_t at = 0; at < order.size();) {
    const std::string& name = reads[order[at]].range.file;
    std::size_t end = at;
    std::vector<std::uint64_t> begins;
    for (; end < order.size() && reads[order[end]].range.file == name; ++end) {
      REVERIE_ASSIGN_OR_RETURN(begins.emplace_back(), begin_of(reads[order[end]]));
    }
    REVERIE_ASSIGN_OR_RETURN(const int fd, open_file(name));
    const OpenFile file(fd);
    // All reads of the file are started before the first one is awaited.
    for (std::size_t i = at; i < end; ++i) {
      (void)posix_fadvise(fd, static_cast<off_t>(begins[i - at]),
                          static_cast<off_t>(reads[order[i]].out.size()), POSIX_FADV_WILLNEED);
    }
    for (std::size_t i = at; i < end; ++i) {
      REVERIE_RETURN_IF_ERROR(read_rows(fd, folder_, begins[i - at], reads[order[i]]));
    }
    at = end;
  }
  return {};
}

}  // namespace reverie
