// A pool whose workers are threads of the test; they use the same shared memory as processes.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "reverie/env/shared_pool.h"
#include "reverie/env/worker_port.h"
#include "reverie/os/shared_memory.h"

namespace reverie {

inline constexpr Duration kLong = std::chrono::seconds(30);

inline PoolShape shape_of(std::size_t envs, std::size_t batches, std::size_t workers) {
  PoolShape shape;
  shape.observation = {{"count", DType::kInt64, {}}};
  shape.action = {"", DType::kInt64, {}};
  shape.env_count = envs;
  shape.batch_count = batches;
  shape.worker_count = workers;
  return shape;
}

inline TimePoint soon() {
  return Clock::system().now() + kLong;
}

// Environments that count: a reset gives 1000 * batch + env (plus the seed), a step adds the
// action. Action -1 raises, -2 ends the worker at once.
class CountingWorker {
 public:
  CountingWorker(const SharedView& view, std::size_t worker) : port_(view, worker, Duration(0)) {
    thread_ = std::thread([this] { run(); });
  }
  ~CountingWorker() { thread_.join(); }
  CountingWorker(const CountingWorker&) = delete;
  CountingWorker& operator=(const CountingWorker&) = delete;

 private:
  std::int64_t& cell(const SharedLayout::Column& column, std::size_t env) {
    return *reinterpret_cast<std::int64_t*>(port_.view().row(column, env));
  }

  void run() {
    while (true) {
      const auto command = port_.next(kLong);
      if (!command || command->op == PoolOp::kStop) return;
      const SharedView& view = port_.view();
      const SharedLayout::Batch& batch = view.layout().batch(command->batch);
      const EnvRange range = port_.range_of(*command);
      for (std::size_t env = range.begin; env < range.end; ++env) {
        port_.begin(command->batch, env);
        std::int64_t& count = cell(batch.observation[0], env);
        const std::int64_t action = cell(batch.actions, env);
        const bool begins =
            command->op == PoolOp::kReset || view.state(command->batch, env) == EnvState::kLost;
        if (begins) {
          count = static_cast<std::int64_t>(1000 * command->batch + env) +
                  view.batch(command->batch).seed.load();
          view.set_state(command->batch, env, EnvState::kRunning);
        } else if (action == -1) {
          port_.fail(command->batch, env, "raised");
        } else if (action == -2) {
          return;
        } else {
          count += action;
        }
      }
      port_.finish(*command);
    }
  }

  WorkerPort port_;
  std::thread thread_;
};

class PoolOfThreads {
 public:
  explicit PoolOfThreads(const PoolShape& shape)
      : layout_(SharedLayout::make(shape).value()),
        memory_(SharedMemory::create("test", layout_.size_bytes()).value()),
        view_(layout_, memory_.bytes()),
        pool(view_, std::chrono::microseconds(1)) {
    for (std::size_t worker = 0; worker < shape.worker_count; ++worker) {
      workers_.push_back(std::make_unique<CountingWorker>(view_, worker));
    }
  }
  ~PoolOfThreads() { pool.stop(); }
  PoolOfThreads(const PoolOfThreads&) = delete;
  PoolOfThreads& operator=(const PoolOfThreads&) = delete;

  // Replaces a worker that was told to end.
  void replace(std::size_t worker) {
    workers_[worker].reset();  // joins its thread
    pool.restart(worker);
    workers_[worker] = std::make_unique<CountingWorker>(view_, worker);
  }
  std::int64_t& action(std::size_t batch, std::size_t env) {
    return *reinterpret_cast<std::int64_t*>(view_.row(layout_.batch(batch).actions, env));
  }
  std::int64_t count(std::size_t batch, std::size_t env) const {
    return *reinterpret_cast<std::int64_t*>(view_.row(layout_.batch(batch).observation[0], env));
  }
  std::uint32_t reset(std::size_t batch) { return pool.post(batch, PoolOp::kReset, 7).value(); }
  Status wait(std::size_t batch, std::uint32_t sequence) {
    return pool.wait(batch, sequence, soon(), [] { return true; });
  }

 private:
  SharedLayout layout_;
  SharedMemory memory_;
  SharedView view_;

 public:
  SharedPool pool;

 private:
  std::vector<std::unique_ptr<CountingWorker>> workers_;
};

}  // namespace reverie
