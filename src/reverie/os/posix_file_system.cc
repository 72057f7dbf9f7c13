// FileSystem over plain system calls.
//
// Tested in file_system_test.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "reverie/base/fork.h"
#include "reverie/os/file_system.h"
#include "reverie/os/guarded_mapping.h"

namespace reverie {
namespace {

// Bytes after which the kernel is told to start writing, so that a sync has little left to do.
constexpr std::uint64_t kWriteBehindBytes = 8u << 20;
// What settle() leaves to a sync: enough that the disk always has something to write.
constexpr std::uint64_t kUnsettledBytesMax = 2 * kWriteBehindBytes;

// A pipe instead of a file would make the call wait for its other end.
constexpr int kNoWait = O_NONBLOCK | O_NOCTTY;

// The number of digits that a process number may have.
constexpr std::size_t kHolderBytesMax = 10;

StatusCode code_of(int error) {
  switch (error) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case EINVAL:
    case ELOOP:
    case EXDEV:
      return StatusCode::kInvalidArgument;
    case ENOTEMPTY:
    case EBUSY:
    case EWOULDBLOCK:
      return StatusCode::kFailedPrecondition;
    case EOPNOTSUPP:
    case EMLINK:
    case ENOSYS:
      return StatusCode::kUnimplemented;
    default:
      return StatusCode::kDataLoss;
  }
}

Status error_of(int error, const char* what, const std::string& path) {
  const StatusCode code = code_of(error);
  const char* advice = "";
  if (error == ENOSPC || error == EDQUOT) advice = "; free some space";
  if (code == StatusCode::kPermissionDenied) advice = "; give a folder that this user may write to";
  return Status(code, format("cannot {} '{}': {}{}", what, path, std::strerror(error), advice));
}

// The system would truncate a name at a NUL.
Status check_path(const std::string& path) {
  if (path.empty()) return invalid_argument("a path is empty; give one");
  if (path.find('\0') != std::string::npos) {
    return invalid_argument("path '{}' holds a NUL; give one without", path.c_str());
  }
  return {};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<Descriptor> open_path(const std::string& path, int flags, const char* what) {
  REVERIE_RETURN_IF_ERROR(check_path(path));
  while (true) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (fd >= 0) return Descriptor(fd);
    if (errno != EINTR) return error_of(errno, what, path);
  }
}

class PosixFile final : public File {
 public:
  PosixFile(Descriptor fd, std::string path, std::uint64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), end_(size), begun_(size), settled_(size) {}

  Status append(std::span<const std::byte> bytes) override {
    REVERIE_RETURN_IF_ERROR(write_at(end_, bytes));
    if (end_ - begun_ >= kWriteBehindBytes) {
      // A hint: if it is refused, the sync does all the work.
      (void)sync_file_range(fd_.get(), static_cast<off_t>(begun_),
                            static_cast<off_t>(end_ - begun_), SYNC_FILE_RANGE_WRITE);
      begun_ = end_;
    }
    return {};
  }
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    REVERIE_RETURN_IF_ERROR(failed_);
    while (!bytes.empty()) {
      const ssize_t written =
          pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0) {
        if (errno == EINTR) continue;
        return error_of(errno, "write", path_);
      }
      offset += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    end_ = std::max(end_, offset);
    return {};
  }
  Status sync() override {
    REVERIE_RETURN_IF_ERROR(failed_);
    if (fdatasync(fd_.get()) != 0) failed_ = error_of(errno, "sync", path_);
    return failed_;
  }
  Status settle() override {
    REVERIE_RETURN_IF_ERROR(failed_);
    if (begun_ < settled_ + kUnsettledBytesMax) return {};
    const std::uint64_t end = begun_ - kUnsettledBytesMax;
    if (sync_file_range(fd_.get(), static_cast<off_t>(settled_), static_cast<off_t>(end - settled_),
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
      // The kernel reports a failed write once, and has done so now.
      failed_ = error_of(errno, "sync", path_);
    }
    settled_ = end;  // also where the call is not supported: then the sync does all the work
    return failed_;
  }

 private:
  const Descriptor fd_;
  const std::string path_;
  std::uint64_t end_;
  std::uint64_t begun_;    // the kernel was told to write up to here
  std::uint64_t settled_;  // settle() has waited for the bytes up to here
  Status failed_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(Descriptor fd, std::string path, std::uint64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_bytes_(size) {}

  std::uint64_t size_bytes() const override { return size_bytes_; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t got = pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0) {
        if (errno == EINTR) continue;
        return error_of(errno, "read", path_);
      }
      if (got == 0) {
        return data_loss("'{}' ends at byte {}; {} more are wanted there", path_, offset,
                         out.size());
      }
      offset += static_cast<std::uint64_t>(got);
      out = out.subspan(static_cast<std::size_t>(got));
    }
    return {};
  }

 private:
  const Descriptor fd_;
  const std::string path_;
  const std::uint64_t size_bytes_;
};

class PosixMappedFile final : public MappedFile {
 public:
  PosixMappedFile(void* at, std::size_t size) : at_(at), size_bytes_(size) {}
  ~PosixMappedFile() override {
    if (size_bytes_ > 0) munmap(at_, size_bytes_);
  }
  std::span<const std::byte> bytes() const override {
    return {static_cast<const std::byte*>(at_), size_bytes_};
  }

 private:
  void* const at_;
  const std::size_t size_bytes_;
};

class PosixSharedFile final : public SharedFile {
 public:
  explicit PosixSharedFile(std::unique_ptr<GuardedMapping> mapping)
      : mapping_(std::move(mapping)) {}
  std::span<std::byte> bytes() override { return mapping_->bytes(); }
  bool is_lost() const override { return mapping_->is_lost(); }

 private:
  const std::unique_ptr<GuardedMapping> mapping_;
};

// Whether what is written into blocks that a file has needs no further space.
bool writes_in_place(const Descriptor& fd) {
  struct statfs about {};
  if (fstatfs(fd.get(), &about) != 0) return false;
  // Signed on some machines.
  switch (static_cast<std::uint32_t>(about.f_type)) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:  // of containers, over one of the others
      return true;
    default:
      return false;
  }
}

// What lock() has written into a file: a process's number, or zeros after a power cut.
bool is_holder(std::string_view text) {
  return text.size() <= kHolderBytesMax &&
         std::ranges::all_of(text, [](char c) { return c == '\0' || (c >= '0' && c <= '9'); });
}

// A forked child has the descriptor too, so closing it here would not end the lock, which belongs
// to the process that took it.
class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(Descriptor fd) : fd_(std::move(fd)) {}
  ~PosixFileLock() override {
    if (fork_guard_.check("lock").ok()) (void)flock(fd_.get(), LOCK_UN);
  }

 private:
  const Descriptor fd_;
  const ForkGuard fork_guard_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> create(const std::string& path) override {
    REVERIE_ASSIGN_OR_RETURN(Descriptor fd, open_path(path, O_WRONLY | O_CREAT | O_EXCL, "create"));
    return std::unique_ptr<File>(std::make_unique<PosixFile>(std::move(fd), path, 0));
  }
  Result<std::unique_ptr<File>> open_to_append(const std::string& path) override {
    REVERIE_ASSIGN_OR_RETURN(Descriptor fd, open_path(path, O_WRONLY | kNoWait, "open"));
    REVERIE_ASSIGN_OR_RETURN(const std::uint64_t size, size_of(fd, path));
    return std::unique_ptr<File>(std::make_unique<PosixFile>(std::move(fd), path, size));
  }
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    REVERIE_ASSIGN_OR_RETURN(Descriptor fd, open_path(path, O_RDONLY | kNoWait, "open"));
    REVERIE_ASSIGN_OR_RETURN(const std::uint64_t size, size_of(fd, path));
    return std::unique_ptr<ReadableFile>(
        std::make_unique<PosixReadableFile>(std::move(fd), path, size));
  }
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override {
    REVERIE_ASSIGN_OR_RETURN(const Descriptor fd, open_path(path, O_RDONLY | kNoWait, "open"));
    REVERIE_ASSIGN_OR_RETURN(const std::uint64_t size, size_of(fd, path));
    void* at = nullptr;
    if (size > 0) {
      at = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
      if (at == MAP_FAILED) return error_of(errno, "map", path);
    }
    return std::unique_ptr<MappedFile>(std::make_unique<PosixMappedFile>(at, size));
  }

  Result<std::unique_ptr<SharedFile>> create_shared(const std::string& path,
                                                    std::uint64_t size_bytes) override {
    REVERIE_ASSIGN_OR_RETURN(const Descriptor fd,
                             open_path(path, O_RDWR | O_CREAT | O_EXCL, "create"));
    if (auto mapping = map_shared(fd, size_bytes)) {
      return std::unique_ptr<SharedFile>(std::make_unique<PosixSharedFile>(std::move(mapping)));
    }
    Status status = error_of(errno, "take the space of", path);
    (void)unlink(path.c_str());
    return status;
  }

  Result<PathKind> kind(const std::string& path) override {
    REVERIE_RETURN_IF_ERROR(check_path(path));
    struct stat about {};
    if (stat(path.c_str(), &about) != 0) {
      // A path through a file does not exist.
      if (errno == ENOENT || errno == ENOTDIR) return PathKind::kNothing;
      return error_of(errno, "look at", path);
    }
    if (S_ISREG(about.st_mode)) return PathKind::kFile;
    return S_ISDIR(about.st_mode) ? PathKind::kFolder : PathKind::kOther;
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    REVERIE_RETURN_IF_ERROR(check_path(folder));
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) return error_of(error.value(), "list", folder);
    std::sort(names.begin(), names.end());
    return names;
  }

  Status create_folder(const std::string& path) override {
    REVERIE_RETURN_IF_ERROR(check_path(path));
    return mkdir(path.c_str(), 0777) == 0 ? Status() : error_of(errno, "make the folder", path);
  }
  Status link(const std::string& file, const std::string& second_name) override {
    REVERIE_RETURN_IF_ERROR(check_path(file));
    REVERIE_RETURN_IF_ERROR(check_path(second_name));
    if (::link(file.c_str(), second_name.c_str()) == 0) return {};
    // The errors of file systems without hard links, and of those that refuse them to other users.
    if (errno == EPERM || errno == EXDEV) errno = EOPNOTSUPP;
    return error_of(errno, "give a second name to", file);
  }
  Status remove_file(const std::string& path) override {
    REVERIE_RETURN_IF_ERROR(check_path(path));
    return unlink(path.c_str()) == 0 ? Status() : error_of(errno, "remove", path);
  }
  Status remove_folder(const std::string& path) override {
    REVERIE_RETURN_IF_ERROR(check_path(path));
    return rmdir(path.c_str()) == 0 ? Status() : error_of(errno, "remove the folder", path);
  }
  Status sync_folder(const std::string& path) override {
    REVERIE_ASSIGN_OR_RETURN(const Descriptor fd,
                             open_path(path, O_RDONLY | O_DIRECTORY, "open the folder"));
    return fsync(fd.get()) == 0 ? Status() : error_of(errno, "sync the folder", path);
  }
  Status sync_file(const std::string& path) override {
    REVERIE_ASSIGN_OR_RETURN(const Descriptor fd, open_path(path, O_RDONLY | kNoWait, "open"));
    return fdatasync(fd.get()) == 0 ? Status() : error_of(errno, "sync", path);
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    auto opened = open_path(path, O_RDWR | O_CREAT | O_NOFOLLOW | kNoWait, "lock");
    if (!opened.ok()) return is_link(path) ? foreign_lock(path, "a link") : opened.status();
    const Descriptor& fd = *opened;
    REVERIE_RETURN_IF_ERROR(size_of(fd, path).status());
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return error_of(errno, "lock", path);
      const std::string holder = holder_in(fd);
      return failed_precondition(
          "'{}' is locked by {}; end that one first, or use another folder", path,
          holder.empty() || !is_holder(holder) ? "another process" : "process " + holder);
    }
    if (!is_holder(holder_in(fd))) return foreign_lock(path, "a file of another program");
    const std::string pid = format("{}", getpid());
    // For information: it does not matter if this fails.
    if (ftruncate(fd.get(), 0) == 0) (void)!pwrite(fd.get(), pid.data(), pid.size(), 0);
    return std::unique_ptr<FileLock>(std::make_unique<PosixFileLock>(std::move(*opened)));
  }

 private:
  static bool is_link(const std::string& path) {
    struct stat about {};
    return lstat(path.c_str(), &about) == 0 && S_ISLNK(about.st_mode);
  }
  // The beginning of the file, one byte more than a process's number may take.
  static std::string holder_in(const Descriptor& fd) {
    char text[kHolderBytesMax + 1];
    const ssize_t size = pread(fd.get(), text, sizeof(text), 0);
    return {text, size > 0 ? static_cast<std::size_t>(size) : 0};
  }
  static Status foreign_lock(const std::string& path, const char* what) {
    return failed_precondition(
        "'{}' is {}, and a store would write its lock there; remove or rename it, or use another "
        "folder",
        path, what);
  }

  // Null and errno if the space cannot be had.
  static std::unique_ptr<GuardedMapping> map_shared(const Descriptor& fd,
                                                    std::uint64_t size_bytes) {
    if (!writes_in_place(fd)) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    while (fallocate(fd.get(), 0, 0, static_cast<off_t>(size_bytes)) != 0) {
      if (errno != EINTR) return nullptr;
    }
    auto mapping = GuardedMapping::map(fd.get(), size_bytes);
    // Older kernels refuse it: then the first write into each page takes a fault.
    constexpr int kPopulateWrite = 23;
    if (mapping) (void)madvise(mapping->bytes().data(), size_bytes, kPopulateWrite);
    return mapping;
  }

  static Result<std::uint64_t> size_of(const Descriptor& fd, const std::string& path) {
    struct stat about {};
    if (fstat(fd.get(), &about) != 0) return error_of(errno, "look at", path);
    if (!S_ISREG(about.st_mode)) {
      return invalid_argument("'{}' is not a regular file; give the path of one", path);
    }
    return static_cast<std::uint64_t>(about.st_size);
  }

  Status rename(const std::string& from, const std::string& to, IfThere if_there) override {
    REVERIE_RETURN_IF_ERROR(check_path(from));
    REVERIE_RETURN_IF_ERROR(check_path(to));
    if (if_there == IfThere::kReplace) {
      return ::rename(from.c_str(), to.c_str()) == 0 ? Status() : error_of(errno, "rename to", to);
    }
    if (syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) ==
        0) {
      return {};
    }
    // Some file systems cannot refuse an existing target themselves.
    if (errno != EINVAL && errno != ENOSYS) return error_of(errno, "rename to", to);
    REVERIE_ASSIGN_OR_RETURN(const PathKind there, kind(to));
    if (there != PathKind::kNothing) return error_of(EEXIST, "rename to", to);
    return ::rename(from.c_str(), to.c_str()) == 0 ? Status() : error_of(errno, "rename to", to);
  }
};

}  // namespace

FileSystem& FileSystem::system() {
  static auto* const files = new PosixFileSystem;
  return *files;
}

}  // namespace reverie
