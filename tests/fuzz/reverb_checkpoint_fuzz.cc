// Loads any bytes as the files of a dm-reverb checkpoint: they are refused with a typed error, or
// give a store that can be sampled, and whose items survive being written as another.
//
// Input: a byte, the *way*, and then
//   way 0 to 2   one unchanged file: tables, items or chunks; the others have no records
//   others       records, each a byte that selects the file (mod 3), a size u32 and the message;
//                the last is cut where the input ends. The checksums are correct, since otherwise
//                nearly every input would be refused.
#include "reverie/reverb_files/reverb_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/codec/crc32c.h"
#include "reverie/replay/local_service.h"
#include "reverie/reverb_files/reverb_names.h"
#include "reverie/reverb_files/tf_records.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"

namespace {

using namespace reverie;
using namespace reverie::reverb_files;
using Bytes = std::span<const std::byte>;

constexpr char kFolder[] = "/theirs/2026";
constexpr std::string_view kNames[] = {kReverbTables, kReverbItems, kReverbChunks};
constexpr std::size_t kDrawsMax = 20;

void require(bool holds) {
  if (!holds) std::abort();
}

std::uint32_t masked_crc(Bytes bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

// The content of an uncompressed file with those records.
std::vector<std::byte> plain(const std::vector<Bytes>& records) {
  std::vector<std::byte> file;
  ByteWriter out(file);
  for (const Bytes record : records) {
    out.u64(record.size());
    out.u32(masked_crc(Bytes(file).last(8)));
    out.raw(record).u32(masked_crc(record));
  }
  return file;
}

void write_as_it_is(FileSystem& files, std::size_t which, Bytes input) {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const std::string path = join_path(kFolder, kNames[i]);
    if (i == which) {
      require(files.create(path).value()->append(input).ok());
    } else {
      require(TfRecordWriter::create(files, path).value()->finish().ok());
    }
  }
}

void write_mended(FileSystem& files, Bytes input) {
  std::vector<Bytes> records[std::size(kNames)];
  ByteReader in(input);
  while (in.left() > 0) {
    const std::size_t which = in.u8() % std::size(kNames);
    const std::uint32_t size = in.u32();
    records[which].push_back(in.raw(std::min<std::size_t>(size, in.left())));
  }
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    const std::string path = join_path(kFolder, kNames[i]);
    if (records[i].empty()) {
      require(TfRecordWriter::create(files, path).value()->finish().ok());
    } else {
      require(files.create(path).value()->append(plain(records[i])).ok());
    }
  }
}

std::vector<std::size_t> sizes(const std::vector<RestoredTable>& tables) {
  std::vector<std::size_t> found;
  for (const RestoredTable& table : tables) found.push_back(table.trajectories.size());
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
  const auto way = std::to_integer<std::size_t>(input.front());
  sim::FileSystem files(1);
  require(create_folders(files, kFolder).ok());
  if (way < std::size(kNames)) {
    write_as_it_is(files, way, input.subspan(1));
  } else {
    write_mended(files, input.subspan(1));
  }
  Result<std::vector<RestoredTable>> loaded = read_reverb_checkpoint(files, kFolder);
  if (!loaded.ok()) {
    require(!loaded.status().message().empty());
    return 0;
  }
  const auto again = write_reverb_checkpoint(*loaded, files, "/again", 1);
  if (again.ok()) {
    const auto read = read_reverb_checkpoint(files, *again);
    require(read.ok() && sizes(*read) == sizes(*loaded));
  }
  std::vector<TableOptions> tables;
  for (const RestoredTable& table : *loaded) tables.push_back(table.image.options);
  const auto store = LocalService::open(std::move(tables), {});
  if (!store.ok()) return 0;
  checkpoint::LoadedCheckpoint whole;
  whole.tables = std::move(*loaded);
  if (!restore(**store, whole, checkpoint::OnMismatch::kTheirs).ok()) return 0;
  sample(**store);
  return 0;
}
