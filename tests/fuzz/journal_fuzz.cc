// Replays any bytes as a file of a journal: they are refused with a typed error, or give a store
// whose items are complete.
//
// Input: a byte, the *way*, and then for way 0 an unchanged file, for way 2 a ring, for others the
// records of one group, whose header is corrected. The store has the tables that the first record
// describes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "reverie/checkpoint/journal_records.h"
#include "reverie/checkpoint/journal_replay.h"
#include "reverie/checkpoint/table_codec.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/durable_files/journal_frames.h"
#include "reverie/durable_files/journal_ring.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/service/blocking.h"
#include "reverie/sim/file_system.h"

namespace {

using namespace reverie;
using namespace reverie::checkpoint;

constexpr char kRoot[] = "/journal";
constexpr std::size_t kDrawsMax = 20;

void require(bool holds) {
  if (!holds) std::abort();
}

using Bytes = std::span<const std::byte>;

std::vector<TableOptions> tables_of(Bytes records) {
  ByteReader in(records);
  std::vector<TableOptions> tables;
  if (static_cast<RecordType>(in.u8()) != RecordType::kTables) return tables;
  ByteReader record(in.raw(in.u32()));
  const std::size_t count = record.count32(16);
  for (std::size_t i = 0; i < count; ++i) tables.push_back(read_table(record).options);
  if (!record.ok()) tables.clear();
  return tables;
}

std::uint32_t count_of(Bytes records) {
  ByteReader in(records);
  std::uint32_t count = 0;
  while (in.left() > 0) {
    in.u8();
    in.raw(in.u32());
    if (in.ok()) ++count;
  }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes input = Bytes(reinterpret_cast<const std::byte*>(data), size).subspan(1);
  std::vector<std::byte> file;
  std::string name = journal_name(1);
  Bytes records = input;
  if (data[0] == 2) {
    name = kRingName;
    file.assign(input.begin(), input.end());
    const std::vector<RingGroup> groups = groups_from(file, 1);
    std::uint64_t next = 1;
    for (const RingGroup& group : groups) {
      require(group.group.first == next);
      next += group.group.count;
    }
    records = groups.empty() ? Bytes() : groups[0].group.records;
  } else if (data[0] == 0) {
    file.assign(input.begin(), input.end());
    const auto read = read_journal_file(file, true, "a file", 1);
    if (!read.ok()) return 0;
    records = read->groups.empty() ? Bytes() : read->groups[0].records;
  } else {
    Group group;
    group.first = 1;
    group.count = count_of(records);
    group.records = records;
    file = file_header(FileKind::kJournal);
    ByteWriter(file).raw(group_header(group)).raw(records);
  }
  const auto store = LocalService::open(tables_of(records), {});
  if (!store.ok()) return 0;
  sim::FileSystem files(1);
  require(create_folders(files, kRoot).ok());
  require(files.create(join_path(kRoot, name)).value()->append(file).ok());
  if (!replay_journal(files, kRoot, 0, **store).ok()) return 0;
  const std::vector<TableInfo> infos = info_and_wait(**store).value();
  for (const TableInfo& info : infos) {
    SampleRequest request;
    request.table = info.options.name;
    request.count = kDrawsMax;
    request.min_count = 1;
    request.deadline = TimePoint{0};
    const SampleResult result = sample_and_wait(**store, std::move(request));
    for (const TrajectoryView& trajectory : result.batch.trajectories()) {
      require(check_trajectory(trajectory).ok());
    }
  }
  return 0;
}
