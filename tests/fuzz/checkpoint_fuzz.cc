// Loads any bytes as the files of a checkpoint: they are refused with a typed error, or give a
// store that can be sampled, and whose own checkpoint can be loaded and holds the same items.
//
// Input: a byte, the *way*, and then
//   way 0 to 2   one unchanged file: the manifest, `tables`, or a file of chunks
//   others       sections of `tables`, each a type u32, a size u32 and a payload; the last is cut
//                where the input ends. After a section of type 0 come the bytes of chunks. The
//                checksums are corrected, since otherwise nearly every input would be refused.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/checkpoint/table_codec.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"

namespace {

using namespace reverie;
using namespace reverie::checkpoint;

constexpr char kRoot[] = "/checkpoints";
constexpr std::size_t kDrawsMax = 20;

void require(bool holds) {
  if (!holds) std::abort();
}

using Bytes = std::span<const std::byte>;

void write(FileSystem& files, const std::string& path, Bytes bytes) {
  require(files.create(path).value()->append(bytes).ok());
}

// Corrects the checksum of each entry, which is in its last four bytes.
void mend_entries(std::vector<std::byte>& payload, Bytes chunks) {
  ByteReader count(payload);
  const std::size_t entries = count.count32(ChunkEntry::kBytes);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = sizeof(std::uint32_t) + i * ChunkEntry::kBytes;
    ByteReader in(Bytes(payload).subspan(at, ChunkEntry::kBytes));
    const ChunkEntry entry = read_entry(in);
    if (entry.offset < kFileHeaderBytes) continue;
    const std::uint64_t offset = entry.offset - kFileHeaderBytes;
    if (offset > chunks.size() || entry.size_bytes > chunks.size() - offset) continue;
    std::vector<std::byte> crc;
    ByteWriter(crc).u32(crc32c(chunks.subspan(offset, entry.size_bytes)));
    std::copy(crc.begin(), crc.end(),
              payload.begin() + static_cast<std::ptrdiff_t>(at + ChunkEntry::kBytes - crc.size()));
  }
}

// Writes a checkpoint with correct checksums.
void write_mended(FileSystem& files, const std::string& folder, Bytes input) {
  std::vector<std::pair<SectionType, std::vector<std::byte>>> sections;
  ByteReader in(input);
  while (in.left() >= 2 * sizeof(std::uint32_t)) {
    const auto type = static_cast<SectionType>(in.u32());
    const std::uint32_t size = in.u32();
    if (type == SectionType{0}) break;
    const Bytes payload = in.raw(std::min<std::size_t>(size, in.left()));
    sections.emplace_back(type, std::vector(payload.begin(), payload.end()));
  }
  const Bytes chunks = in.raw(in.left());
  Manifest manifest;
  manifest.number = 1;
  {
    const auto file = files.create(join_path(folder, kTablesName)).value();
    SectionWriter writer(*file);
    require(writer.begin(FileKind::kTables).ok());
    for (auto& [type, payload] : sections) {
      if (type == SectionType::kChunks) mend_entries(payload, chunks);
      require(writer.add(type, payload).ok());
    }
    manifest.files.push_back({std::string(kTablesName), writer.size_bytes(), writer.crc()});
  }
  std::vector<std::byte> bytes = file_header(FileKind::kChunks);
  bytes.insert(bytes.end(), chunks.begin(), chunks.end());
  write(files, join_path(folder, chunks_name(1)), bytes);
  manifest.files.push_back({chunks_name(1), bytes.size(), 0});
  require(write_manifest(files, join_path(folder, kManifestName), manifest).ok());
}

// Writes the input as one of the three files; the others are those of a checkpoint without tables.
void write_as_it_is(FileSystem& files, const std::string& folder, std::size_t which, Bytes input) {
  write_mended(files, folder, {});
  const std::string names[] = {std::string(kManifestName), std::string(kTablesName),
                               chunks_name(1)};
  const std::string path = join_path(folder, names[which]);
  require(files.remove_file(path).ok());
  write(files, path, input);
}

std::vector<std::int64_t> sizes(LocalService& store) {
  std::vector<std::int64_t> found;
  const auto infos = info_and_wait(store);
  for (const TableInfo& info : *infos) found.push_back(info.current_size);
  return found;
}

void sample(LocalService& store) {
  const auto infos = info_and_wait(store);
  for (const TableInfo& info : *infos) {
    SampleRequest request;
    request.table = info.options.name;
    request.count = kDrawsMax;
    request.min_count = 1;
    request.deadline = TimePoint{0};
    const SampleResult result = sample_and_wait(store, std::move(request));
    for (const TrajectoryView& trajectory : result.batch.trajectories()) {
      require(check_trajectory(trajectory).ok());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes input(reinterpret_cast<const std::byte*>(data), size);
  const auto way = static_cast<std::size_t>(input.front());
  sim::FileSystem files(1);
  const std::string folder = join_path(kRoot, checkpoint_name(1));
  require(create_folders(files, folder).ok());
  if (way < 3) {
    write_as_it_is(files, folder, way, input.subspan(1));
  } else {
    write_mended(files, folder, input.subspan(1));
  }
  const auto summary = read_summary(files, folder);
  auto checkpointer =
      Checkpointer::open(kRoot, {.on_mismatch = OnMismatch::kTheirs, .files = &files}).value();
  const auto opened = checkpointer->open_store({}, {});
  if (!opened.ok()) return 0;
  require(summary.ok());
  LocalService& store = **opened;
  const std::vector<std::int64_t> stored = sizes(store);
  require(checkpointer->write(store, {}).ok());
  sample(store);
  const auto again = checkpointer->open_store({}, {});
  require(again.ok() && sizes(**again) == stored);
  return 0;
}
