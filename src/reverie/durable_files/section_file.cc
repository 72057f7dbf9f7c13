// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/durable_files/section_file.h"

#include <algorithm>
#include <array>

#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"

namespace reverie::checkpoint {
namespace {

// Contains a line end, which programs that treat files as text would change.
constexpr std::array<unsigned char, 8> kMagic = {'R', 'V', 'R', 'C', 'K', 'P', '\r', '\n'};

constexpr std::size_t kDigits = 10;

std::uint32_t section_crc(SectionType type, std::span<const std::byte> payload) {
  std::vector<std::byte> head;
  ByteWriter(head).u32(static_cast<std::uint32_t>(type)).u64(payload.size());
  return crc32c(payload, crc32c(head));
}

}  // namespace

std::string numbered(std::string_view prefix, std::uint64_t number) {
  return format("{}{:010}", prefix, number);
}

std::optional<std::uint64_t> number_of(std::string_view prefix, std::string_view name) {
  if (name.size() != prefix.size() + kDigits || name.substr(0, prefix.size()) != prefix) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  for (const char digit : name.substr(prefix.size())) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  return number;
}

std::vector<std::byte> file_header(FileKind kind) {
  std::vector<std::byte> header;
  ByteWriter out(header);
  out.raw(std::as_bytes(std::span(kMagic)));
  out.u32(kFormatVersion).u32(static_cast<std::uint32_t>(kind));
  return header;
}

Status check_file_header(std::span<const std::byte> bytes, FileKind kind, const std::string& path) {
  if (bytes.size() < kFileHeaderBytes) {
    return data_loss("'{}' has {} bytes; the header alone takes {}", path, bytes.size(),
                     kFileHeaderBytes);
  }
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                  [](unsigned char a, std::byte b) { return std::byte{a} == b; })) {
    return data_loss("'{}' does not begin as a file of a checkpoint does", path);
  }
  ByteReader in(bytes.subspan(kMagic.size()));
  const std::uint32_t version = in.u32();
  const std::uint32_t stated = in.u32();
  if (version != kFormatVersion) {
    return unimplemented(
        "'{}' has format version {}; this library reads version {}; use the release that wrote it, "
        "or a newer one",
        path, version, kFormatVersion);
  }
  if (stated != static_cast<std::uint32_t>(kind)) {
    return data_loss("'{}' is a file of kind {}; kind {} belongs there", path, stated,
                     static_cast<std::uint32_t>(kind));
  }
  return {};
}

Status SectionWriter::begin(FileKind kind) {
  return append(file_header(kind));
}

Status SectionWriter::add(SectionType type, std::span<const std::byte> payload) {
  std::vector<std::byte> header;
  ByteWriter(header)
      .u32(static_cast<std::uint32_t>(type))
      .u32(section_crc(type, payload))
      .u64(payload.size());
  REVERIE_RETURN_IF_ERROR(append(header));
  return append(payload);
}

Status SectionWriter::append(std::span<const std::byte> bytes) {
  REVERIE_RETURN_IF_ERROR(file_.append(bytes));
  size_bytes_ += bytes.size();
  crc_ = crc32c(bytes, crc_);
  return {};
}

Result<std::vector<Section>> read_sections(std::span<const std::byte> bytes, FileKind kind,
                                           const std::string& path) {
  REVERIE_RETURN_IF_ERROR(check_file_header(bytes, kind, path));
  std::vector<Section> sections;
  std::uint64_t offset = kFileHeaderBytes;
  while (offset < bytes.size()) {
    ByteReader in(bytes.subspan(offset));
    const auto type = static_cast<SectionType>(in.u32());
    const std::uint32_t crc = in.u32();
    const std::uint64_t size = in.u64();
    const std::span<const std::byte> payload = in.raw(size);
    if (!in.ok()) {
      return data_loss("'{}' ends inside section {}, which begins at byte {} and states {} bytes",
                       path, sections.size(), offset, size);
    }
    if (section_crc(type, payload) != crc) {
      return data_loss(
          "section {} of '{}', {} bytes from byte {} on, does not have its checksum; restore the "
          "file from a copy, or remove this checkpoint to load the one before",
          sections.size(), path, size, offset);
    }
    sections.push_back({type, payload, offset});
    offset += kSectionHeaderBytes + size;
  }
  return sections;
}

Result<std::vector<std::byte>> read_file(FileSystem& files, const std::string& path,
                                         std::uint64_t size_bytes_max) {
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.open(path));
  if (file->size_bytes() > size_bytes_max) {
    return data_loss("'{}' has {} bytes; the bound is {}", path, file->size_bytes(),
                     size_bytes_max);
  }
  std::vector<std::byte> bytes(file->size_bytes());
  REVERIE_RETURN_IF_ERROR(file->read_at(0, bytes));
  return bytes;
}

}  // namespace reverie::checkpoint
