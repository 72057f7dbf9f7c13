// A replay buffer in Python: its own store, and what the first step determines.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/replay_arrays.h"
#include "python/bindings/step_arguments.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/replay/local_service.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie::python {

namespace nb = nanobind;

class PyReplayBuffer {
 public:
  // Without `alpha` the draws are uniform. `beta` is a number or a function of update_count().
  PyReplayBuffer(TransitionOptions options, std::optional<double> alpha, nb::object beta,
                 bool weighs_over_buffer, std::optional<std::uint64_t> seed, bool is_finished);
  PyReplayBuffer(const PyReplayBuffer&) = delete;
  PyReplayBuffer& operator=(const PyReplayBuffer&) = delete;

  void add(nb::handle obs, nb::handle action, nb::handle reward, nb::handle next_obs,
           nb::handle terminated, nb::handle truncated, nb::handle mask, nb::kwargs extra);
  nb::object sample(nb::handle batch_size, nb::handle beta, nb::handle distinct,
                    nb::handle timeout_s, nb::handle out, nb::handle output, nb::handle device,
                    nb::handle pin_memory);
  // Items [begin, begin + count) by age, oldest first, as a batch; fewer if there are fewer.
  nb::object read(nb::handle begin, nb::handle count);
  std::size_t update_priorities(nb::handle tickets, nb::handle priorities);
  void clear();
  void close();

  // Writes a checkpoint into a folder, and returns its path; see transitions/replay_state.h.
  std::string save(const std::string& path, nb::bytes attached);
  // Fills a buffer that was made with the checkpoint's arguments, before its first
  // step.
  void load(const std::string& folder);
  // These arguments, and "folder": the newest checkpoint at `path`.
  static nb::dict arguments_of(const std::string& path);

  std::size_t size() const;
  std::int64_t stale_updates() const;
  double max_priority() const;
  nb::dict stats() const;
  std::size_t memory_bytes() const;
  std::size_t update_count() const { return update_count_; }
  const TransitionOptions& options() const { return options_; }
  bool is_prioritized() const { return is_prioritized_; }
  // Whether the largest weight is that of the least likely item in the buffer, not in the batch.
  bool weighs_over_buffer() const { return weighs_over_buffer_; }

  // --- For code that samples in its own thread. FAILED_PRECONDITION in a forked
  // child.
  Status check() const { return fork_guard_.check("ReplayBuffer"); }
  // Raises before the first step.
  const std::shared_ptr<ReplayBuffer>& buffer() const;
  const std::shared_ptr<LocalService>& service() const { return service_; }
  const ReplayStructures& structures() const { return structures_; }
  int visit_references(visitproc visit, void* arg) const {  // see collected.h
    Py_VISIT(beta_.ptr());
    return 0;
  }
  void drop_references() { const nb::object gone = std::exchange(beta_, nb::object(nb::none())); }
  // The current exponent of weights; none if draws are uniform. `given` null: the buffer's own.
  std::optional<double> beta(nb::handle given = {}) const;

 private:
  // Marks the buffer as being added to, and releases the step at the end. Raises if it is already.
  class AddMark {
   public:
    explicit AddMark(PyReplayBuffer& buffer);
    AddMark(const AddMark&) = delete;
    AddMark& operator=(const AddMark&) = delete;
    ~AddMark();

   private:
    PyReplayBuffer& buffer_;
  };

  // Marks a batch as being filled. Raises if it is already.
  class FillMark {
   public:
    FillMark(PyReplayBuffer& buffer, nb::handle batch);
    FillMark(const FillMark&) = delete;
    FillMark& operator=(const FillMark&) = delete;
    ~FillMark();

   private:
    PyReplayBuffer& buffer_;
    PyObject* const batch_;
  };

  std::shared_ptr<ReplayBuffer> open(const StepArrays& step);
  // The action, and the columns that the user has added.
  nb::object with_extra(nb::handle action, nb::kwargs extra) const;
  // Sets the buffer, which the first step or a checkpoint determines.
  void set_buffer(std::shared_ptr<ReplayBuffer> buffer);
  // Waits for set_buffer().
  void wait_for_buffer(TimePoint deadline) const;
  double checked_beta(nb::handle source) const;
  std::vector<TensorSpec> specs(const char* what, const NestArgument& argument,
                                bool has_env_axis) const;

  const TransitionOptions options_;
  const std::optional<double> alpha_;
  const bool is_prioritized_;
  nb::object beta_;  // a number or the user's function, which may lead back to the buffer
  const bool weighs_over_buffer_;
  // Whether a sample is passed to the Python object's _finished(batch), which returns the result.
  // Python holds the function, so that its garbage collector finds it.
  const bool is_finished_;
  std::uint64_t chunk_seed_ = 0;
  ForkGuard fork_guard_;
  std::shared_ptr<LocalService> service_;
  Table* table_ = nullptr;

  // A sample before the first step waits for this.
  mutable Mutex opened_mutex_;
  mutable CondVar opened_;
  bool is_opened_ REVERIE_GUARDED_BY(opened_mutex_) = false;

  // The interpreter's lock guards these.
  std::shared_ptr<ReplayBuffer> buffer_;  // null before the first step
  ReplayStructures structures_;
  std::shared_ptr<const ReplayArrays> arrays_;  // of the last sample's size
  std::vector<PyObject*> filled_;               // batches being filled without the lock
  bool in_add_ = false;
  std::size_t update_count_ = 0;
  NestArgument obs_{"obs"};
  NestArgument action_{"action"};
  NestArgument next_obs_{"next_obs"};
  FloatArgument reward_;
  FlagArgument terminated_;
  FlagArgument truncated_;
  FlagArgument mask_;
};

}  // namespace reverie::python
