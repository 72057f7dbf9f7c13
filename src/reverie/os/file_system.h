// Files and folders, as far as what must outlive the process needs them.
//
//     write into a temporary name  -->  durable_rename()  -->  seen by its name,
//                                                              whole or not at all
//
// An interface, so that a test can let each single call fail, tear what was not synced and forget
// names (sim/file_system.h). What a call promises after a power cut:
//
//     append, write_at       nothing, until File::sync() of that file
//     create, link, remove   nothing, until sync_folder() of the folder that holds the name
//     durable_rename         all of it
//
// Nothing but durable_rename() publishes: FileSystem::rename() is for it alone.
//
// Errors name the path. NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED (a read-only folder, too),
// RESOURCE_EXHAUSTED (a full disk, too many open files), INVALID_ARGUMENT (a path that is too long
// or leads through a file), DATA_LOSS (the device failed, or a file ends too early).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"

namespace reverie {

// A file that is written. Not thread-safe. Closed, without a sync, with the object.
class File {
 public:
  virtual ~File() = default;
  // All of it or an error, after which part of it may be there.
  virtual Status append(std::span<const std::byte> bytes) = 0;
  virtual Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // The bytes and the size are on the disk afterwards. A sync that failed is never tried again:
  // what had to be written may be forgotten by then. Each later call gives the same error.
  virtual Status sync() = 0;
};

// A file that is read. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual std::uint64_t size_bytes() const = 0;
  // Fills `out`. DATA_LOSS where the file ends before.
  virtual Status read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

// A file's bytes in memory, read when they are touched. The file must keep its size meanwhile.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

// Held until the object ends, or the process does.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

enum class PathKind { kNothing, kFile, kFolder, kOther };

// What durable_rename() does where the name is taken. Only a file can be replaced.
enum class IfThere { kRefuse, kReplace };

// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A new, empty file. ALREADY_EXISTS for a name that is taken.
  virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;
  // A file that is there, to be written on behind its end.
  virtual Result<std::unique_ptr<File>> open_to_append(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  virtual Result<std::unique_ptr<MappedFile>> map(const std::string& path) = 0;
  // A link is what it leads to. PERMISSION_DENIED where that cannot be told.
  virtual Result<PathKind> kind(const std::string& path) = 0;
  // The names in a folder, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;

  virtual Status create_folder(const std::string& path) = 0;
  // A second name for a file. UNIMPLEMENTED where the file system has none.
  virtual Status link(const std::string& file, const std::string& second_name) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  // FAILED_PRECONDITION unless it is empty.
  virtual Status remove_folder(const std::string& path) = 0;
  // The names in it are on the disk afterwards.
  virtual Status sync_folder(const std::string& path) = 0;
  // The same for one file's bytes, whichever process wrote them.
  virtual Status sync_file(const std::string& path) = 0;

  // Takes the lock of this name, a file that is created and stays. FAILED_PRECONDITION when it is
  // held, by this process or another one, naming the holder where that is known.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path) = 0;

  // The machine's own.
  static FileSystem& system();

 private:
  friend Status durable_rename(FileSystem& files, const std::string& from, const std::string& to,
                               IfThere if_there);
  // Atomic; not durable by itself.
  virtual Status rename(const std::string& from, const std::string& to, IfThere if_there) = 0;
};

// Publishes a file or a folder: once this returns ok, `to` is there after a power cut, with all
// that is in it; if it fails, or the power does, `to` is what it was, or published whole. Syncs the
// file, or the files of the folder and the folder, renames, and syncs the folder that `to` is in.
// Requires both names on one file system, and folders of files alone.
Status durable_rename(FileSystem& files, const std::string& from, const std::string& to,
                      IfThere if_there = IfThere::kRefuse);

// Makes the folder and those that it is in, as far as they are missing, durably.
Status create_folders(FileSystem& files, const std::string& path);

// "a/b" of "a" and "b".
std::string join_path(std::string_view folder, std::string_view name);
// "a" of "a/b" and of "a/b/", "." of "b", "/" of "/b".
std::string parent_path(std::string_view path);

}  // namespace reverie
