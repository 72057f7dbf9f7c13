// Binds client/batch_stream.h, client/item_stream.h and transitions/replay_stream.h.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/batch.h"
#include "python/bindings/bind.h"
#include "python/bindings/client.h"
#include "python/bindings/collected.h"
#include "python/bindings/convert.h"
#include "python/bindings/replay_arrays.h"
#include "python/bindings/replay_buffer.h"
#include "reverie/base/fork.h"
#include "reverie/client/batch_stream.h"
#include "reverie/client/item_stream.h"
#include "reverie/transitions/replay_stream.h"

namespace reverie::python {
namespace {

constexpr std::int64_t kDepthMax = 1024;

// Raises StopIteration for a stream that ended normally.
[[noreturn]] void stop_iteration() {
  PyErr_SetNone(PyExc_StopIteration);
  raise_pending();
}

// Raises the error that ended a stream; StopIteration if it ended normally.
[[noreturn]] void stop_or_raise(const Status& why) {
  if (why.code() == StatusCode::kDeadlineExceeded || why.code() == StatusCode::kOutOfRange) {
    stop_iteration();
  }
  raise(why);
}

// Iterates over a stream of the library in Python. `T` is the result of its next().
template <typename Native, typename T>
class Stream {
 public:
  explicit Stream(std::unique_ptr<Native> native) : native_(std::move(native)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // In a forked child the stream's threads stayed with the parent, and its locks may be held.
  ~Stream() {
    if (is_here()) {
      close();
    } else {
      leave_to_parent(std::move(native_));
    }
  }

  Native* operator->() const { return native_.get(); }
  void check() const { unwrap(fork_guard_.check("dataset")); }
  bool is_here() const { return fork_guard_.check("dataset").ok(); }

  // Raises StopIteration if no batch came in time, or this is closed.
  T next(const WaitOptions& wait) { return *next_until(TimePoint::max(), wait); }

  // The same, but empty if no batch came by `until`: then it may be called again.
  std::optional<T> next_until(TimePoint until, WaitOptions wait) {
    check();
    if (is_over_) stop_iteration();
    if (std::optional<T> ready = native_->next_now()) return ready;
    bool is_late = false;
    if (until != TimePoint::max()) {
      wait.interrupted = [until, &is_late, asked = std::move(wait.interrupted)] {
        is_late = Clock::system().now() >= until;
        return is_late || asked();
      };
    }
    Result<T> batch = without_gil([&] { return native_->next(wait); });
    if (batch.ok()) return std::move(batch).value();
    if (is_closed_) stop_iteration();
    if (is_late) return std::nullopt;
    is_over_ = batch.status().code() != StatusCode::kUnavailable;  // that may be over soon
    stop_or_raise(batch.status());
  }

  // Ends the threads; `rest` is passed to Native::close().
  template <typename... Rest>
  void close(Rest&&... rest) {
    check();
    is_closed_ = is_over_ = true;
    const GilReleased released;
    native_->close(std::forward<Rest>(rest)...);
  }

 private:
  ForkGuard fork_guard_;
  std::unique_ptr<Native> native_;
  // The interpreter's lock guards these.
  bool is_closed_ = false;
  bool is_over_ = false;
};

// --- Batches of a table.

class TableStream {
 public:
  TableStream(std::shared_ptr<ReplayService> service, BatchStreamOptions options)
      : service_(std::move(service)),
        table_(options.table),
        stream_(std::make_unique<BatchStream>(service_, std::move(options))) {}

  nb::object next() {
    Waiting waiting(*service_, table_);
    DrawnBatch drawn = stream_.next(waiting.options());
    nb::object batch = nb::cast(PyBatch());
    take_or_hand_back(nb::cast<PyBatch&>(batch), *service_, table_, drawn);
    return batch;
  }
  void close() { stream_.close(); }

 private:
  const std::shared_ptr<ReplayService> service_;
  const std::string table_;
  Stream<BatchStream, DrawnBatch> stream_;
};

void init_table_stream(TableStream* self, const ClientHandle& client, nb::handle table,
                       nb::handle batch_size, nb::handle timeout_s, nb::handle beta,
                       nb::handle weights, bool distinct, bool pad, bool drop_last,
                       nb::handle prefetch) {
  unwrap(client.check());
  BatchStreamOptions options;
  options.table = text_argument("table", table);
  options.batch_size = integer_argument<std::size_t>("batch_size", batch_size, 1, kBatchMax);
  options.timeout = timeout_argument(timeout_s);
  options.weighing = weighing_argument(beta, weights);
  options.distinct = distinct;
  options.pad = pad;
  options.drop_last = drop_last;
  options.on_corrupt = client.on_corrupt();
  options.files = client.files();
  if (!prefetch.is_none()) {
    options.depth = integer_argument<std::size_t>("prefetch", prefetch, 0, kDepthMax);
  }
  options.is_far = client.local() == nullptr;
  if (!options.is_far) {
    const Result<Table*> found = client.local()->table(options.table);
    options.max_times_sampled = found.ok() ? (*found)->options().max_times_sampled : 0;
  }
  new (self) TableStream(client.service(), std::move(options));
}

// --- Items of a table.

class SampleStream {
 public:
  SampleStream(const ClientHandle& client, ItemStreamOptions options)
      : are_spent_(options.max_times_sampled >= 1),
        stream_(std::make_unique<ItemStream>(client.service(), std::move(options))) {}

  // (keys, probabilities, table sizes, priorities, times sampled, redelivered, groups).
  // `redelivered` is None if no item is (sample_batch.h). A group, of similar neighbours, is
  // (items, columns, their paths, which of them are squeezed). None if `max_wait_s` is given and
  // nothing came meanwhile.
  nb::object next(nb::handle max_wait_s) {
    std::optional<FedSamples> next =
        stream_.next_until(deadline(max_wait_s), Waiting::for_signals());
    if (!next) return nb::none();
    FedSamples& fed = *next;
    nb::list groups;
    for (SampleGroup& group : fed.groups) {
      nb::list columns;
      nb::list paths;
      nb::list squeezed;
      for (std::size_t c = 0; c < group.batch.columns.size(); ++c) {
        BatchColumn& column = group.batch.columns[c];
        columns.append(column_array(column.spec.dtype, column.spec.shape, std::move(column.bytes)));
        paths.append(column.spec.name);
        squeezed.append(static_cast<bool>(group.squeezed[c]));
      }
      groups.append(nb::make_tuple(group.count, columns, paths, squeezed));
    }
    current_ = std::move(fed.samples);
    const SampleBatch& samples = current_;
    return nb::make_tuple(
        copy_to_array(samples.keys()), copy_to_array(samples.probabilities()),
        copy_to_array(samples.table_sizes()), copy_to_array(samples.priorities()),
        copy_to_array(samples.times_sampled()),
        samples.redelivered().empty() ? nb::none() : flags_to_array(samples.redelivered()), groups);
  }
  // Returns what was drawn ahead to the table, if samples remove items from it, and the latest
  // result of next() from item `used` on, unless that is None.
  void close(nb::handle used) {
    SampleBatch unused;
    if (are_spent_ && !used.is_none()) {
      const auto begin = integer_argument<std::size_t>("used", used, 0);
      if (begin < current_.size()) unused.take(current_, begin, current_.size() - begin, 0);
      current_.clear();
    }
    stream_.close(std::move(unused));
  }

 private:
  const bool are_spent_;  // samples remove items from their table
  SampleBatch current_;   // the latest result of next()
  Stream<ItemStream, FedSamples> stream_;
};

void init_sample_stream(SampleStream* self, const ClientHandle& client, nb::handle table,
                        nb::handle request_max, nb::handle workers, nb::handle timeout_s,
                        nb::handle samples_max, nb::handle max_times_sampled) {
  unwrap(client.check());
  ItemStreamOptions options;
  options.feed.table = text_argument("table", table);
  options.feed.request_max =
      integer_argument<std::size_t>("request_max", request_max, 1, kBatchMax);
  options.feed.timeout = timeout_argument(timeout_s);
  options.feed.is_local = client.local() != nullptr;
  options.feed.on_corrupt = client.on_corrupt();
  options.feed.files = client.files();
  options.thread_count = integer_argument<std::size_t>("workers", workers, 1, kDepthMax);
  options.samples_max = integer_argument("samples_max", samples_max, 0);
  options.max_times_sampled =
      nb::cast<std::int64_t>(max_times_sampled);  // as the package has it from the table
  new (self) SampleStream(client, std::move(options));
}

// --- Batches of a replay buffer.

class PyReplayStream {
 public:
  PyReplayStream(nb::object owner, ReplayStreamOptions options)
      : owner_(std::move(owner)),
        stream_(std::make_unique<ReplayStream>(buffer().buffer(), options)),
        arrays_(stream_->layout()) {}

  int visit_references(visitproc visit, void* arg) const {  // see collected.h
    Py_VISIT(owner_.ptr());
    return 0;
  }
  void drop_references() {
    if (stream_.is_here()) stream_.close();
    const nb::object gone = std::exchange(owner_, nb::object(nb::none()));
  }

  nb::object next() {
    stream_.check();
    if (owner_.is_none()) stop_iteration();
    // Batches drawn from now on get weights according to the updates so far.
    stream_->set_beta(buffer().beta().value_or(0));
    std::vector<Buffer> buffers = stream_.next(Waiting::for_signals());
    std::vector<nb::object> arrays;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const TensorSpec& spec = arrays_.specs()[i];
      arrays.push_back(array_from_buffer(spec.dtype, spec.shape, std::move(buffers[i])));
    }
    return arrays_.fold(buffer().structures(), arrays);
  }
  void close() { stream_.close(); }

 private:
  PyReplayBuffer& buffer() const { return nb::cast<PyReplayBuffer&>(owner_); }

  nb::object owner_;
  Stream<ReplayStream, std::vector<Buffer>> stream_;
  ReplayArrays arrays_;
};

void init_replay_stream(PyReplayStream* self, nb::object buffer, nb::handle batch_size,
                        nb::handle timeout_s, bool distinct, nb::handle prefetch) {
  const auto& owner = nb::cast<PyReplayBuffer&>(buffer);
  unwrap(owner.check());
  ReplayStreamOptions options;
  options.batch_size = integer_argument<std::size_t>("batch_size", batch_size, 1, kBatchMax);
  options.timeout = timeout_argument(timeout_s);
  options.distinct = distinct;
  options.depth = integer_argument<std::size_t>("prefetch", prefetch, 1, kDepthMax);
  options.over_buffer = owner.weighs_over_buffer();
  options.beta = owner.beta();
  new (self) PyReplayStream(std::move(buffer), options);
}

}  // namespace

void bind_dataset(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<TableStream>(m, "TableStream", "See ``reverie.Client.dataset``.")
      .def("__init__", &init_table_stream, "client"_a, "table"_a, "batch_size"_a,
           "timeout_s"_a.none(), "beta"_a.none(), "weights"_a, "distinct"_a, "pad"_a, "drop_last"_a,
           "prefetch"_a.none(),
           nb::sig("def __init__(self, client: Client, table: str, batch_size: int, timeout_s: "
                   "float | None, beta: float | None, weights: str, distinct: bool, pad: bool, "
                   "drop_last: bool, prefetch: int | None) -> None"))
      .def("next", &TableStream::next, nb::sig("def next(self) -> Batch"))
      .def("close", &TableStream::close);
  nb::class_<SampleStream>(m, "SampleStream", "See ``reverie.TrajectoryDataset``.")
      .def("__init__", &init_sample_stream, "client"_a, "table"_a, "request_max"_a, "workers"_a,
           "timeout_s"_a.none(), "samples_max"_a, "max_times_sampled"_a,
           nb::sig("def __init__(self, client: Client, table: str, request_max: int, workers: int, "
                   "timeout_s: float | None, samples_max: int, max_times_sampled: int) -> None"))
      .def(
          "next", &SampleStream::next, "max_wait_s"_a = nb::none(),
          nb::sig("def next(self, max_wait_s: float | None = None) -> tuple[numpy.ndarray, "
                  "numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray, "
                  "numpy.ndarray | None, list[tuple[int, list[numpy.ndarray], list[str], "
                  "list[bool]]]] | None"),
          "Keys, probabilities, table sizes, priorities, times sampled of the next items, which of "
          "them are redelivered (None: no item is), and the items: neighbours that are alike as "
          "(count, columns, paths, which are squeezed). None if nothing came within "
          "``max_wait_s``.")
      .def("close", &SampleStream::close, "used"_a = nb::none(),
           nb::sig("def close(self, used: int | None = None) -> None"));
  nb::class_<PyReplayStream>(m, "ReplayStream", nb::type_slots(kCollected<PyReplayStream>),
                             "See ``reverie.ReplayBuffer.dataset``.")
      .def("__init__", &init_replay_stream, "buffer"_a, "batch_size"_a, "timeout_s"_a.none(),
           "distinct"_a, "prefetch"_a,
           nb::sig("def __init__(self, buffer: ReplayBuffer, batch_size: int, timeout_s: float | "
                   "None, distinct: bool, prefetch: int) -> None"))
      .def("next", &PyReplayStream::next, nb::sig("def next(self) -> dict[str, typing.Any]"))
      .def("close", &PyReplayStream::close);
}

}  // namespace reverie::python
