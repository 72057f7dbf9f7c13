// Files and folders: what code that stores data durably needs of them.
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
//     SharedFile             nothing
//
// Only durable_rename() publishes; only it calls FileSystem::rename().
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

// A file to write. Not thread-safe. The destructor closes it without a sync.
class File {
 public:
  virtual ~File() = default;
  // Writes all of it, or returns an error, after which a part may have been written.
  virtual Status append(std::span<const std::byte> bytes) = 0;
  virtual Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Afterwards the bytes and the size are on the disk. A failed sync is never tried again, since
  // the kernel may have dropped the bytes by then: each later call gives the same error.
  virtual Status sync() = 0;
  // Waits until the disk has most of what was appended, so that a sync() afterwards is short. It
  // promises nothing else; an error is one of sync(), and final like it.
  virtual Status settle() { return {}; }
};

// A file to read. Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual std::uint64_t size_bytes() const = 0;
  // Fills `out`. DATA_LOSS if the file ends before.
  virtual Status read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

// A file's bytes in memory, read when they are touched. The file must keep its size meanwhile.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

// A file's bytes in memory, to write. What is written is in the file at once, and stays there
// however the process ends.
class SharedFile {
 public:
  virtual ~SharedFile() = default;
  virtual std::span<std::byte> bytes() = 0;
  // Whether the disk failed, or the file was cut, so that something written may not be in the file.
  virtual bool is_lost() const = 0;
};

// Held until the object is destroyed by the process that took it, or that process and its forked
// children have ended.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

enum class PathKind { kNothing, kFile, kFolder, kOther };

// What durable_rename() does if the name is taken. Only a file can be replaced.
enum class IfThere { kRefuse, kReplace };
// What durable_rename() syncs before it renames. A file that is on the disk already costs a flush
// of it all the same.
enum class Contents { kSynced, kToBeSynced };

// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Creates an empty file. ALREADY_EXISTS if the name is taken.
  virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;
  // Opens an existing file; writes go to its end.
  virtual Result<std::unique_ptr<File>> open_to_append(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  virtual Result<std::unique_ptr<MappedFile>> map(const std::string& path) = 0;
  // Creates a file of so many zeros and maps it. ALREADY_EXISTS if the name is taken; UNIMPLEMENTED
  // where the file system cannot keep the space for all of it.
  virtual Result<std::unique_ptr<SharedFile>> create_shared(const std::string& path,
                                                            std::uint64_t size_bytes) = 0;
  // Follows links. PERMISSION_DENIED where the kind cannot be found out.
  virtual Result<PathKind> kind(const std::string& path) = 0;
  // The names in a folder, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;

  virtual Status create_folder(const std::string& path) = 0;
  // Gives a file a second name. UNIMPLEMENTED if the file system has no hard links.
  virtual Status link(const std::string& file, const std::string& second_name) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  // FAILED_PRECONDITION if it is not empty.
  virtual Status remove_folder(const std::string& path) = 0;
  // Afterwards the names in the folder are on the disk.
  virtual Status sync_folder(const std::string& path) = 0;
  // Afterwards the file's bytes are on the disk, whichever process wrote them.
  virtual Status sync_file(const std::string& path) = 0;

  // Takes the lock of this name: a file that is created and not removed. FAILED_PRECONDITION when
  // it is held, by this process or another one, naming the holder where that is known; and when
  // the name is a link, or a file with other content than a lock's. Such a file is not changed.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path) = 0;

  // The machine's own.
  static FileSystem& system();

 private:
  friend Status durable_rename(FileSystem& files, const std::string& from, const std::string& to,
                               IfThere if_there, Contents contents);
  // Atomic, but not durable by itself.
  virtual Status rename(const std::string& from, const std::string& to, IfThere if_there) = 0;
};

// Publishes a file or a folder: once this returns ok, `to` and its contents survive a power cut; if
// it fails, or the power does, `to` is unchanged or published whole. Syncs the file, or the files
// of the folder and the folder, renames, and syncs the folder that `to` is in. Requires both names
// on one file system; a folder may contain files only. With kSynced the caller has synced the
// files of the folder already.
Status durable_rename(FileSystem& files, const std::string& from, const std::string& to,
                      IfThere if_there = IfThere::kRefuse,
                      Contents contents = Contents::kToBeSynced);

// Creates the folder and its parents where they are missing, durably.
Status create_folders(FileSystem& files, const std::string& path);

// join_path("a", "b") is "a/b".
std::string join_path(std::string_view folder, std::string_view name);
// "a" for "a/b" and "a/b/", "." for "b", "/" for "/b".
std::string parent_path(std::string_view path);

}  // namespace reverie
