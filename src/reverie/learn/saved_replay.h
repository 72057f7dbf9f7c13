// Saves a replay buffer as a checkpoint in its own folder: its tables, its streams, and its
// settings.
//
//     save_replay(files, path, service, buffer, settings)    a new checkpoint in `path`
//     find_saved_replay(files, path)                         what to open a store and a buffer with
//     load_replay(files, folder, service, ...)               the buffer, in that empty store
//
// The trainer's checkpoints (trainer_checkpoint.cc) contain replay buffers too, among other things.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/base/interruption.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/local_service.h"
#include "reverie/transitions/replay_batch_layout.h"
#include "reverie/transitions/replay_buffer.h"
#include "reverie/transitions/replay_state.h"

namespace reverie {

// How a buffer was used, besides the options that it was made with.
struct ReplaySettings {
  std::optional<double> alpha = {};  // the exponent of priorities; none for uniform draws
  std::optional<double> beta = {};   // none if it was a function
  bool weighs_over_buffer = false;
  std::uint64_t update_count = 0;
  ReplayStructures structures = {};
  std::string attached = {};  // what a training stores with its buffer

  friend bool operator==(const ReplaySettings&, const ReplaySettings&) = default;
};

struct SavedReplay {
  std::string folder;  // of the checkpoint
  ReplaySettings settings;
  ReplayPlan plan;
  std::size_t table_count = 1;  // of ReplayShards::split()
};

// Writes a checkpoint and returns its folder, inside `path`. Adds wait meanwhile. Errors as
// Checkpointer's, and INVALID_ARGUMENT if `service` has other tables than the buffer's.
Result<std::string> save_replay(FileSystem& files, const std::string& path, LocalService& service,
                                ReplayBuffer& buffer, const ReplaySettings& settings);

// Describes the newest checkpoint at `path`. INVALID_ARGUMENT if it was not written for a replay
// buffer.
Result<SavedReplay> find_saved_replay(FileSystem& files, const std::string& path);

// Opens the buffer of a checkpoint in `table` of `service`, which must have the saved options and
// be unused. INVALID_ARGUMENT if options differ from the saved ones, except how hindsight draws
// goals. `seed` as in ReplayBuffer::open.
Result<std::shared_ptr<ReplayBuffer>> load_replay(FileSystem& files, const std::string& folder,
                                                  const std::shared_ptr<LocalService>& service,
                                                  const std::string& table,
                                                  const TransitionOptions& options,
                                                  std::uint64_t seed, ReplaySettings& settings,
                                                  Interruption interruption = Interruption());
// The same for a buffer of several tables, those of ReplayShards::split(). INVALID_ARGUMENT if they
// are not as many as were saved, in the same order.
Result<std::shared_ptr<ReplayBuffer>> load_replay(FileSystem& files, const std::string& folder,
                                                  const std::shared_ptr<LocalService>& service,
                                                  const std::vector<TableOptions>& tables,
                                                  const TransitionOptions& options,
                                                  std::uint64_t seed, ReplaySettings& settings,
                                                  Interruption interruption = Interruption());

}  // namespace reverie
