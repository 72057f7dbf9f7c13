#include "reverie/sim/file_system.h"

#include <algorithm>
#include <utility>

namespace reverie::sim {
namespace {

// "a", "b" of "/a//b/".
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : path + "/") {
    if (c != '/') {
      part += c;
    } else if (!part.empty()) {
      if (part != ".") parts.push_back(part);
      part.clear();
    }
  }
  return parts;
}

}  // namespace

class SimFile final : public File {
 public:
  SimFile(FileSystem& files, std::shared_ptr<FileSystem::Node> node, std::string path)
      : files_(files),
        node_(std::move(node)),
        path_(std::move(path)),
        incarnation_(files.incarnation_) {}
  Status append(std::span<const std::byte> bytes) override {
    return write_at(node_->bytes.size(), bytes);
  }
  Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    REVERIE_RETURN_IF_ERROR(check());
    return files_.write(*node_, path_, offset, bytes);
  }
  Status sync() override {
    REVERIE_RETURN_IF_ERROR(check());
    failed_ = files_.sync(*node_, path_);
    return failed_;
  }

 private:
  Status check() const {
    if (!failed_.ok()) return failed_;
    return incarnation_ == files_.incarnation_ ? Status() : files_.stopped();
  }

  FileSystem& files_;
  const std::shared_ptr<FileSystem::Node> node_;
  const std::string path_;
  const std::uint64_t incarnation_;
  Status failed_;
};

class SimReadableFile final : public ReadableFile {
 public:
  SimReadableFile(FileSystem& files, std::shared_ptr<FileSystem::Node> node, std::string path)
      : files_(files), node_(std::move(node)), path_(std::move(path)) {}
  std::uint64_t size_bytes() const override { return node_->bytes.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    bool is_last = false;
    REVERIE_RETURN_IF_ERROR(files_.begin("read", path_, is_last));
    if (is_last) return files_.stopped();
    FileSystem::follow_mapped(*node_);
    const std::uint64_t size = node_->bytes.size();
    if (offset > size || out.size() > size - offset) {
      return data_loss("'{}' ends at byte {}; {} more are wanted at byte {}", path_, size,
                       out.size(), offset);
    }
    std::copy_n(node_->bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(),
                out.begin());
    return {};
  }

 private:
  FileSystem& files_;
  const std::shared_ptr<FileSystem::Node> node_;
  const std::string path_;
};

class SimMappedFile final : public MappedFile {
 public:
  explicit SimMappedFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override { return bytes_; }

 private:
  const std::vector<std::byte> bytes_;
};

class SimSharedFile final : public SharedFile {
 public:
  explicit SimSharedFile(std::shared_ptr<std::vector<std::byte>> memory)
      : memory_(std::move(memory)) {}
  std::span<std::byte> bytes() override { return *memory_; }
  bool is_lost() const override { return false; }

 private:
  const std::shared_ptr<std::vector<std::byte>> memory_;
};

class SimFileLock final : public FileLock {
 public:
  SimFileLock(FileSystem& files, std::string path)
      : files_(files), path_(std::move(path)), incarnation_(files.incarnation_) {}
  ~SimFileLock() override {
    if (incarnation_ == files_.incarnation_) files_.locks_.erase(path_);
  }

 private:
  FileSystem& files_;
  const std::string path_;
  const std::uint64_t incarnation_;
};

FileSystem::FileSystem(std::uint64_t seed) : random_(seed), root_(std::make_shared<Node>()) {
  root_->is_folder = true;
}

FileSystem::~FileSystem() = default;

void FileSystem::fail_at(std::int64_t call, Status status) {
  failures_[call] = std::move(status);
}

Status FileSystem::stopped() const {
  return unavailable("the power went at call {}", stop_call_);
}

Status FileSystem::begin(const char* what, const std::string& path, bool& is_last) {
  if (stopped_) return stopped();
  ++calls_;
  for (const char* c = what; *c != 0; ++c) note(static_cast<std::uint64_t>(*c));
  for (const char c : path) note(static_cast<unsigned char>(c));
  const auto failure = failures_.find(calls_);
  if (failure != failures_.end()) {
    note(1);
    return failure->second.with_context(format("call {}, {} '{}'", calls_, what, path));
  }
  is_last = calls_ == stop_call_;
  stopped_ = is_last;
  if (stopped_) end_mappings(*root_);
  return {};
}

template <typename Do>
Status FileSystem::whole(const char* what, const std::string& path, Do change) {
  bool is_last = false;
  REVERIE_RETURN_IF_ERROR(begin(what, path, is_last));
  if (!is_last) return change();
  if (random_.below(2) == 0) (void)change();
  return stopped();
}

std::shared_ptr<FileSystem::Node> FileSystem::find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (const std::string& part : parts_of(path)) {
    if (!node->is_folder) return nullptr;
    const auto next = node->names.find(part);
    if (next == node->names.end()) return nullptr;
    node = next->second;
  }
  return node;
}

Result<std::shared_ptr<FileSystem::Node>> FileSystem::folder_of(const std::string& path,
                                                                std::string& name) const {
  const std::vector<std::string> parts = parts_of(path);
  if (parts.empty()) return invalid_argument("'{}' names no file", path);
  name = parts.back();
  std::string folder;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) folder += "/" + parts[i];
  std::shared_ptr<Node> node = find(folder);
  if (node == nullptr) return not_found("'{}' is in no folder that is there", path);
  if (!node->is_folder) return invalid_argument("'{}' leads through a file", path);
  return node;
}

Result<std::shared_ptr<FileSystem::Node>> FileSystem::file_at(const std::string& path) const {
  std::shared_ptr<Node> node = find(path);
  if (node == nullptr) return not_found("'{}' is not there", path);
  if (node->is_folder) return invalid_argument("'{}' is not a regular file", path);
  follow_mapped(*node);
  return node;
}

void FileSystem::apply(Node& folder, Changes changes) {
  for (const Change& change : changes) {
    if (change.node) {
      folder.names[change.name] = change.node;
    } else {
      folder.names.erase(change.name);
    }
  }
  folder.unsynced_names.push_back(std::move(changes));
}

std::uint64_t FileSystem::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [path, content_bytes] : content("/")) bytes += content_bytes.size();
  return bytes;
}

Status FileSystem::write(Node& node, const std::string& path, std::uint64_t offset,
                         std::span<const std::byte> bytes) {
  bool is_last = false;
  Status status = begin("write", path, is_last);
  if (status.ok() && is_last) status = stopped();
  if (status.ok() && disk_bytes_ != ~std::uint64_t{0}) {
    const std::uint64_t end = std::max<std::uint64_t>(node.bytes.size(), offset + bytes.size());
    if (used_bytes() - node.bytes.size() + end > disk_bytes_) {
      status = resource_exhausted("cannot write '{}': no space is left; free some space", path);
    }
  }
  // What fails in the middle is done in part.
  if (!status.ok()) bytes = bytes.first(random_.below(bytes.size() + 1));
  if (!bytes.empty() && !(disk_bytes_ != ~std::uint64_t{0} && !status.ok())) {
    put_bytes(node.bytes, offset, bytes);
    node.unsynced.push_back({offset, {bytes.begin(), bytes.end()}});
  }
  return status;
}

Status FileSystem::sync(Node& node, const std::string& path) {
  Status status = whole("sync", path, [&] {
    follow_mapped(node);
    if (node.was_mapped) node.synced_bytes = node.bytes;
    for (const Write& write : node.unsynced) {
      put_bytes(node.synced_bytes, write.offset, write.bytes);
    }
    node.unsynced.clear();
    node.was_mapped = node.mapped != nullptr;
    return Status();
  });
  if (!status.ok() && !stopped_) drop_unsynced(node);
  return status;
}

Result<std::unique_ptr<File>> FileSystem::create(const std::string& path) {
  std::shared_ptr<Node> node;
  REVERIE_RETURN_IF_ERROR(whole("create", path, [&]() -> Status {
    std::string name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, folder_of(path, name));
    if (folder->names.contains(name)) return already_exists("'{}' is there already", path);
    node = std::make_shared<Node>();
    apply(*folder, {{name, node}});
    return {};
  }));
  return std::unique_ptr<File>(std::make_unique<SimFile>(*this, std::move(node), path));
}

Result<std::unique_ptr<File>> FileSystem::open_to_append(const std::string& path) {
  std::shared_ptr<Node> node;
  REVERIE_RETURN_IF_ERROR(whole("open", path, [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(node, file_at(path));
    return {};
  }));
  return std::unique_ptr<File>(std::make_unique<SimFile>(*this, std::move(node), path));
}

Result<std::unique_ptr<ReadableFile>> FileSystem::open(const std::string& path) {
  std::shared_ptr<Node> node;
  REVERIE_RETURN_IF_ERROR(whole("open", path, [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(node, file_at(path));
    return {};
  }));
  return std::unique_ptr<ReadableFile>(
      std::make_unique<SimReadableFile>(*this, std::move(node), path));
}

Result<std::unique_ptr<MappedFile>> FileSystem::map(const std::string& path) {
  std::shared_ptr<Node> node;
  REVERIE_RETURN_IF_ERROR(whole("map", path, [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(node, file_at(path));
    return {};
  }));
  return std::unique_ptr<MappedFile>(std::make_unique<SimMappedFile>(node->bytes));
}

Result<std::unique_ptr<SharedFile>> FileSystem::create_shared(const std::string& path,
                                                              std::uint64_t size_bytes) {
  std::shared_ptr<std::vector<std::byte>> memory;
  REVERIE_RETURN_IF_ERROR(whole("create shared", path, [&]() -> Status {
    std::string name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, folder_of(path, name));
    if (folder->names.contains(name)) return already_exists("'{}' is there already", path);
    if (disk_bytes_ != ~std::uint64_t{0} && used_bytes() + size_bytes > disk_bytes_) {
      return resource_exhausted("cannot write '{}': no space is left; free some space", path);
    }
    auto node = std::make_shared<Node>();
    node->bytes.resize(size_bytes);
    node->mapped = memory = std::make_shared<std::vector<std::byte>>(size_bytes);
    node->was_mapped = true;
    apply(*folder, {{name, std::move(node)}});
    return {};
  }));
  return std::unique_ptr<SharedFile>(std::make_unique<SimSharedFile>(std::move(memory)));
}

Result<PathKind> FileSystem::kind(const std::string& path) {
  PathKind kind = PathKind::kNothing;
  REVERIE_RETURN_IF_ERROR(whole("look at", path, [&] {
    if (const std::shared_ptr<Node> node = find(path)) {
      kind = node->is_folder ? PathKind::kFolder : PathKind::kFile;
    }
    return Status();
  }));
  return kind;
}

Result<std::vector<std::string>> FileSystem::list(const std::string& folder) {
  std::vector<std::string> names;
  REVERIE_RETURN_IF_ERROR(whole("list", folder, [&]() -> Status {
    const std::shared_ptr<Node> node = find(folder);
    if (node == nullptr) return not_found("folder '{}' is not there", folder);
    if (!node->is_folder) return invalid_argument("'{}' is not a folder", folder);
    for (const auto& [name, inside] : node->names) names.push_back(name);
    return {};
  }));
  return names;
}

Status FileSystem::create_folder(const std::string& path) {
  return whole("make folder", path, [&]() -> Status {
    std::string name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, folder_of(path, name));
    if (folder->names.contains(name)) return already_exists("'{}' is there already", path);
    auto node = std::make_shared<Node>();
    node->is_folder = true;
    apply(*folder, {{name, std::move(node)}});
    return {};
  });
}

Status FileSystem::link(const std::string& file, const std::string& second_name) {
  return whole("link", second_name, [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<Node> node, file_at(file));
    std::string name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, folder_of(second_name, name));
    if (folder->names.contains(name)) return already_exists("'{}' is there already", second_name);
    apply(*folder, {{name, std::move(node)}});
    return {};
  });
}

Status FileSystem::remove_file(const std::string& path) {
  return whole("remove", path, [&]() -> Status {
    REVERIE_RETURN_IF_ERROR(file_at(path).status());
    std::string name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, folder_of(path, name));
    apply(*folder, {{name, nullptr}});
    return {};
  });
}

Status FileSystem::remove_folder(const std::string& path) {
  return whole("remove folder", path, [&]() -> Status {
    const std::shared_ptr<Node> node = find(path);
    if (node == nullptr) return not_found("folder '{}' is not there", path);
    if (!node->is_folder) return invalid_argument("'{}' is not a folder", path);
    if (!node->names.empty()) return failed_precondition("folder '{}' is not empty", path);
    std::string name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, folder_of(path, name));
    apply(*folder, {{name, nullptr}});
    return {};
  });
}

Status FileSystem::sync_folder(const std::string& path) {
  return whole("sync folder", path, [&]() -> Status {
    const std::shared_ptr<Node> node = find(path);
    if (node == nullptr) return not_found("folder '{}' is not there", path);
    if (!node->is_folder) return invalid_argument("'{}' is not a folder", path);
    node->synced_names = node->names;
    node->unsynced_names.clear();
    return {};
  });
}

Status FileSystem::sync_file(const std::string& path) {
  const std::shared_ptr<Node> node = find(path);
  if (node == nullptr || node->is_folder) {
    return whole("sync", path, [&] { return file_at(path).status(); });
  }
  return sync(*node, path);
}

Status FileSystem::rename(const std::string& from, const std::string& to, IfThere if_there) {
  return whole("rename", from + " to " + to, [&]() -> Status {
    const std::shared_ptr<Node> node = find(from);
    if (node == nullptr) return not_found("'{}' is not there", from);
    std::string from_name;
    std::string to_name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> from_folder, folder_of(from, from_name));
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> to_folder, folder_of(to, to_name));
    const auto there = to_folder->names.find(to_name);
    if (there != to_folder->names.end() &&
        (if_there == IfThere::kRefuse || there->second->is_folder)) {
      return already_exists("'{}' is there already", to);
    }
    if (from_folder == to_folder) {
      apply(*to_folder, {{from_name, nullptr}, {to_name, node}});
    } else {
      apply(*to_folder, {{to_name, node}});
      apply(*from_folder, {{from_name, nullptr}});
    }
    return {};
  });
}

Result<std::unique_ptr<FileLock>> FileSystem::lock(const std::string& path) {
  REVERIE_RETURN_IF_ERROR(whole("lock", path, [&]() -> Status {
    std::string name;
    REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Node> folder, folder_of(path, name));
    if (!folder->names.contains(name)) apply(*folder, {{name, std::make_shared<Node>()}});
    if (!locks_.insert(path).second) {
      return failed_precondition(
          "'{}' is locked by another store; end that one first, or use another folder", path);
    }
    return {};
  }));
  return std::unique_ptr<FileLock>(std::make_unique<SimFileLock>(*this, path));
}

}  // namespace reverie::sim
