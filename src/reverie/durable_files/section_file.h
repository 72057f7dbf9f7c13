// SectionFile: a file of sections, each with its checksum.
//
//     | magic, 8 bytes | version u32 | kind u32 |
//     | type u32 | crc u32 | size u64 | payload |   section after section
//
// The checksum is CRC32C over type, size and payload. See docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::size_t kFileHeaderBytes = 16;
inline constexpr std::size_t kSectionHeaderBytes = 16;

enum class FileKind : std::uint32_t {
  kManifest = 1,
  kTables = 2,
  kChunks = 3,
  kJournal = 4,
  kRing = 5
};

enum class SectionType : std::uint32_t {
  kManifest = 1,
  kUserPayload = 2,
  kTable = 16,
  kItems = 17,
  kSampler = 18,
  kRemover = 19,
  kSchemas = 32,
  kLayouts = 33,
  kChunks = 34,
  kJournal = 48,
};

// A name that is `prefix` and ten digits, and the number of one; none for any other.
std::string numbered(std::string_view prefix, std::uint64_t number);
std::optional<std::uint64_t> number_of(std::string_view prefix, std::string_view name);

// The header that such a file begins with.
std::vector<std::byte> file_header(FileKind kind);
// Ok for the header of a file of this kind and version. DATA_LOSS for a malformed header;
// UNIMPLEMENTED for a version that this library does not know.
Status check_file_header(std::span<const std::byte> bytes, FileKind kind, const std::string& path);

// Not thread-safe.
class SectionWriter {
 public:
  // Writes to `file`, from its start; it outlives this object.
  explicit SectionWriter(File& file) : file_(file) {}
  Status begin(FileKind kind);
  Status add(SectionType type, std::span<const std::byte> payload);
  std::uint64_t size_bytes() const { return size_bytes_; }
  // The checksum of all bytes so far.
  std::uint32_t crc() const { return crc_; }

 private:
  Status append(std::span<const std::byte> bytes);

  File& file_;
  std::uint64_t size_bytes_ = 0;
  std::uint32_t crc_ = 0;
};

struct Section {
  SectionType type;
  std::span<const std::byte> payload;
  std::uint64_t offset;  // of its header, for messages
};

// All sections of a file, which view its bytes; their checksums are verified. DATA_LOSS names the
// file, the section and its offset.
Result<std::vector<Section>> read_sections(std::span<const std::byte> bytes, FileKind kind,
                                           const std::string& path);

// Reads a whole file. DATA_LOSS if it has more than `size_bytes_max`.
Result<std::vector<std::byte>> read_file(FileSystem& files, const std::string& path,
                                         std::uint64_t size_bytes_max);

}  // namespace reverie::checkpoint
