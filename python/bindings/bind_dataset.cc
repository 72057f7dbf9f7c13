// Binds client/batch_stream.h, client/sample_feed.h and batches of a replay buffer, made ahead.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/batch.h"
#include "python/bindings/bind.h"
#include "python/bindings/client.h"
#include "python/bindings/convert.h"
#include "python/bindings/replay_arrays.h"
#include "python/bindings/replay_buffer.h"
#include "reverie/base/fork.h"
#include "reverie/client/batch_stream.h"
#include "reverie/client/hand_back.h"
#include "reverie/client/prefetcher.h"
#include "reverie/client/sample_feed.h"

namespace reverie::python {
namespace {

constexpr std::int64_t kDepthMax = 1024;

std::optional<Duration> duration(nb::handle timeout_s) {
  if (timeout_s.is_none()) return std::nullopt;
  const double given = number_argument("timeout_s", timeout_s);
  if (std::isnan(given) || given < 0) {
    raise(invalid_argument(
        "timeout_s is {}; it must be at least 0 (now or never), or None to wait without limit",
        given));
  }
  return seconds(given);
}

TimePoint deadline_of(std::optional<Duration> timeout) {
  return timeout ? Clock::system().now() + *timeout : TimePoint::max();
}

// Raises StopIteration where a stream is over in good order.
[[noreturn]] void stop_iteration() {
  PyErr_SetNone(PyExc_StopIteration);
  raise_pending();
}

// Raises what ended a stream; StopIteration where that is good order.
[[noreturn]] void stop_or_raise(const Status& why) {
  if (why.code() == StatusCode::kDeadlineExceeded || why.code() == StatusCode::kOutOfRange) {
    stop_iteration();
  }
  raise(why);
}

// False in a forked child, where `stream` is released: its thread stayed with the parent, so there
// is nothing to join, and locks may be held.
template <typename T>
bool is_of_this_process(const ForkGuard& guard, std::unique_ptr<T>& stream) {
  if (guard.check("dataset").ok()) return true;
  leave_to_parent(std::move(stream));
  return false;
}

// A stream of batches that a prefetcher makes. `T` is a batch before it is Python's.
template <typename T>
class Stream {
 public:
  Stream(std::int64_t depth, typename Prefetcher<T>::Make make)
      : prefetcher_(
            std::make_unique<Prefetcher<T>>(static_cast<std::size_t>(depth), std::move(make))) {}
  // One thread and one batch ahead for each of `makes`.
  explicit Stream(std::vector<typename Prefetcher<T>::Make> makes)
      : prefetcher_(std::make_unique<Prefetcher<T>>(makes.size(), std::move(makes),
                                                    /*forgives_unwanted=*/true)) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (is_of_this_process()) close();
  }

  // Raises StopIteration when no batch came in time, or this is closed.
  T next() { return *next_until(TimePoint::max()); }

  // The same, but empty if no batch came by `until`: then it may be called again.
  std::optional<T> next_until(TimePoint until) {
    unwrap(fork_guard_.check("dataset"));
    if (is_closed_ || is_over_) stop_iteration();
    if (std::optional<T> ready = prefetcher_->next_now()) return ready;
    bool is_late = false;
    WaitOptions wait;
    wait.interrupted = [until, &is_late] {
      is_late = Clock::system().now() >= until;
      if (is_late) return true;
      const GilHeld held;
      return PyErr_CheckSignals() != 0;
    };
    Result<T> batch = without_gil([&] { return prefetcher_->next(wait); });
    if (batch.ok()) return std::move(batch).value();
    if (is_closed_) stop_iteration();
    if (is_late) return std::nullopt;
    is_over_ = true;
    stop_or_raise(batch.status());
  }

  // Ends the thread. Returns the batches that were not taken.
  std::deque<T> close() {
    unwrap(fork_guard_.check("dataset"));
    is_closed_ = true;
    const GilReleased released;
    return prefetcher_->close();
  }
  bool is_of_this_process() { return python::is_of_this_process(fork_guard_, prefetcher_); }

 private:
  ForkGuard fork_guard_;
  std::unique_ptr<Prefetcher<T>> prefetcher_;
  // The interpreter's lock guards these.
  bool is_closed_ = false;
  bool is_over_ = false;
};

// --- Of a table.

class TableStream {
 public:
  TableStream(std::shared_ptr<ReplayService> service, BatchStreamOptions options)
      : service_(std::move(service)),
        table_(options.table),
        stream_(std::make_unique<BatchStream>(service_, std::move(options))) {}
  ~TableStream() {
    if (is_of_this_process(fork_guard_, stream_)) close();
  }

  nb::object next() {
    unwrap(fork_guard_.check("dataset"));
    if (ended_) stop_iteration();
    Waiting waiting(*service_, table_);
    const WaitOptions wait = waiting.options();
    std::optional<DrawnBatch> ready = stream_->next_now();
    if (!ready) {
      Result<DrawnBatch> next = without_gil([&] { return stream_->next(wait); });
      if (!next.ok()) end(next.status());
      ready = std::move(next).value();
    }
    nb::object batch = nb::cast(PyBatch());
    nb::cast<PyBatch&>(batch).take(std::move(*ready));
    return batch;
  }
  void close() {
    unwrap(fork_guard_.check("dataset"));
    const GilReleased released;
    stream_->close();
  }

 private:
  [[noreturn]] void end(const Status& why) {
    ended_ = why.code() != StatusCode::kUnavailable;  // that may be over soon
    if (stream_->is_closed()) stop_iteration();
    stop_or_raise(why);
  }

  ForkGuard fork_guard_;
  const std::shared_ptr<ReplayService> service_;
  const std::string table_;
  std::unique_ptr<BatchStream> stream_;
  bool ended_ = false;  // the interpreter's lock guards it
};

void init_table_stream(TableStream* self, const ClientHandle& client, nb::handle table,
                       nb::handle batch_size, nb::handle timeout_s, nb::handle beta,
                       nb::handle weights, bool distinct, bool pad, bool drop_last,
                       nb::handle prefetch) {
  unwrap(client.check());
  BatchStreamOptions options;
  options.table = text_argument("table", table);
  options.batch_size =
      static_cast<std::size_t>(integer_argument("batch_size", batch_size, 1, kBatchMax));
  options.timeout = duration(timeout_s);
  options.weighing = weighing_argument(beta, weights);
  options.distinct = distinct;
  options.pad = pad;
  options.drop_last = drop_last;
  options.on_corrupt = client.on_corrupt();
  if (!prefetch.is_none()) {
    options.depth = static_cast<std::size_t>(integer_argument("prefetch", prefetch, 0, kDepthMax));
  }
  options.is_far = client.local() == nullptr;
  if (!options.is_far) {
    const Result<Table*> found = client.local()->table(options.table);
    options.max_times_sampled = found.ok() ? (*found)->options().max_times_sampled : 0;
  }
  new (self) TableStream(client.service(), std::move(options));
}

// --- Of a table, item by item.

class SampleStream {
 public:
  // `max_times_sampled` of the table: from 1 on items leave it with their samples.
  SampleStream(const ClientHandle& client, SampleFeedOptions options, std::int64_t workers,
               std::int64_t samples_max, std::int64_t max_times_sampled)
      : service_(client.service()),
        table_(options.table),
        max_times_sampled_(max_times_sampled),
        stream_(makes(client, std::move(options), workers, samples_max)) {}
  ~SampleStream() {
    if (stream_.is_of_this_process()) close(nb::none());
  }

  // (keys, probabilities, table sizes, priorities, times sampled, groups), where a group is (items,
  // columns, their paths, which of them are squeezed): neighbours that are alike.
  // None if `max_wait_s` is given and nothing came meanwhile.
  nb::object next(nb::handle max_wait_s) {
    std::optional<FedSamples> next = stream_.next_until(deadline_of(duration(max_wait_s)));
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
    return nb::make_tuple(copy_to_array(samples.keys()), copy_to_array(samples.probabilities()),
                          copy_to_array(samples.table_sizes()), copy_to_array(samples.priorities()),
                          copy_to_array(samples.times_sampled()), groups);
  }
  // What was drawn ahead goes back to a table that items leave with their samples. So does what
  // next() gave last, from item `used` on, unless that is None.
  void close(nb::handle used) {
    std::vector<SampleBatch> batches;
    if (!used.is_none() && max_times_sampled_ >= 1) {
      const auto begin = static_cast<std::size_t>(integer_argument("used", used, 0));
      if (begin < current_.size()) {
        batches.emplace_back().take(current_, begin, current_.size() - begin, 0);
      }
      current_.clear();
    }
    for (FedSamples& fed : stream_.close()) batches.push_back(std::move(fed.samples));
    if (max_times_sampled_ < 1 || batches.empty()) return;
    const GilReleased released;
    hand_back_or_warn(*service_, table_, max_times_sampled_, batches, "max_in_flight_samples");
  }

 private:
  using Make = Prefetcher<FedSamples>::Make;

  static std::vector<Make> makes(const ClientHandle& client, SampleFeedOptions options,
                                 std::int64_t workers, std::int64_t samples_max) {
    options.is_local = client.local() != nullptr;
    std::shared_ptr<SampleFeed::Budget> budget;
    if (samples_max > 0) budget = std::make_shared<SampleFeed::Budget>(samples_max);
    std::vector<Make> made;
    for (std::int64_t i = 0; i < workers; ++i) {
      made.emplace_back(SampleFeed(client.service(), options, budget));
    }
    return made;
  }

  const std::shared_ptr<ReplayService> service_;
  const std::string table_;
  const std::int64_t max_times_sampled_;
  SampleBatch current_;  // what next() gave last
  Stream<FedSamples> stream_;
};

void init_sample_stream(SampleStream* self, const ClientHandle& client, nb::handle table,
                        nb::handle request_max, nb::handle workers, nb::handle timeout_s,
                        nb::handle samples_max, nb::handle max_times_sampled) {
  unwrap(client.check());
  SampleFeedOptions options;
  options.table = text_argument("table", table);
  options.request_max =
      static_cast<std::size_t>(integer_argument("request_max", request_max, 1, kBatchMax));
  options.timeout = duration(timeout_s);
  const std::int64_t spent_after =
      nb::cast<std::int64_t>(max_times_sampled);  // as the package has it from the table
  options.keeps_trajectories = spent_after >= 1;
  options.on_corrupt = client.on_corrupt();
  new (self)
      SampleStream(client, std::move(options), integer_argument("workers", workers, 1, kDepthMax),
                   integer_argument("samples_max", samples_max, 0), spent_after);
}

// --- Of a replay buffer.

class ReplayStream {
 public:
  ReplayStream(nb::object owner, std::size_t count, std::optional<Duration> timeout, bool distinct,
               std::int64_t depth)
      : owner_(std::move(owner)),
        arrays_(python_buffer().buffer()->plan(), count),
        beta_(std::make_shared<std::atomic<double>>(python_buffer().beta().value_or(0))),
        stream_(depth, maker(timeout, distinct)) {}

  nb::object next() {
    // Batches that are drawn from now on get the weights of the updates so far.
    beta_->store(python_buffer().beta().value_or(0), std::memory_order_relaxed);
    std::vector<Buffer> buffers = stream_.next();
    std::vector<nb::object> arrays;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const TensorSpec& spec = arrays_.specs()[i];
      arrays.push_back(array_from_buffer(spec.dtype, spec.shape, std::move(buffers[i])));
    }
    return arrays_.fold(python_buffer().structures(), arrays);
  }
  void close() { stream_.close(); }

 private:
  PyReplayBuffer& python_buffer() const { return nb::cast<PyReplayBuffer&>(owner_); }

  Prefetcher<std::vector<Buffer>>::Make maker(std::optional<Duration> timeout, bool distinct) {
    ReplayBufferDraw draw;
    draw.count = arrays_.count();
    draw.distinct = distinct;
    draw.beta = python_buffer().beta();
    draw.over_buffer = python_buffer().weighs_over_buffer();
    return [buffer = python_buffer().buffer(), beta = beta_, draw, timeout,
            specs = std::vector<TensorSpec>(arrays_.specs().begin(), arrays_.specs().end())](
               const WaitOptions& wait) mutable -> Result<std::vector<Buffer>> {
      std::vector<Buffer> buffers;
      std::vector<std::byte*> places;
      for (const TensorSpec& spec : specs) {
        const auto size =
            static_cast<std::size_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
        REVERIE_ASSIGN_OR_RETURN(Buffer made, Allocator::heap().allocate(size));
        places.push_back(made.data());
        buffers.push_back(std::move(made));
      }
      if (draw.beta) draw.beta = beta->load(std::memory_order_relaxed);
      draw.deadline = deadline_of(timeout);
      Status status = buffer->sample(draw, replay_targets(buffer->plan(), places), wait);
      // An empty buffer is an end in good order: no thread adds any more.
      if (status.code() == StatusCode::kFailedPrecondition) {
        status = deadline_exceeded("{}", status.message());
      }
      REVERIE_RETURN_IF_ERROR(status);
      return buffers;
    };
  }

  nb::object owner_;
  ReplayArrays arrays_;
  std::shared_ptr<std::atomic<double>> beta_;
  Stream<std::vector<Buffer>> stream_;
};

void init_replay_stream(ReplayStream* self, nb::object buffer, nb::handle batch_size,
                        nb::handle timeout_s, bool distinct, nb::handle prefetch) {
  unwrap(nb::cast<PyReplayBuffer&>(buffer).check());
  const auto count =
      static_cast<std::size_t>(integer_argument("batch_size", batch_size, 1, kBatchMax));
  const auto timeout = duration(timeout_s);
  const std::int64_t depth = integer_argument("prefetch", prefetch, 1, kDepthMax);
  new (self) ReplayStream(std::move(buffer), count, timeout, distinct, depth);
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
      .def("next", &SampleStream::next, "max_wait_s"_a = nb::none(),
           nb::sig("def next(self, max_wait_s: float | None = None) -> tuple[numpy.ndarray, "
                   "numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray, "
                   "list[tuple[int, list[numpy.ndarray], list[str], list[bool]]]] | None"),
           "Keys, probabilities, table sizes, priorities and times sampled of the next items, and "
           "the items: neighbours that are alike as (count, columns, paths, which are squeezed). "
           "None if nothing came within ``max_wait_s``.")
      .def("close", &SampleStream::close, "used"_a = nb::none(),
           nb::sig("def close(self, used: int | None = None) -> None"));
  nb::class_<ReplayStream>(m, "ReplayStream", "See ``reverie.ReplayBuffer.dataset``.")
      .def("__init__", &init_replay_stream, "buffer"_a, "batch_size"_a, "timeout_s"_a.none(),
           "distinct"_a, "prefetch"_a,
           nb::sig("def __init__(self, buffer: ReplayBuffer, batch_size: int, timeout_s: float | "
                   "None, distinct: bool, prefetch: int) -> None"))
      .def("next", &ReplayStream::next, nb::sig("def next(self) -> dict[str, typing.Any]"))
      .def("close", &ReplayStream::close);
}

}  // namespace reverie::python
