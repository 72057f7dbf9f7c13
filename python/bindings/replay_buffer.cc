#include "python/bindings/replay_buffer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "reverie/base/format.h"
#include "reverie/base/random.h"
#include "reverie/learn/saved_replay.h"

namespace reverie::python {
namespace {

constexpr const char* kTable = "replay buffer";
// For fewer bytes, releasing the interpreter's lock would cost more than copying.
constexpr std::size_t kLargeStepBytes = 64 * 1024;

// Only the types.
std::vector<TensorSpec> specs_of(std::span<const TensorView> leaves) {
  std::vector<TensorSpec> specs;
  for (const TensorView& leaf : leaves) specs.push_back({"", leaf.dtype, {}});
  return specs;
}

}  // namespace

PyReplayBuffer::AddMark::AddMark(PyReplayBuffer& buffer) : buffer_(buffer) {
  if (buffer.in_add_) {
    raise(failed_precondition(
        "this replay buffer is in use by another add() or clear(), in another thread or around "
        "this one; let one thread add, or take a lock"));
  }
  buffer.in_add_ = true;
}

PyReplayBuffer::AddMark::~AddMark() {
  for (NestArgument* const one : {&buffer_.obs_, &buffer_.action_, &buffer_.next_obs_}) {
    one->release();
  }
  buffer_.in_add_ = false;
}

PyReplayBuffer::FillMark::FillMark(PyReplayBuffer& buffer, nb::handle batch)
    : buffer_(buffer), batch_(batch.ptr()) {
  if (std::ranges::count(buffer.filled_, batch_) > 0) {
    raise(failed_precondition(
        "this batch is in use by another call, in another thread; give each thread a batch of its "
        "own"));
  }
  buffer.filled_.push_back(batch_);
}

PyReplayBuffer::FillMark::~FillMark() {
  std::erase(buffer_.filled_, batch_);
}

PyReplayBuffer::PyReplayBuffer(TransitionOptions options, std::optional<double> alpha,
                               nb::object beta, bool weighs_over_buffer,
                               std::optional<std::uint64_t> seed, bool is_finished)
    : options_(options),
      alpha_(alpha),
      is_prioritized_(alpha.has_value()),
      beta_(std::move(beta)),
      weighs_over_buffer_(weighs_over_buffer),
      is_finished_(is_finished) {
  unwrap(TransitionPlan::check(options));
  Random random(seed);
  TableOptions table = ReplayBuffer::table_options(options, kTable);
  table.sampler = alpha ? ComponentSpec{"Prioritized", {{"priority_exponent", *alpha}}}
                        : ComponentSpec{"Uniform", {}};
  table.sampler.options["seed"] = static_cast<std::int64_t>(random.next() >> 1);
  chunk_seed_ = random.next();
  service_ = unwrap(LocalService::open({std::move(table)}, {}));
  table_ = unwrap(service_->table(kTable));
  checked_beta(
      beta_);  // a function that returns no number is refused now, not in the middle of a run
}

void PyReplayBuffer::add(nb::handle obs, nb::handle action, nb::handle reward, nb::handle next_obs,
                         nb::handle terminated, nb::handle truncated, nb::handle mask,
                         nb::kwargs extra) {
  unwrap(check());
  if (terminated.is_none()) {  // or not given, which its signature does not permit
    raise_type_error(
        "terminated is missing: True where the episode ended for good. A done flag that is also "
        "True where it was cut off (a time limit) is terminated | truncated: give both");
  }
  const AddMark mark(*this);
  const bool is_first = buffer_ == nullptr;
  nb::object held;
  if (extra.size() > 0 || !structures_.extra.empty()) {
    held = with_extra(action, extra);
    action = held;
  }
  obs_.read(obs, is_first ? nullptr : &structures_.obs);
  action_.read(action, is_first ? nullptr : &structures_.action);
  next_obs_.read(next_obs, is_first ? &obs_.structure() : &structures_.obs);
  if (!is_first) {
    obs_.cast_to(buffer_->plan().obs());
    action_.cast_to(buffer_->plan().action());
    next_obs_.cast_to(buffer_->plan().obs());
  } else if (obs_.leaves().size() == next_obs_.leaves().size()) {
    next_obs_.cast_to(specs_of(obs_.leaves()));
  }
  reward_.read("reward", reward);
  terminated_.read("terminated", terminated);
  truncated_.read("truncated", truncated);
  if (truncated_.is_scalar) truncated_.values.resize(options_.env_count, truncated_.values[0]);
  StepArrays step;
  if (!mask.is_none()) {
    mask_.read("mask", mask);
    step.mask = mask_.values;
  }
  step.obs = obs_.leaves();
  step.action = action_.leaves();
  step.next_obs = next_obs_.leaves();
  step.reward = reward_.values;
  step.terminated = terminated_.values;
  step.truncated = truncated_.values;
  step.has_env_axis = !reward_.is_scalar || options_.env_count > 1;
  const std::shared_ptr<ReplayBuffer> opened = is_first ? open(step) : nullptr;
  ReplayBuffer& buffer = is_first ? *opened : *buffer_;
  const std::size_t step_bytes = buffer.plan().schema()->step_bytes() * options_.env_count;
  unwrap(step_bytes < kLargeStepBytes ? buffer.add(step)
                                      : without_gil([&] { return buffer.add(step); }));
  if (!is_first) return;
  structures_ = {obs_.structure(), action_.structure()};
  for (const auto item : extra) structures_.extra.push_back(str_of(item.first));
  set_buffer(opened);
}

nb::object PyReplayBuffer::with_extra(nb::handle action, nb::kwargs extra) const {
  nb::dict whole;
  whole["action"] = action;
  for (const auto item : extra) {
    const std::string name = str_of(item.first);
    if (is_batch_name(name)) {
      raise(
          invalid_argument("{} is a column of each batch already; give yours another name", name));
    }
    const bool is_known = std::ranges::count(structures_.extra, name) > 0;
    if (buffer_ && !is_known) {
      raise(invalid_argument(
          "the column {} was not in the first step; give it from the first step on", name));
    }
    whole[item.first] = item.second;
  }
  for (const std::string& name : structures_.extra) {
    if (whole.contains(name.c_str())) continue;
    raise(invalid_argument(
        "the column {} is missing, which the first step had; give it with every step", name));
  }
  return whole;
}

std::string PyReplayBuffer::save(const std::string& path, nb::bytes attached) {
  unwrap(check());
  const AddMark mark(*this);
  ReplaySettings settings;
  settings.alpha = alpha_;
  if (PyFloat_Check(beta_.ptr()) || PyLong_Check(beta_.ptr())) {
    settings.beta = nb::cast<double>(beta_);
  }
  settings.weighs_over_buffer = weighs_over_buffer_;
  settings.update_count = update_count_;
  settings.structures = structures_;
  settings.attached.assign(attached.c_str(), attached.size());
  const std::shared_ptr<ReplayBuffer> held = this->buffer();
  return unwrap(without_gil(
      [&] { return save_replay(FileSystem::system(), path, *service_, *held, settings); }));
}

nb::dict PyReplayBuffer::arguments_of(const std::string& path) {
  const auto [folder, settings, plan, table_count] =
      unwrap(without_gil([&] { return find_saved_replay(FileSystem::system(), path); }));
  if (table_count != 1) {
    raise(unimplemented(
        "checkpoint '{}' holds a replay buffer in {} tables, and ReplayBuffer has one; load it in "
        "C++ (load_replay), or save one with a single table",
        folder, table_count));
  }
  const TransitionOptions& options = plan.options;
  nb::dict given;
  given["folder"] = nb::str(folder.c_str(), folder.size());
  given["attached"] = nb::bytes(settings.attached.data(), settings.attached.size());
  given["capacity"] = options.capacity;
  given["num_envs"] = options.env_count;
  given["frame_stack"] = options.frame_stack;
  given["n_step"] = options.n_step;
  given["gamma"] = options.gamma;
  given["prioritized"] = settings.alpha.has_value();
  if (settings.alpha) given["alpha"] = *settings.alpha;
  given["beta"] = settings.beta ? nb::cast(*settings.beta) : nb::none();
  given["weights"] = settings.weighs_over_buffer ? "buffer" : "batch";
  if (options.has_sequences()) {
    given["sequence_length"] = options.sequence_length;
    given["period"] = options.period;
    given["burn_in"] = options.burn_in;
    given["pad_sequences"] = options.pad_sequences;
  }
  const std::string_view codec = codec_choice_name(options.codec);
  given["codec"] = nb::str(codec.data(), codec.size());
  const std::optional<HindsightOptions>& goals = options.hindsight;
  given["hindsight"] =
      goals ? nb::make_tuple(goals->achieved, goals->goal) : nb::object(nb::none());
  return given;
}

void PyReplayBuffer::load(const std::string& folder) {
  unwrap(check());
  const AddMark mark(*this);
  REVERIE_CHECK(buffer_ == nullptr);
  ReplaySettings settings;
  const std::shared_ptr<ReplayBuffer> opened = unwrap(without_gil([&] {
    return load_replay(FileSystem::system(), folder, service_, kTable, options_, chunk_seed_,
                       settings, Interruption(Waiting::for_signals().interrupted));
  }));
  structures_ = settings.structures;
  update_count_ = static_cast<std::size_t>(settings.update_count);
  set_buffer(opened);
}

void PyReplayBuffer::set_buffer(std::shared_ptr<ReplayBuffer> buffer) {
  buffer_ = std::move(buffer);
  MutexLock lock(opened_mutex_);
  is_opened_ = true;
  opened_.notify_all();
}

void PyReplayBuffer::wait_for_buffer(TimePoint deadline) const {
  if (buffer_ || Clock::system().now() >= deadline) return;
  wait_in_slices(deadline, [this](TimePoint until) {
    MutexLock lock(opened_mutex_);
    while (!is_opened_ && Clock::system().wait_until(opened_, opened_mutex_, until)) {
    }
    return is_opened_ || !service_->check_open().ok();
  });
  unwrap(service_->check_open());
}

// The first step determines the columns.
std::shared_ptr<ReplayBuffer> PyReplayBuffer::open(const StepArrays& step) {
  return unwrap(ReplayBuffer::open(service_, kTable, options_,
                                   specs("obs", obs_, step.has_env_axis),
                                   specs("action", action_, step.has_env_axis), chunk_seed_));
}

std::vector<TensorSpec> PyReplayBuffer::specs(const char* what, const NestArgument& argument,
                                              bool has_env_axis) const {
  std::vector<TensorSpec> made;
  for (std::size_t i = 0; i < argument.leaves().size(); ++i) {
    const TensorView& leaf = argument.leaves()[i];
    const std::string& path = argument.path(i);
    Shape shape(leaf.shape.begin(), leaf.shape.end());
    if (has_env_axis) {
      if (shape.empty() || shape[0] != options_.env_count) {
        raise(invalid_argument(
            "{} has the shape {}; its first axis must be num_envs={}{}",
            path.empty() ? std::string(what) : format("{} column '{}'", what, path),
            shape_text(leaf.shape), options_.env_count,
            shape.empty() ? ": give an array, as a list is a nest of columns" : ""));
      }
      shape.erase(shape.begin());
    }
    made.push_back({path, leaf.dtype, std::move(shape)});
  }
  return made;
}

nb::object PyReplayBuffer::sample(nb::handle batch_size, nb::handle given_beta, nb::handle distinct,
                                  nb::handle timeout_s, nb::handle out, nb::handle output,
                                  nb::handle device, nb::handle pin_memory) {
  unwrap(check());
  if (!output.is_none() || !device.is_none() || pin_memory.ptr() != Py_False) {
    const nb::object convert =
        nb::module_::import_("reverie.replay_output").attr("converter")(output, device, pin_memory);
    return convert(sample(batch_size, given_beta, distinct, timeout_s, out, nb::none(), nb::none(),
                          nb::handle(Py_False)));
  }
  ReplayBufferDraw draw;
  draw.count = integer_argument<std::size_t>("batch_size", batch_size, 1, kBatchMax);
  draw.distinct = flag_argument("distinct", distinct);
  // The default deadline, which has passed, says that no time was given.
  const std::optional<Duration> timeout = timeout_argument(timeout_s);
  if (timeout != Duration(0)) draw.deadline = deadline(timeout_s);
  draw.beta = beta(given_beta);
  draw.over_buffer = weighs_over_buffer_;
  wait_for_buffer(draw.deadline);
  const std::shared_ptr<ReplayBuffer> buffer = this->buffer();
  if (!arrays_ || arrays_->count() != draw.count) {
    arrays_ = std::make_shared<const ReplayArrays>(ReplayBatchLayout(buffer->plan(), draw.count));
  }
  // Copied, since another thread may sample while arrays are made, and replace it by one of another
  // size.
  const std::shared_ptr<const ReplayArrays> sizes = arrays_;
  nb::object batch = nb::borrow(out);
  std::optional<FillMark> mark;
  std::vector<nb::object> arrays;
  if (out.is_none()) {
    arrays = sizes->make();
    batch = sizes->fold(structures_, arrays);
    mark.emplace(*this, batch);
  } else {
    mark.emplace(*this, batch);  // before another call's arrays are replaced
    bool has_made = false;
    arrays = sizes->find(out, structures_, is_finished_ ? &has_made : nullptr);
    if (has_made && PyDict_Update(out.ptr(), sizes->fold(structures_, arrays).ptr()) < 0) {
      raise_pending();
    }
  }
  std::vector<std::byte*> places;
  places.reserve(arrays.size());
  for (const nb::object& array : arrays) places.push_back(array_data(array));
  const ReplayBufferTargets targets = sizes->layout().targets(places);
  Waiting waiting(*service_, kTable);
  const bool is_brief = draw.count <= kBriefItems && sizes->layout().size_bytes() <= kBriefBytes;
  unwrap(without_gil_in_waits(is_brief, waiting.options(), [&](const WaitOptions& wait) {
    return buffer->sample(draw, targets, wait);
  }));
  if (is_finished_) return nb::find(this).attr("_finished")(batch);
  return batch;
}

nb::object PyReplayBuffer::read(nb::handle begin, nb::handle count) {
  unwrap(check());
  const auto skip = integer_argument<std::size_t>("begin", begin, 0);
  const auto wanted = integer_argument<std::size_t>("count", count, 1, kBatchMax);
  const std::shared_ptr<ReplayBuffer> buffer = this->buffer();
  SampleBatch items = without_gil([&] { return table_->read(skip, wanted); });
  if (items.empty()) return nb::none();
  const ReplayArrays sizes(ReplayBatchLayout(buffer->plan(), items.size()));
  const std::vector<nb::object> arrays = sizes.make();
  nb::object batch = sizes.fold(structures_, arrays);
  std::vector<std::byte*> places;
  for (const nb::object& array : arrays) places.push_back(array_data(array));
  const ReplayBufferTargets targets = sizes.layout().targets(places);
  unwrap(without_gil([&] { return buffer->gather(items.trajectories(), targets.transitions); }));
  std::ranges::copy(items.tickets(), targets.tickets);
  std::fill_n(targets.weights, items.size(), 1.0f);
  return batch;
}

std::size_t PyReplayBuffer::update_priorities(nb::handle tickets, nb::handle priorities) {
  unwrap(check());
  const std::vector<std::uint64_t> given = read_tickets(tickets);
  const std::vector<double> values = read_priorities(priorities);
  const std::shared_ptr<ReplayBuffer> buffer = this->buffer();
  Waiting waiting(*service_, kTable);
  const bool is_brief = given.size() <= kBriefItems;
  const std::size_t updated =
      unwrap(without_gil_in_waits(is_brief, waiting.options(), [&](const WaitOptions& wait) {
        return buffer->update(given, values, wait);
      }));
  ++update_count_;
  return updated;
}

void PyReplayBuffer::clear() {
  unwrap(check());
  const AddMark mark(*this);
  const std::shared_ptr<ReplayBuffer> buffer = buffer_;
  if (!buffer) return;
  Waiting waiting(*service_, kTable);
  const WaitOptions wait = waiting.options();
  unwrap(without_gil([&] { return buffer->clear(wait); }));
}

void PyReplayBuffer::close() {
  unwrap(check());
  without_gil([&] { service_->close(); });
}

std::size_t PyReplayBuffer::size() const {
  unwrap(check());
  return table_->size();
}
std::int64_t PyReplayBuffer::stale_updates() const {
  unwrap(check());
  return table_->info().missing_updates;
}
nb::dict PyReplayBuffer::stats() const {
  unwrap(check());
  const StepCounts counts =
      buffer_ ? without_gil([buffer = buffer_] { return buffer->counts(); }) : StepCounts();
  nb::dict stats;
  stats["items"] = table_->size();
  stats["steps"] = counts.steps;
  stats["episodes"] = counts.episodes;
  stats["cuts"] = counts.cuts;
  stats["updates"] = update_count_;
  stats["stale_updates"] = table_->info().missing_updates;
  return stats;
}
double PyReplayBuffer::max_priority() const {
  unwrap(check());
  return table_->info().max_priority;
}
std::size_t PyReplayBuffer::memory_bytes() const {
  unwrap(check());
  return table_->memory_bytes() + static_cast<std::size_t>(service_->used_bytes());
}

const std::shared_ptr<ReplayBuffer>& PyReplayBuffer::buffer() const {
  if (!buffer_) {
    raise(failed_precondition(
        "the replay buffer has no items to sample, and learns what they are from the first add(); "
        "add steps first"));
  }
  return buffer_;
}

std::optional<double> PyReplayBuffer::beta(nb::handle given) const {
  if (!is_prioritized_) return std::nullopt;
  return checked_beta(!given.is_valid() || given.is_none() ? nb::handle(beta_) : given);
}

double PyReplayBuffer::checked_beta(nb::handle source) const {
  double value = 0;
  std::string name = "beta";
  if (PyFloat_Check(source.ptr()) || PyCallable_Check(source.ptr()) == 0) {
    value = number_argument("beta", source);
  } else {
    name = format("beta({})", update_count_);
    const nb::object given = source(update_count_);
    if (PyNumber_Check(given.ptr()) == 0) {
      raise_type_error(
          format("{} is {}; beta must be a number, or a function that gives one for the number of "
                 "updates so far",
                 name, shown(given)));
    }
    value = number_argument(name, given);
  }
  if (!std::isfinite(value) || value < 0) {
    raise(invalid_argument("{} is {}; it must be finite and >= 0", name, value));
  }
  return value;
}

}  // namespace reverie::python
