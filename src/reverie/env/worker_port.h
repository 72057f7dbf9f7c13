// A worker's side of a pool in shared memory: it takes commands and reports their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/env/shared_view.h"

namespace reverie {

// For one thread.
class WorkerPort {
 public:
  // `spin` is how long a worker without work polls before it sleeps.
  WorkerPort(SharedView view, std::size_t worker, Duration spin);

  const SharedView& view() const { return view_; }
  std::size_t worker() const { return worker_; }
  EnvRange range() const { return range_; }

  // Waits for the next command. None if the time is up first.
  std::optional<PoolCommand> next(Duration at_most);
  // The environments that a command is for.
  EnvRange range_of(const PoolCommand& command) const;

  // Notes what the worker is stepping now, for the error message if it never ends.
  void begin(std::size_t batch, std::size_t env) {
    block().at_batch.store(static_cast<std::uint32_t>(batch), std::memory_order_relaxed);
    block().at_env.store(static_cast<std::uint32_t>(env), std::memory_order_relaxed);
  }
  // Notes that the environment's row for `command` is written, so that it outlives this worker. Not
  // for one that raised.
  void complete(const PoolCommand& command, std::size_t env) {
    if (command.env != kWholeRange) return;
    view_.completed(command.batch, env).store(command.sequence, std::memory_order_release);
  }
  // Whether an earlier worker has written that row: the command was posted again after its end.
  bool is_complete(const PoolCommand& command, std::size_t env) const {
    const auto& completed = view_.completed(command.batch, env);
    return command.env == kWholeRange &&
           completed.load(std::memory_order_acquire) == command.sequence;
  }
  // Marks an environment as broken and keeps the text, unless that of another one, which was not
  // reset since, is still unread.
  void fail(std::size_t batch, std::size_t env, std::string_view text);
  // Reports that the rows for `command` are written.
  void finish(const PoolCommand& command);

 private:
  WorkerBlock& block() const { return view_.worker(worker_); }

  SharedView view_;
  std::size_t worker_;
  EnvRange range_;
  Duration spin_;
  std::uint32_t taken_ = 0;
};

}  // namespace reverie
