// A file system that calls hooks: right before a file is synced by name, before a folder is
// created, which is how each checkpoint begins, before a file is opened to be read or is removed,
// and before bytes are appended to a new file. An error of a hook is that of the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/os/file_system.h"

namespace reverie::testing {

// A file that calls a hook before each append, on the thread that appends.
class HookedFile final : public File {
 public:
  using Hook = std::function<Status(std::size_t size_bytes)>;
  HookedFile(std::unique_ptr<File> inner, const Hook& hook)
      : inner_(std::move(inner)), hook_(hook) {}

  Status append(std::span<const std::byte> bytes) override {
    REVERIE_RETURN_IF_ERROR(hook_(bytes.size()));
    return inner_->append(bytes);
  }
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    return inner_->write_at(offset, bytes);
  }
  Status sync() override { return inner_->sync(); }
  Status settle() override { return inner_->settle(); }

 private:
  const std::unique_ptr<File> inner_;
  const Hook& hook_;
};

// Not thread-safe itself: hooks are set while no other thread uses it.
class HookedFileSystem final : public FileSystem {
 public:
  explicit HookedFileSystem(FileSystem& inner) : inner_(inner) {}

  std::function<void()> before_sync_file;  // is called once
  std::function<Status()> before_create_folder;
  std::function<Status(const std::string& path)> before_remove_file;
  std::function<void()> before_open;  // of a file to read
  HookedFile::Hook before_append;     // of files that are created while it is set

  Result<std::unique_ptr<File>> create(const std::string& path) override {
    auto file = inner_.create(path);
    if (!file.ok() || !before_append) return file;
    return std::unique_ptr<File>(std::make_unique<HookedFile>(std::move(*file), before_append));
  }
  Result<std::unique_ptr<File>> open_to_append(const std::string& path) override {
    return inner_.open_to_append(path);
  }
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    if (before_open) before_open();
    return inner_.open(path);
  }
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override {
    return inner_.map(path);
  }
  Result<std::unique_ptr<SharedFile>> create_shared(const std::string& path,
                                                    std::uint64_t size_bytes) override {
    return inner_.create_shared(path, size_bytes);
  }
  Result<PathKind> kind(const std::string& path) override { return inner_.kind(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    return inner_.list(folder);
  }
  Status create_folder(const std::string& path) override {
    if (before_create_folder) REVERIE_RETURN_IF_ERROR(before_create_folder());
    return inner_.create_folder(path);
  }
  Status link(const std::string& file, const std::string& second_name) override {
    return inner_.link(file, second_name);
  }
  Status remove_file(const std::string& path) override {
    if (before_remove_file) REVERIE_RETURN_IF_ERROR(before_remove_file(path));
    return inner_.remove_file(path);
  }
  Status remove_folder(const std::string& path) override { return inner_.remove_folder(path); }
  Status sync_folder(const std::string& path) override { return inner_.sync_folder(path); }
  Status sync_file(const std::string& path) override {
    if (before_sync_file) std::exchange(before_sync_file, nullptr)();
    return inner_.sync_file(path);
  }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    return inner_.lock(path);
  }

 private:
  Status rename(const std::string& from, const std::string& to, IfThere if_there) override {
    return durable_rename(inner_, from, to, if_there);
  }

  FileSystem& inner_;
};

}  // namespace reverie::testing
