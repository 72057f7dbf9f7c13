// The batcher of Python: gathers nests of arrays into batches.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "python/bindings/nest.h"
#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/env/batch_queue.h"
#include "reverie/env/batcher_fill.h"
#include "reverie/tensor/batch_memory.h"

namespace reverie::python {

namespace nb = nanobind;

// The interpreter's lock guards it; large copies and waits release that. All methods except close()
// and is_closed() raise in a forked child.
class Batcher {
 public:
  struct Options {
    std::size_t size = 0;
    std::size_t dim = 0;
    std::size_t queue_size = 0;
    double timeout_s = 60.0;
    Framework output = Framework::kNone;  // kNone: as the first item's arrays
    nb::object device = nb::none();       // torch's or JAX's; None is the CPU
  };

  explicit Batcher(Options options);
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  void stack(nb::handle nest) { add(FillMode::kStack, nest); }
  void cat(nb::handle nest) { add(FillMode::kCat, nest); }
  bool flush();
  std::size_t finished_count() const;
  std::size_t filled() const;
  nb::object get(nb::handle timeout_s);
  // The oldest batch, or None.
  nb::object get_now();
  // Calls it once, when there is a batch or the batcher closes.
  void call_when_finished(nb::object callback);
  void close();
  bool is_closed() const { return finished_.is_closed(); }

 private:
  // Copies of this size release the interpreter's lock.
  static constexpr std::size_t kLargeBytes = 64 * 1024;

  struct Column {
    Framework framework = Framework::kNone;
    FillColumn fill;
    LeafLayout layout;                // of the first item's array
    nb::object target;                // the batch's array, or an unchanged object
    std::byte* data = nullptr;        // null if torch copies, on a device
    const std::byte* item = nullptr;  // within a call of add_alike()
  };
  struct Open {
    FillMode mode = FillMode::kStack;
    std::size_t structure = 0;
    std::vector<Column> columns;
    // Whether all arrays are gathered in memory of the batcher; else torch copies some on a device,
    // which may fail.
    bool is_ours = true;
    // Whether items like the first are stacked by a few short copies into memory of the batch.
    bool is_plain = false;
    std::size_t filled = 0;  // rows reserved, copied or not
    // Calls that are copying, and may have released the interpreter's lock.
    std::atomic<std::size_t> copying = 0;
  };
  class Copying {
   public:
    Copying(Open& open, BatchQueue<nb::object>& waited) : open_(open), waited_(waited) {
      ++open_.copying;
    }
    Copying(const Copying&) = delete;
    Copying& operator=(const Copying&) = delete;
    ~Copying() {
      --open_.copying;
      if (is_long_) waited_.change();
    }
    // The interpreter's lock is released, so other threads may have to wait.
    void set_long() { is_long_ = true; }

   private:
    Open& open_;
    BatchQueue<nb::object>& waited_;
    bool is_long_ = false;
  };
  // At the end of its scope, also by an exception, forgets the open batch if it has no row: else an
  // item that was refused would determine the arrays of the next one.
  class Beginning {
   public:
    Beginning(std::shared_ptr<Open>& open, std::shared_ptr<Open> begun)
        : open_(open), begun_(std::move(begun)) {}
    Beginning(const Beginning&) = delete;
    Beginning& operator=(const Beginning&) = delete;
    ~Beginning() {
      if (open_ == begun_ && begun_->filled == 0) open_.reset();
    }

   private:
    std::shared_ptr<Open>& open_;
    const std::shared_ptr<Open> begun_;
  };
  struct Note {
    std::size_t structure = 0;  // equal texts have equal numbers; 0: none yet
  };
  struct Structure {
    std::string text;
    std::vector<std::string> paths;  // of the columns
    Nest::Node root;                 // with its keys in the order that came last
    std::vector<std::size_t> column_of_leaf;
  };
  // A leaf of an item.
  struct Source {
    LeafView view;  // of the item itself: it determines the batch that the item begins
    PyObject* leaf = nullptr;
    LeafView fitted;                  // the same as the open batch needs it, if the view is not
    const std::byte* data = nullptr;  // the elements to copy, found by check()
  };

  void add(FillMode mode, nb::handle nest);
  // Reads the leaves, which `leaves` then holds, in the order of columns. Returns their structure's
  // number.
  std::size_t read(nb::handle nest, Leaves& leaves, std::vector<Source>& sources);
  // The number of a structure that the cache of nests has no number for.
  std::size_t note(const Nest& nest);
  // Stacks an item whose arrays are all laid out as the first one's, which nearly every item is:
  // without Python code, so that no other thread runs in between. False, with no effect, if it is
  // another item, or the batch needs other means.
  bool add_alike(PyObject* nest);
  // Finds the elements of the arrays of `object`, which is to have the structure of `node`.
  static bool find_elements(const Structure& structure, const Nest::Node& node, PyObject* object,
                            std::vector<Column>& columns);
  std::shared_ptr<Open> open(FillMode mode, std::size_t structure, std::vector<Source>& sources);
  // A finished batch of the same kind, whose columns the next one takes over; else null.
  std::shared_ptr<Open> spent(FillMode mode, std::size_t structure,
                              const std::vector<Source>& sources);
  // Checks an item against the open batch, and finds or makes its elements in the batch's types.
  // Returns its row count.
  std::size_t check(const Open& open, FillMode mode, std::size_t structure,
                    std::vector<Source>& sources);
  // The elements of an array on the CPU, in the type of `wanted`.
  const std::byte* fitted(Source& source, const TensorSpec& wanted);
  void make_target(Column& column, const LeafView& first);
  void copy(Open& open, const std::vector<Source>& sources, std::size_t item_rows,
            std::size_t item_begin, std::size_t count);
  void copy_on_device(const Column& column, const Source& source, std::size_t at,
                      std::size_t item_begin, std::size_t count) const;
  // The batch that was gathered, on its device.
  nb::object complete(const Open& open) const;
  // Completes a batch and queues it. If that raises, the batch is kept, and the next call tries
  // again. `rows_left` rows of the item that filled it are not in it.
  void finish(const std::shared_ptr<Open>& open, std::size_t rows_left = 0, bool was_kept = false);
  // Finishes the batches that are kept, the oldest first. Returns whether there were any.
  bool finish_kept();
  // `rest` says what else the call did.
  [[noreturn]] void raise_kept(nb::python_error& why, const Open& open,
                               const std::string& rest) const;
  // The oldest batch, if there is one.
  std::optional<nb::object> take();
  void make_room(std::size_t taken, std::size_t rows);
  void wait_for_copies(const std::shared_ptr<Open>& open, TimePoint until);
  void check_here() const;
  void check_open() const;
  static bool is_interrupted();
  TimePoint own_deadline() const;

  ForkGuard fork_guard_;
  Options options_;
  NestCache<Note> nests_;
  Leaves leaves_;  // memory of the last call, reused
  LeafReader reader_;
  std::deque<Structure> structures_;  // a number is an index here, plus 1
  std::vector<Source> sources_;
  std::shared_ptr<Open> open_;
  std::deque<std::shared_ptr<Open>> kept_;  // whole batches that could not be completed
  std::shared_ptr<Open> spent_;  // the latest batch that was finished, without its arrays
  BatchQueue<nb::object> finished_;
  std::shared_ptr<BatchMemory> memory_;
};

}  // namespace reverie::python
