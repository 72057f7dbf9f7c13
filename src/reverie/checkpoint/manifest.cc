// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/checkpoint/manifest.h"

#include "reverie/checkpoint/folder.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/durable_files/section_file.h"

namespace reverie::checkpoint {
namespace {

constexpr std::uint64_t kManifestBytesMax = kPayloadBytesMax + (std::uint64_t{1} << 20);

}  // namespace

Status write_manifest(FileSystem& files, const std::string& path, const Manifest& manifest) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.u64(manifest.number).i64(manifest.created_ns);
  out.u32(static_cast<std::uint32_t>(manifest.files.size()));
  for (const ManifestFile& file : manifest.files) {
    out.text(file.name).u64(file.size_bytes).u32(file.crc);
  }
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.create(path));
  SectionWriter sections(*file);
  REVERIE_RETURN_IF_ERROR(sections.begin(FileKind::kManifest));
  REVERIE_RETURN_IF_ERROR(sections.add(SectionType::kManifest, bytes));
  REVERIE_RETURN_IF_ERROR(sections.add(SectionType::kUserPayload, manifest.payload));
  return file->sync();
}

Result<Manifest> read_manifest(FileSystem& files, const std::string& path) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                           read_file(files, path, kManifestBytesMax));
  REVERIE_ASSIGN_OR_RETURN(const std::vector<Section> sections,
                           read_sections(bytes, FileKind::kManifest, path));
  if (sections.size() != 2 || sections[0].type != SectionType::kManifest ||
      sections[1].type != SectionType::kUserPayload) {
    return data_loss("'{}' has {} sections; it must have two, of types 1 and 2", path,
                     sections.size());
  }
  Manifest manifest;
  ByteReader in(sections[0].payload);
  manifest.number = in.u64();
  manifest.created_ns = in.i64();
  const std::size_t count = in.count32(16);
  for (std::size_t i = 0; i < count; ++i) {
    ManifestFile& file = manifest.files.emplace_back();
    file.name = in.text();
    file.size_bytes = in.u64();
    file.crc = in.u32();
    // Other names are refused, so that no name leads out of the folder.
    const bool is_right = i == 0 ? file.name == kTablesName : chunks_number(file.name).has_value();
    if (in.ok() && !is_right) {
      return data_loss("file {} of '{}' is named '{}'; no checkpoint has a file of that name", i,
                       path, file.name);
    }
  }
  if (!in.is_done() || manifest.files.empty()) {
    return data_loss("section 0 of '{}' is malformed", path);
  }
  manifest.payload.assign(sections[1].payload.begin(), sections[1].payload.end());
  return manifest;
}

}  // namespace reverie::checkpoint
