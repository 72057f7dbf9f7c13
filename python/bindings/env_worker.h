// The loop of a worker process: takes commands from shared memory, steps environments, writes rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/env_rows.h"
#include "reverie/base/fork.h"
#include "reverie/env/worker_port.h"
#include "reverie/os/shared_memory.h"

namespace reverie::python {

namespace nb = nanobind;

struct EnvWorkerOptions {
  std::string structure;  // of observations
  bool is_discrete = false;
  std::int64_t action_start = 0;  // the environment's name for action 0
  bool refuses_nan = false;
  nb::object seed = nb::none();  // the pool's, an integer or None
};

// For one thread, which holds the interpreter's lock.
class EnvWorker {
 public:
  EnvWorker(SharedMemory memory, SharedLayout layout, std::size_t worker, Duration spin,
            EnvWorkerOptions options);

  // Serves until it gets the stop command. `envs[batch][i]` is environment i of this worker's
  // range; `make(batch, env)` makes a new one after it has raised.
  void run(nb::list envs, nb::object make);

 private:
  struct Env {
    nb::object object;
    nb::object step;
    nb::object reset;
  };
  // The rows of one environment's columns.
  struct Rows {
    std::vector<std::byte*> observation;
    std::vector<std::byte*> final_observation;
    std::vector<std::byte*> info;
  };

  void serve(const PoolCommand& command);
  void step(const PoolCommand& command, std::size_t env);
  void reset(std::size_t batch, std::size_t env, nb::handle seed);
  void begin_anew(std::size_t batch, std::size_t env);
  void keep_outcome(std::size_t batch, std::size_t env);
  void copy_to_final_observation(std::size_t batch, std::size_t env);
  // The seed for a reset that was given none: the pool's, if it is the environment's first reset.
  nb::object seed_of_reset(std::size_t batch, std::size_t env) const;
  // Resets and writes the first observation. Returns the info.
  nb::object begin_episode(std::size_t batch, std::size_t env, nb::handle seed);
  nb::object action(std::size_t batch, std::size_t env) const;
  void write_info(nb::handle info, const Rows& rows) const;
  void write_observation(nb::handle observation, std::span<std::byte* const> rows);
  void set_outcome(std::size_t batch, std::size_t env, float reward, bool terminated,
                   bool truncated) const;
  void adopt(std::size_t batch, std::size_t env, nb::object object);
  Env& env_at(std::size_t batch, std::size_t env) {
    return envs_[batch][env - port_.range().begin];
  }
  Rows& rows_at(std::size_t batch, std::size_t env) {
    return rows_[batch][env - port_.range().begin];
  }
  const SharedView& view() const { return port_.view(); }
  // Whether this is a child that an environment forked, and that came back: it leaves run() by the
  // error that it raised, or by SystemExit.
  void leave_if_forked() const;
  bool is_forked_child() const { return generation_ != fork_generation(); }

  SharedMemory memory_;
  WorkerPort port_;
  EnvWorkerOptions options_;
  NestRows observations_;
  std::vector<std::vector<nb::object>> info_paths_;  // by column: the keys that lead to it
  std::vector<std::vector<Env>> envs_;
  std::vector<std::vector<Rows>> rows_;
  nb::object make_;
  const std::uint32_t generation_ = fork_generation();
};

}  // namespace reverie::python
