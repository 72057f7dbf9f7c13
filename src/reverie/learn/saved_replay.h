// A replay buffer as a checkpoint in a folder of its own: its table, its streams, and how it was
// used.
//
//     save_replay(files, path, service, buffer, settings)    a new checkpoint in `path`
//     find_saved_replay(files, path)                         what to open a store and a buffer with
//     load_replay(files, folder, service, ...)               the buffer, in that empty store
//
// The trainer's checkpoints (trainer_checkpoint.cc) hold replay buffers too, beside all else.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "reverie/os/file_system.h"
#include "reverie/replay/local_service.h"
#include "reverie/transitions/replay_batch_layout.h"
#include "reverie/transitions/replay_buffer.h"
#include "reverie/transitions/replay_state.h"

namespace reverie {

// How a buffer was used, beside what it was made with.
struct ReplaySettings {
  std::optional<double> alpha = {};  // the exponent of priorities; none for uniform draws
  std::optional<double> beta = {};   // none where it was a function
  bool weighs_over_buffer = false;
  std::uint64_t update_count = 0;
  ReplayStructures structures = {};
  std::string attached = {};  // what a training keeps with its buffer

  friend bool operator==(const ReplaySettings&, const ReplaySettings&) = default;
};

struct SavedReplay {
  std::string folder;  // of the checkpoint
  ReplaySettings settings;
  ReplayPlan plan;
};

// Writes a checkpoint and gives its folder, within `path`. Adds wait meanwhile. Errors as
// Checkpointer's. `service` has the buffer's table alone.
Result<std::string> save_replay(FileSystem& files, const std::string& path, LocalService& service,
                                ReplayBuffer& buffer, const ReplaySettings& settings);

// What the newest checkpoint that `path` leads to was saved of. INVALID_ARGUMENT for one
// that no replay buffer wrote.
Result<SavedReplay> find_saved_replay(FileSystem& files, const std::string& path);

// Opens the buffer of a checkpoint in `table` of `service`, which is as it was made, and new.
// INVALID_ARGUMENT for other options than those that were saved; of hindsight, how goals are drawn
// is the caller's. `seed` as ReplayBuffer::open takes it.
Result<std::shared_ptr<ReplayBuffer>> load_replay(FileSystem& files, const std::string& folder,
                                                  const std::shared_ptr<LocalService>& service,
                                                  const std::string& table,
                                                  const TransitionOptions& options,
                                                  std::uint64_t seed, ReplaySettings& settings);

}  // namespace reverie
