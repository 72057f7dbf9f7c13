// Tested in tests/integration/saved_replay_test.cc and python/reverie/replay_save_test.py.
#include "reverie/learn/saved_replay.h"

#include <span>
#include <utility>
#include <vector>

#include "reverie/base/format.h"
#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/checkpoint/folder.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/service/blocking.h"

namespace reverie {
namespace {

// The first words of a payload: of a buffer alone, and with what a training attached to it.
constexpr std::string_view kReplayKind = "reverie replay buffer, 1";
constexpr std::string_view kAttachedKind = "reverie replay buffer, 2";

void write_settings_of(const ReplaySettings& settings, ByteWriter& out) {
  out.text(settings.attached.empty() ? kReplayKind : kAttachedKind);
  if (!settings.attached.empty()) out.text(settings.attached);
  for (const std::optional<double>& number : {settings.alpha, settings.beta}) {
    out.u8(number ? 1 : 0).f64(number.value_or(0));
  }
  out.u8(settings.weighs_over_buffer ? 1 : 0).u64(settings.update_count);
  const ReplayStructures& structures = settings.structures;
  out.text(structures.obs).text(structures.action);
  out.u32(static_cast<std::uint32_t>(structures.extra.size()));
  for (const std::string& name : structures.extra) out.text(name);
}

Result<ReplaySettings> read_settings_of(ByteReader& in) {
  const std::string kind = in.text();
  if (kind != kReplayKind && kind != kAttachedKind) {
    return invalid_argument(
        "it is no checkpoint of a ReplayBuffer, or one of another version; give a folder that "
        "ReplayBuffer.save() wrote to");
  }
  ReplaySettings settings;
  if (kind == kAttachedKind) settings.attached = in.text();
  for (std::optional<double>* const number : {&settings.alpha, &settings.beta}) {
    const bool is_there = in.u8() != 0;
    const double value = in.f64();
    if (is_there) *number = value;
  }
  settings.weighs_over_buffer = in.u8() != 0;
  settings.update_count = in.u64();
  settings.structures.obs = in.text();
  settings.structures.action = in.text();
  const std::size_t extra = in.count32(4);
  for (std::size_t i = 0; i < extra; ++i) settings.structures.extra.push_back(in.text());
  if (!in.ok()) return data_loss("the head of a replay buffer is cut short");
  return settings;
}

Result<SavedReplay> read_head(const checkpoint::Summary& summary) {
  ByteReader in(summary.manifest.payload);
  SavedReplay saved;
  REVERIE_ASSIGN_OR_RETURN(saved.settings, read_settings_of(in));
  REVERIE_ASSIGN_OR_RETURN(saved.plan, read_replay_plan(in));
  saved.table_count = summary.tables.size();
  return saved;
}

// The names, for messages: "'t/0', 't/1'".
template <typename Tables, typename Name>
std::string names_in(const Tables& tables, Name name) {
  std::string text;
  for (const auto& table : tables) text += format("{}'{}'", text.empty() ? "" : ", ", name(table));
  return text;
}

// Their order counts too: draws and tickets number the tables.
Status check_tables(const std::vector<RestoredTable>& saved,
                    const std::vector<TableOptions>& given) {
  const std::string theirs =
      names_in(saved, [](const RestoredTable& table) { return table.image.options.name; });
  const std::string ours = names_in(given, [](const TableOptions& table) { return table.name; });
  if (theirs == ours) return {};
  return invalid_argument(
      "it holds a replay buffer in {} tables, {}, and {} were given, {}; open the store and the "
      "buffer with the saved ones, as ReplayShards::split() names them",
      saved.size(), theirs, given.size(), ours);
}

Result<std::shared_ptr<ReplayBuffer>> fill_buffer(checkpoint::LoadedCheckpoint& loaded,
                                                  const std::shared_ptr<LocalService>& service,
                                                  const std::vector<TableOptions>& tables,
                                                  const TransitionOptions& options,
                                                  std::uint64_t seed, ReplaySettings& settings) {
  ByteReader in(loaded.manifest.payload);
  REVERIE_ASSIGN_OR_RETURN(settings, read_settings_of(in));
  REVERIE_ASSIGN_OR_RETURN(ReplayPlan plan, read_replay_plan(in));
  // The saved entries determine the layout of rows; the caller decides how goals are drawn.
  if (plan.options.hindsight && options.hindsight) {
    plan.options.hindsight->strategy = options.hindsight->strategy;
    plan.options.hindsight->share = options.hindsight->share;
  }
  if (plan.options != options) {
    return invalid_argument("it holds a replay buffer of other arguments");
  }
  REVERIE_RETURN_IF_ERROR(check_tables(loaded.tables, tables));
  REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<ReplayBuffer> buffer,
                           ReplayBuffer::open(service, tables, options, std::move(plan.obs),
                                              std::move(plan.action), seed));
  std::vector<std::span<Trajectory>> items;
  for (RestoredTable& table : loaded.tables) items.emplace_back(table.trajectories);
  ReplayBuffer* const only = buffer.get();
  REVERIE_RETURN_IF_ERROR(restore_replay({&only, 1}, in, items));
  return buffer;
}

Status in_checkpoint(const std::string& folder, const Status& status) {
  return status.with_context(format("checkpoint '{}'", folder));
}

}  // namespace

Result<std::string> save_replay(FileSystem& files, const std::string& path, LocalService& service,
                                ReplayBuffer& buffer, const ReplaySettings& settings) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<TableInfo> stored, info_and_wait(service));
  if (stored.size() != buffer.shards().count()) {
    return invalid_argument(
        "the store has {} tables, and the replay buffer is in {}; save a replay buffer whose store "
        "has no other table",
        stored.size(), buffer.shards().count());
  }
  checkpoint::CheckpointerOptions options;
  options.files = &files;
  REVERIE_ASSIGN_OR_RETURN(const std::unique_ptr<checkpoint::Checkpointer> to,
                           checkpoint::Checkpointer::open(path, options));
  std::vector<std::byte> state;
  ByteWriter out(state);
  write_settings_of(settings, out);
  std::string folder;
  ReplayBuffer* const only = &buffer;
  REVERIE_RETURN_IF_ERROR(write_replay_state({&only, 1}, state, [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(checkpoint::Written written, to->write(service, state));
    folder = std::move(written.folder);
    return {};
  }));
  return folder;
}

Result<SavedReplay> find_saved_replay(FileSystem& files, const std::string& path) {
  return checkpoint::read_newest(
      files, path, [&files](const std::string& folder) -> Result<SavedReplay> {
        REVERIE_ASSIGN_OR_RETURN(const checkpoint::Summary summary,
                                 checkpoint::read_summary(files, folder));
        Result<SavedReplay> saved = read_head(summary);
        if (!saved.ok()) return in_checkpoint(folder, saved.status());
        saved->folder = folder;
        return saved;
      });
}

Result<std::shared_ptr<ReplayBuffer>> load_replay(FileSystem& files, const std::string& folder,
                                                  const std::shared_ptr<LocalService>& service,
                                                  const std::string& table,
                                                  const TransitionOptions& options,
                                                  std::uint64_t seed, ReplaySettings& settings,
                                                  Interruption interruption) {
  TableOptions only;
  only.name = table;
  return load_replay(files, folder, service, std::vector{std::move(only)}, options, seed, settings,
                     std::move(interruption));
}

Result<std::shared_ptr<ReplayBuffer>> load_replay(FileSystem& files, const std::string& folder,
                                                  const std::shared_ptr<LocalService>& service,
                                                  const std::vector<TableOptions>& tables,
                                                  const TransitionOptions& options,
                                                  std::uint64_t seed, ReplaySettings& settings,
                                                  Interruption interruption) {
  Result<checkpoint::LoadedCheckpoint> loaded =
      checkpoint::read_checkpoint(files, folder, Allocator::heap(), std::move(interruption));
  if (!loaded.ok()) return in_checkpoint(folder, loaded.status());
  auto buffer = fill_buffer(*loaded, service, tables, options, seed, settings);
  if (!buffer.ok()) return in_checkpoint(folder, buffer.status());
  const Status restored = checkpoint::restore(*service, *loaded, checkpoint::OnMismatch::kRefuse);
  if (!restored.ok()) return in_checkpoint(folder, restored);
  return buffer;
}

}  // namespace reverie
