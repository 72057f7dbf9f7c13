// The second source of file_system.h: what is left when a program or the power ends.
//
// Tested in file_system_test.cc.
#include <algorithm>

#include "reverie/sim/file_system.h"

namespace reverie::sim {
namespace {

constexpr std::size_t kSectorBytes = 512;

}  // namespace

void FileSystem::put_bytes(std::vector<std::byte>& into, std::uint64_t offset,
                           std::span<const std::byte> bytes) {
  if (into.size() < offset + bytes.size()) into.resize(offset + bytes.size());
  std::copy(bytes.begin(), bytes.end(), into.begin() + static_cast<std::ptrdiff_t>(offset));
}

void FileSystem::follow_mapped(Node& node) {
  if (node.mapped) node.bytes = *node.mapped;
}

void FileSystem::end_mappings(Node& node) {
  follow_mapped(node);
  node.mapped.reset();
  for (const auto& [name, inside] : node.names) end_mappings(*inside);
}

void FileSystem::drop_unsynced(Node& node) {
  for (const Write& write : node.unsynced) {
    if (random_.below(2) == 0) put_bytes(node.synced_bytes, write.offset, write.bytes);
  }
  node.unsynced.clear();
}

void FileSystem::forget_sectors(Node& node) {
  node.synced_bytes.resize(node.bytes.size());
  for (std::size_t at = 0; at < node.bytes.size(); at += kSectorBytes) {
    const std::size_t size = std::min(kSectorBytes, node.bytes.size() - at);
    const std::span<const std::byte> sector = std::span(node.bytes).subspan(at, size);
    if (random_.below(2) == 0) put_bytes(node.synced_bytes, at, sector);
  }
  node.was_mapped = false;
}

void FileSystem::forget(Node& node, std::set<const Node*>& seen) {
  if (!seen.insert(&node).second) return;
  if (!node.is_folder) {
    if (node.was_mapped) forget_sectors(node);
    for (Write& write : node.unsynced) {
      // Lost, there, there in part, or as zeros.
      switch (random_.below(4)) {
        case 0:
          continue;
        case 1:
          break;
        case 2:
          write.bytes.resize(random_.below(write.bytes.size() + 1));
          break;
        default:
          std::fill(write.bytes.begin(), write.bytes.end(), std::byte{0});
      }
      put_bytes(node.synced_bytes, write.offset, write.bytes);
    }
    node.unsynced.clear();
    node.bytes = node.synced_bytes;
    return;
  }
  for (const Changes& changes : node.unsynced_names) {
    if (random_.below(2) == 0) continue;
    for (const Change& change : changes) {
      if (change.node) {
        node.synced_names[change.name] = change.node;
      } else {
        node.synced_names.erase(change.name);
      }
    }
  }
  node.unsynced_names.clear();
  node.names = node.synced_names;
  for (const auto& [name, inside] : node.names) forget(*inside, seen);
}

void FileSystem::stop() {
  stopped_ = true;
  end_mappings(*root_);
}

void FileSystem::restart(End end) {
  end_mappings(*root_);
  if (end == End::kPowerCut) {
    std::set<const Node*> seen;
    forget(*root_, seen);
  }
  locks_.clear();
  failures_.clear();
  stop_call_ = 0;
  stopped_ = false;
  ++incarnation_;
  note(incarnation_);
}

std::map<std::string, std::vector<std::byte>> FileSystem::content(const std::string& folder) const {
  std::map<std::string, std::vector<std::byte>> files;
  const std::shared_ptr<Node> node = find(folder);
  if (node == nullptr) return files;
  follow_mapped(*node);
  if (!node->is_folder) return {{folder, node->bytes}};
  for (const auto& [name, inside] : node->names) {
    files.merge(content(join_path(folder, name)));
  }
  return files;
}

void FileSystem::flip(const std::string& path, std::uint64_t offset, std::byte by) {
  const std::shared_ptr<Node> node = find(path);
  REVERIE_CHECK(node != nullptr && offset < node->bytes.size());
  end_mappings(*node);
  node->bytes[offset] ^= by;
  node->synced_bytes = node->bytes;
  node->unsynced.clear();
}

void FileSystem::cut(const std::string& path, std::uint64_t size_bytes) {
  const std::shared_ptr<Node> node = find(path);
  REVERIE_CHECK(node != nullptr && size_bytes <= node->bytes.size());
  end_mappings(*node);
  node->bytes.resize(size_bytes);
  node->synced_bytes = node->bytes;
  node->unsynced.clear();
}

}  // namespace reverie::sim
