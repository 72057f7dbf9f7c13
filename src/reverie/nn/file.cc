// Tested in mlp_file_test.cc.
#include "reverie/nn/file.h"

#include <memory>

#include "reverie/base/random.h"
#include "reverie/os/file_system.h"

namespace reverie::nn {

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  FileSystem& files = FileSystem::system();
  const std::string temporary = format("{}.{:016x}.part", path, random_seed());
  const auto write = [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.create(temporary));
    return file->append(bytes);
  };
  Status status = write();
  if (status.ok()) status = durable_rename(files, temporary, path, IfThere::kReplace);
  if (status.ok()) return {};
  (void)files.remove_file(temporary);  // which may not exist
  return status.with_context(format("'{}' cannot be written", path));
}

Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t size_bytes_max) {
  FileSystem& files = FileSystem::system();
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(path));
  if (kind == PathKind::kFolder || kind == PathKind::kOther) {
    return invalid_argument("'{}' is {}; give a file", path,
                            kind == PathKind::kFolder ? "a folder" : "no plain file");
  }
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.open(path));
  const std::uint64_t size = file->size_bytes();
  if (size > size_bytes_max) {
    return resource_exhausted("'{}' has {} bytes; at most {} are read", path, size, size_bytes_max);
  }
  std::vector<std::byte> bytes(size);
  REVERIE_RETURN_IF_ERROR(file->read_at(0, bytes));
  return bytes;
}

}  // namespace reverie::nn
