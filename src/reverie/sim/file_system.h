// sim::FileSystem: files in memory that fail, tear and forget, determined by a seed.
//
//     what programs see     folder { name -> node }        node: all bytes written
//     what a disk has       folder { name -> node }        node: the bytes of its last sync
//                             + changes of names             + writes since, in order
//                               since its last sync
//
// Each call has a number, from 1 on. A single call can be made to fail (an error of the device, a
// full disk), or to be the one at which the power fails: a write is then done in part, any other
// call is done or not, and every later call is refused until restart(). restart() decides, by draws
// from the seed, which unsynced writes and names the disk has: any subset, writes in any part, lost
// bytes as zeros. Synced data is always there.
//
// A sync that fails drops writes, as an operating system does: programs still read them, no later
// sync writes them, and it succeeds all the same.
//
// A sync of a file makes its bytes and size durable, not its name; a sync of a folder the names in
// it, not the bytes of the files. Today's disks promise no less, and some file systems no more.
//
// The same seed gives the same run: trace() is a hash of every call and its outcome.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/os/file_system.h"

namespace reverie::sim {

class SimFile;

// Not thread-safe. Outlives what it opens.
class FileSystem final : public reverie::FileSystem {
 public:
  explicit FileSystem(std::uint64_t seed);
  ~FileSystem() override;

  // The number of calls so far.
  std::int64_t calls() const { return calls_; }
  std::uint64_t trace() const { return trace_; }

  // Call `call` fails with `status`, without effect or, if it is a write, after a part of it.
  void fail_at(std::int64_t call, Status status);
  // Call `call` is the last one before the power fails.
  void stop_at(std::int64_t call) { stop_call_ = call; }
  // Limits the bytes in all files; RESOURCE_EXHAUSTED beyond.
  void set_disk_bytes(std::uint64_t size_bytes) { disk_bytes_ = size_bytes; }
  bool is_stopped() const { return stopped_; }
  // As stop_at() the last call: every later one is refused until restart().
  void stop();
  // What has stopped, or stops now, begins again. Locks are released. After a kill of the process
  // all that it wrote is there.
  enum class End { kPowerCut, kKill };
  void restart(End end = End::kPowerCut);

  // All files below `folder`, path and bytes, as programs see them. Not counted as a call.
  std::map<std::string, std::vector<std::byte>> content(const std::string& folder) const;
  // Damages a file: changes a byte in place, or cuts the file. Not counted as calls. Require the
  // file, and an offset in it.
  void flip(const std::string& path, std::uint64_t offset, std::byte by);
  void cut(const std::string& path, std::uint64_t size_bytes);

  Result<std::unique_ptr<File>> create(const std::string& path) override;
  Result<std::unique_ptr<File>> open_to_append(const std::string& path) override;
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override;
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  Result<std::unique_ptr<SharedFile>> create_shared(const std::string& path,
                                                    std::uint64_t size_bytes) override;
  Result<PathKind> kind(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Status create_folder(const std::string& path) override;
  Status link(const std::string& file, const std::string& second_name) override;
  Status remove_file(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  Status sync_file(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override;

 private:
  friend class SimFile;
  friend class SimReadableFile;
  friend class SimFileLock;

  struct Write {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };
  struct Node;
  struct Change {
    std::string name;
    std::shared_ptr<Node> node;  // null: the name is removed
  };
  // What one call changes in a folder: either all of it or nothing is on the disk.
  using Changes = std::vector<Change>;
  struct Node {
    bool is_folder = false;
    std::vector<std::byte> bytes;
    std::vector<std::byte> synced_bytes;
    std::vector<Write> unsynced;
    // While a program maps the file, `bytes` follow this memory.
    std::shared_ptr<std::vector<std::byte>> mapped;
    bool was_mapped = false;  // since its last sync
    std::map<std::string, std::shared_ptr<Node>> names;
    std::map<std::string, std::shared_ptr<Node>> synced_names;
    std::vector<Changes> unsynced_names;
  };

  // Counts the call. Ok, or why it must not be done; sets `is_last` if the power fails at it.
  Status begin(const char* what, const std::string& path, bool& is_last);
  // A call that `change` does completely or not at all.
  template <typename Do>
  Status whole(const char* what, const std::string& path, Do change);
  Status stopped() const;
  Status write(Node& node, const std::string& path, std::uint64_t offset,
               std::span<const std::byte> bytes);
  Status sync(Node& node, const std::string& path);
  Status rename(const std::string& from, const std::string& to, IfThere if_there) override;

  std::shared_ptr<Node> find(const std::string& path) const;
  // The folder that holds the last name of `path`, and that name.
  Result<std::shared_ptr<Node>> folder_of(const std::string& path, std::string& name) const;
  Result<std::shared_ptr<Node>> file_at(const std::string& path) const;
  void apply(Node& folder, Changes changes);
  static void put_bytes(std::vector<std::byte>& into, std::uint64_t offset,
                        std::span<const std::byte> bytes);
  // `bytes` as they are in the memory that maps them.
  static void follow_mapped(Node& node);
  // Programs that map files change them no more.
  void end_mappings(Node& node);
  // What a failed sync has not written is never written.
  void drop_unsynced(Node& node);
  void forget_sectors(Node& node);
  void forget(Node& node, std::set<const Node*>& seen);
  std::uint64_t used_bytes() const;
  void note(std::uint64_t value) { trace_ = mix64(trace_ ^ value); }

  Random random_;
  std::shared_ptr<Node> root_;
  std::set<std::string> locks_;
  std::map<std::int64_t, Status> failures_;
  std::int64_t calls_ = 0;
  std::int64_t stop_call_ = 0;
  std::uint64_t incarnation_ = 0;  // handles of an earlier life are dead
  std::uint64_t disk_bytes_ = ~std::uint64_t{0};
  std::uint64_t trace_ = 0;
  bool stopped_ = false;
};

}  // namespace reverie::sim
