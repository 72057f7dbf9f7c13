// Tested in tests/sim/journal_ring_test.cc.
#include "reverie/durable_files/journal_ring.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "reverie/base/check.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"
#include "reverie/durable_files/little_endian.h"
#include "reverie/durable_files/section_file.h"

namespace reverie::checkpoint {
namespace {

constexpr std::size_t kEntriesOffset = 4096;  // the second page
constexpr std::size_t kEntryBytes = 32;
constexpr std::size_t kCheckedBytes = kEntryBytes - sizeof(std::uint32_t);
// So many entries that groups of this size, small ones, need all of the ring.
constexpr std::size_t kSmallGroupBytes = 512;
constexpr std::size_t kEntriesMin = 16;
// A ring is written once this share of it is in use: so its bytes are still in the cache.
constexpr std::size_t kDueShare = 16;
// A ring has some MiB.
constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;

struct Entry {
  std::uint64_t first = 0;  // record
  std::uint64_t file = 0;
  std::uint32_t offset = 0;  // among the groups
  std::uint32_t size_bytes = 0;
  std::uint32_t group_crc = 0;
};

void write_entry(const Entry& entry, std::span<std::byte> into) {
  std::byte* at = put_number(into.data(), entry.first);
  at = put_number(at, entry.file);
  at = put_number(at, entry.offset);
  at = put_number(at, entry.size_bytes);
  at = put_number(at, entry.group_crc);
  put_number(at, crc32c(into.first(kCheckedBytes)));
}

// Whether it is one that was written whole.
bool read_entry(std::span<const std::byte> bytes, Entry& entry) {
  ByteReader in(bytes);
  entry.first = in.u64();
  entry.file = in.u64();
  entry.offset = in.u32();
  entry.size_bytes = in.u32();
  entry.group_crc = in.u32();
  // Zeros are no entry, whatever their checksum.
  return in.u32() == crc32c(bytes.first(kCheckedBytes)) && entry.first > 0;
}

std::string ring_path(const std::string& root) {
  return join_path(root, kRingName);
}

// The last record that the files have, at least `position`, and what the newest of them holds.
struct FilesEnd {
  std::uint64_t last = 0;
  std::uint64_t file = 0;  // the newest one; 0: none
  Status damage;           // of the newest one
  std::vector<std::byte> bytes;
  std::uint64_t good_bytes = 0;
};

Result<FilesEnd> read_end(FileSystem& files, const std::string& root, std::uint64_t position) {
  FilesEnd end;
  end.last = position;
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers, journal_files(files, root));
  for (std::size_t i = numbers.size(); i > 0; --i) {
    const std::string path = join_path(root, journal_name(numbers[i - 1]));
    const bool is_newest = i == numbers.size();
    REVERIE_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                             read_file(files, path, kJournalFileBytesMax));
    const Result<JournalFile> file = read_journal_file(bytes, is_newest, path, position + 1);
    std::uint64_t last = 0;
    if (file.ok() && !file->groups.empty()) {
      last = file->groups.back().first + file->groups.back().count - 1;
    }
    if (is_newest) {
      end.file = numbers[i - 1];
      end.damage = file.status();
      end.good_bytes = file.ok() ? file->good_bytes : 0;
      end.bytes = std::move(bytes);
    }
    if (last == 0) continue;
    end.last = std::max(end.last, last);
    break;
  }
  return end;
}

// Continues with the groups in a file that is open.
class Continued {
 public:
  Continued(FileSystem& files, std::string root) : files_(files), root_(std::move(root)) {}

  Status open(const FilesEnd& end) {
    if (end.file == 0) return {};
    number_ = end.file;
    // It is rewritten: its end may be torn, and an earlier sync of it may have failed.
    const auto good = std::span(end.bytes).first(end.good_bytes);
    REVERIE_RETURN_IF_ERROR(keep_beginning(files_, root_, path(), good));
    if (end.good_bytes <= kFileHeaderBytes) {
      --number_;  // it was removed
      return {};
    }
    REVERIE_ASSIGN_OR_RETURN(file_, files_.open_to_append(path()));
    return {};
  }
  Status append(const RingGroup& group) {
    if (group.file > number_ || !file_) {
      REVERIE_RETURN_IF_ERROR(sync());
      number_ = group.file;
      REVERIE_ASSIGN_OR_RETURN(file_, create_journal_file(files_, root_, number_));
    }
    return file_->append(group.bytes);
  }
  Status sync() { return file_ ? file_->sync() : Status(); }

 private:
  std::string path() const { return join_path(root_, journal_name(number_)); }

  FileSystem& files_;
  const std::string root_;
  std::uint64_t number_ = 0;
  std::unique_ptr<File> file_;
};

}  // namespace

Result<std::unique_ptr<JournalRing>> JournalRing::create(FileSystem& files, const std::string& root,
                                                         std::size_t group_bytes) {
  const std::size_t entry_count = std::max(kEntriesMin, group_bytes / kSmallGroupBytes);
  const std::size_t size_bytes = kEntriesOffset + entry_count * kEntryBytes + group_bytes;
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<SharedFile> file,
                           files.create_shared(ring_path(root), size_bytes));
  const std::vector<std::byte> header = file_header(FileKind::kRing);
  std::copy(header.begin(), header.end(), file->bytes().begin());
  put_number(file->bytes().data() + kFileHeaderBytes, static_cast<std::uint32_t>(entry_count));
  return std::unique_ptr<JournalRing>(new JournalRing(std::move(file), entry_count));
}

JournalRing::JournalRing(std::unique_ptr<SharedFile> file, std::size_t entry_count)
    : file_(std::move(file)),
      entries_(file_->bytes().subspan(kEntriesOffset, entry_count * kEntryBytes)),
      groups_(file_->bytes().subspan(kEntriesOffset + entries_.size())) {}

std::size_t JournalRing::place_for(std::size_t group_bytes) const {
  const std::size_t none = groups_.size();
  if (places_.empty()) return group_bytes < none ? 0 : none;
  if (places_.size() == entries_.size() / kEntryBytes) return none;
  const bool is_around = end_ <= begin_;
  if (group_bytes <= (is_around ? begin_ : groups_.size()) - end_) return end_;
  return !is_around && group_bytes <= begin_ ? 0 : none;
}

bool JournalRing::has_room(std::size_t group_bytes) const {
  return place_for(group_bytes) < groups_.size();
}

std::span<const std::byte> JournalRing::put(std::uint64_t file, const Group& group,
                                            std::span<const std::byte> bytes) {
  const std::size_t at = place_for(bytes.size());
  REVERIE_CHECK(at < groups_.size());
  if (places_.empty()) begin_ = at;
  std::memcpy(groups_.data() + at, bytes.data(), bytes.size());
  Entry entry;
  entry.first = group.first;
  entry.file = file;
  entry.offset = static_cast<std::uint32_t>(at);
  entry.size_bytes = static_cast<std::uint32_t>(bytes.size());
  entry.group_crc = ByteReader(bytes).u32();
  write_entry(entry, entries_.subspan(next_entry_ * kEntryBytes, kEntryBytes));
  next_entry_ = (next_entry_ + 1) % (entries_.size() / kEntryBytes);
  end_ = at + bytes.size();
  places_.push_back({group.first + group.count - 1, at});
  return groups_.subspan(at, bytes.size());
}

void JournalRing::release(std::uint64_t record) {
  while (!places_.empty() && places_.front().last_record <= record) places_.pop_front();
  if (!places_.empty()) begin_ = places_.front().begin;
}

void JournalRing::read_again(std::span<const std::byte> bytes) {
  constexpr std::size_t kPageBytesMin = 4096;
  const auto read = [&](std::size_t at) {
    (void)*static_cast<const volatile std::byte*>(&bytes[at]);
  };
  for (std::size_t at = 0; at < bytes.size(); at += kPageBytesMin) read(at);
  if (!bytes.empty()) read(bytes.size() - 1);
}

bool JournalRing::is_due() const {
  if (places_.empty()) return false;
  const std::size_t used = end_ > begin_ ? end_ - begin_ : groups_.size() - begin_ + end_;
  return used >= groups_.size() / kDueShare ||
         places_.size() >= entries_.size() / kEntryBytes / kDueShare;
}

std::vector<RingGroup> groups_from(std::span<const std::byte> bytes, std::uint64_t expected) {
  std::vector<RingGroup> found;
  if (bytes.size() < kEntriesOffset) return found;
  if (!check_file_header(bytes, FileKind::kRing, "").ok()) return found;
  const std::size_t entry_count = ByteReader(bytes.subspan(kFileHeaderBytes)).u32();
  if (entry_count > (bytes.size() - kEntriesOffset) / kEntryBytes) return found;
  const auto groups = bytes.subspan(kEntriesOffset + entry_count * kEntryBytes);
  std::map<std::uint64_t, Entry> entries;
  for (std::size_t i = 0; i < entry_count; ++i) {
    Entry entry;
    const auto at = bytes.subspan(kEntriesOffset + i * kEntryBytes, kEntryBytes);
    if (read_entry(at, entry) && entry.first >= expected) entries.emplace(entry.first, entry);
  }
  for (const auto& [first, entry] : entries) {
    if (first != expected) break;
    if (entry.offset > groups.size() || entry.size_bytes > groups.size() - entry.offset) break;
    const auto place = groups.subspan(entry.offset, entry.size_bytes);
    const auto group = group_at(place, 0);
    const bool is_it = group && group->first == first &&
                       group->records.size() + kGroupHeaderBytes == place.size() &&
                       ByteReader(place).u32() == entry.group_crc;
    if (!is_it) break;
    found.push_back({entry.file, *group, place});
    expected = first + group->count;
  }
  return found;
}

Result<std::vector<RingGroup>> groups_behind(FileSystem& files, const std::string& root,
                                             std::uint64_t last, std::vector<std::byte>& bytes) {
  const std::string path = ring_path(root);
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(path));
  if (kind == PathKind::kNothing) return std::vector<RingGroup>();
  REVERIE_ASSIGN_OR_RETURN(bytes, read_file(files, path, kFileBytesMax));
  if (bytes.size() >= kFileHeaderBytes) {
    const Status header = check_file_header(bytes, FileKind::kRing, path);
    if (header.code() == StatusCode::kUnimplemented) return header;
  }
  return groups_from(bytes, last + 1);
}

Result<bool> finish_journal(FileSystem& files, const std::string& root, std::uint64_t position) {
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(ring_path(root)));
  if (kind == PathKind::kNothing) return false;
  REVERIE_ASSIGN_OR_RETURN(const FilesEnd end, read_end(files, root, position));
  std::vector<std::byte> bytes;
  REVERIE_ASSIGN_OR_RETURN(const std::vector<RingGroup> missing,
                           groups_behind(files, root, end.last, bytes));
  if (missing.empty()) return false;
  Continued continued(files, root);
  if (end.damage.ok()) {
    REVERIE_RETURN_IF_ERROR(continued.open(end));
  } else if (missing.front().file <= end.file) {
    return false;
  }
  for (const RingGroup& group : missing) REVERIE_RETURN_IF_ERROR(continued.append(group));
  REVERIE_RETURN_IF_ERROR(continued.sync());
  return true;
}

Status remove_ring(FileSystem& files, const std::string& root) {
  const std::string path = ring_path(root);
  REVERIE_ASSIGN_OR_RETURN(const PathKind kind, files.kind(path));
  if (kind == PathKind::kNothing) return {};
  REVERIE_RETURN_IF_ERROR(files.remove_file(path));
  return files.sync_folder(root);
}

}  // namespace reverie::checkpoint
