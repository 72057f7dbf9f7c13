#include "python/bindings/checkpoints.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "python/bindings/convert.h"
#include "python/bindings/values.h"
#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/checkpoint_tools/comparison.h"
#include "reverie/checkpoint_tools/inspection.h"
#include "reverie/checkpoint_tools/reverb_conversion.h"
#include "reverie/service/time_limit.h"
#include "reverie/spill/spill.h"

namespace reverie::python {
namespace {

using checkpoint::OnMismatch;

OnMismatch on_mismatch_of(const std::string& name) {
  if (name == "mine") return OnMismatch::kMine;
  if (name == "theirs") return OnMismatch::kTheirs;
  return name == "drop" ? OnMismatch::kDrop : OnMismatch::kRefuse;
}

}  // namespace

Durability durability_of(const std::string& name) {
  if (name == "sync") return Durability::kSync;
  return name == "interval" ? Durability::kInterval : Durability::kNone;
}

std::shared_ptr<ChunkMemory> chunk_memory(nb::handle given) {
  if (given.is_none()) return nullptr;
  const auto [folder, memory_bytes] =
      nb::cast<std::pair<std::string, std::optional<std::int64_t>>>(given);
  return unwrap(spill::Spill::open({folder, memory_bytes}));
}

std::optional<checkpoint::WorkerOptions> checkpoint_options(nb::handle given) {
  if (given.is_none()) return std::nullopt;
  const auto options = nb::cast<nb::dict>(given);
  checkpoint::WorkerOptions worker;
  worker.path = nb::cast<std::string>(options["path"]);
  worker.checkpointer.keep = nb::cast<std::int64_t>(options["keep"]);
  worker.checkpointer.fallback = nb::cast<std::string>(options["fallback"]);
  worker.checkpointer.on_mismatch = on_mismatch_of(nb::cast<std::string>(options["on_mismatch"]));
  worker.checkpointer.journal.durability =
      durability_of(nb::cast<std::string>(options["durability"]));
  worker.checkpointer.interruption = Interruption(Waiting::for_signals().interrupted);
  worker.every_time = seconds(nb::cast<double>(options["every_s"]));
  worker.every_inserts = nb::cast<std::int64_t>(options["every_inserts"]);
  return worker;
}

nb::object loaded_checkpoint(const StoreOrigin& origin) {
  if (origin.path.empty()) return nb::none();
  return nb::make_tuple(nb::str(origin.path.data(), origin.path.size()),
                        nb::bytes(origin.payload.data(), origin.payload.size()));
}

std::string client_checkpoint(const ClientHandle& self, nb::bytes payload, nb::handle timeout_s) {
  unwrap(self.check());
  auto* const remote = dynamic_cast<ReverbClient*>(self.service().get());
  auto* const peer = dynamic_cast<PeerStoreClient*>(self.service().get());
  const bool is_far = remote != nullptr || peer != nullptr;
  TimeLimit time(timeout_argument(timeout_s), Clock::system());
  Waiting waiting(*self.service(), "");
  const WaitOptions wait = time.limit(waiting.options());
  const std::string_view bytes(payload.c_str(), payload.size());
  if (!is_far && !self.local()) {
    raise(unimplemented("this client has several services; have each write its checkpoint"));
  }
  Result<std::string> path = without_gil([&] {
    if (peer != nullptr) return peer->checkpoint_and_wait(bytes, wait);
    if (remote != nullptr) return remote->checkpoint_and_wait(bytes, wait.interrupted);
    return checkpoint::checkpoint_and_wait(*self.local(), std::as_bytes(std::span(bytes)),
                                           wait.interrupted);
  });
  unwrap(time.outcome(path.status()));
  return std::move(path).value();
}

nb::object client_origin(const ClientHandle& self, nb::handle timeout_s) {
  unwrap(self.check());
  auto* const remote = dynamic_cast<ReverbClient*>(self.service().get());
  auto* const peer = dynamic_cast<PeerStoreClient*>(self.service().get());
  if (remote == nullptr && peer == nullptr) {
    if (!self.local()) {
      raise(unimplemented("this client has several services; ask each what it was loaded from"));
    }
    return loaded_checkpoint(self.local()->origin());
  }
  TimeLimit time(timeout_argument(timeout_s), Clock::system());
  Waiting waiting(*self.service(), "");
  const WaitOptions wait = time.limit(waiting.options());
  const Result<StoreOrigin> origin = without_gil([&] {
    return peer != nullptr ? peer->origin_and_wait(wait)
                           : remote->origin_and_wait(wait.interrupted);
  });
  unwrap(time.outcome(origin.status()));
  return loaded_checkpoint(*origin);
}

nb::object journal_error(const LocalService& store) {
  StoreLog* const log = store.log();
  if (log == nullptr) return nb::none();
  const Status status = without_gil([&] { return log->check(); });
  return status.ok() ? nb::object(nb::none()) : nb::object(nb::str(status.message().c_str()));
}

namespace {

nb::dict inspect_checkpoint(const std::string& folder, bool verifies) {
  const checkpoint::Inspection found = unwrap(without_gil(
      [&] { return checkpoint::inspect_checkpoint(FileSystem::system(), folder, verifies); }));
  nb::dict told;
  told["number"] = found.manifest.number;
  told["created_s"] = static_cast<double>(found.manifest.created_ns) * 1e-9;
  told["payload"] = nb::bytes(found.manifest.payload.data(), found.manifest.payload.size());
  told["chunks"] = found.chunk_count;
  told["journal_position"] = found.journal_position;
  nb::dict files;
  for (const checkpoint::ManifestFile& file : found.manifest.files) {
    files[file.name.c_str()] = file.size_bytes;
  }
  told["files"] = files;
  nb::dict tables;
  for (const TableImage& table : found.tables) {
    nb::dict about;
    for (const auto& [name, text] : checkpoint::described(table)) about[name.c_str()] = text;
    tables[table.options.name.c_str()] = about;
  }
  told["tables"] = tables;
  return told;
}

// [(table, what, one, other)]
nb::list compare_checkpoints(const std::string& one, const std::string& other) {
  const std::vector<checkpoint::Difference> differences = unwrap(without_gil(
      [&] { return checkpoint::compare_checkpoints(FileSystem::system(), one, other); }));
  nb::list told;
  for (const checkpoint::Difference& found : differences) {
    told.append(nb::make_tuple(found.table, found.what, found.one, found.other));
  }
  return told;
}

nb::dict inspect_journal(const std::string& root) {
  const checkpoint::JournalInspection found =
      unwrap(without_gil([&] { return checkpoint::inspect_journal(FileSystem::system(), root); }));
  nb::dict told;
  nb::list files;
  for (const checkpoint::JournalFileInspection& file : found.files) {
    files.append(nb::make_tuple(file.name, file.groups, file.first_record, file.last_record,
                                file.size_bytes));
  }
  told["files"] = files;
  nb::dict records;
  for (const auto& [name, count] : found.records) records[name.c_str()] = count;
  told["records"] = records;
  told["first_record"] = found.first_record;
  told["last_record"] = found.last_record;
  told["size_bytes"] = found.size_bytes;
  told["torn_bytes"] = found.torn_bytes;
  return told;
}

// (from, to, "reverb" or "reverie", tables, items)
nb::tuple convert_checkpoint(const std::string& source, const std::string& target) {
  Result<checkpoint::ConvertedCheckpoint> converted = without_gil([&] {
    return checkpoint::convert_checkpoint(FileSystem::system(), source, target,
                                          Waiting::for_signals().interrupted);
  });
  if (PyErr_Occurred() != nullptr) raise_pending();
  const checkpoint::ConvertedCheckpoint made = unwrap(std::move(converted));
  const bool is_reverb = made.form == checkpoint::CheckpointForm::kReverb;
  return nb::make_tuple(made.from, made.to, is_reverb ? "reverb" : "reverie", made.tables,
                        made.items);
}

}  // namespace

void bind_inspection(nb::module_& m) {
  using namespace nb::literals;
  m.def("inspect_checkpoint", &inspect_checkpoint, "folder"_a, "verifies"_a,
        nb::sig("def inspect_checkpoint(folder: str, verifies: bool) -> dict[str, typing.Any]"));
  m.def("compare_checkpoints", &compare_checkpoints, "one"_a, "other"_a,
        nb::sig("def compare_checkpoints(one: str, other: str) -> "
                "list[tuple[str, str, str, str]]"));
  m.def("convert_checkpoint", &convert_checkpoint, "source"_a, "target"_a,
        nb::sig(
            "def convert_checkpoint(source: str, target: str) -> tuple[str, str, str, int, int]"));
  m.def("inspect_journal", &inspect_journal, "root"_a,
        nb::sig("def inspect_journal(root: str) -> dict[str, typing.Any]"));
}

}  // namespace reverie::python
