#include "reverie/client/trajectory_writer.h"

#include <atomic>
#include <cmath>
#include <string>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/log.h"
#include "reverie/client/in_flight.h"
#include "reverie/client/item_builder.h"
#include "reverie/client/step_buffer.h"
#include "reverie/client/table_signatures.h"

namespace reverie {
namespace {

constexpr double kLastFlushS = 1.0;

// The next number for a writer of this process that needs one.
std::uint64_t next_writer_number() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

constexpr std::string_view kName = "TrajectoryWriter";

}  // namespace

class TrajectoryWriter::State {
 public:
  State(std::shared_ptr<ReplayService> service, TrajectoryWriterOptions options, Clock& clock,
        std::unique_ptr<StepBuffer> steps, std::uint64_t seed)
      : service_(std::move(service)),
        options_(options),
        clock_(clock),
        steps_(std::move(steps)),
        keys_(seed),
        in_flight_(make_ref<InFlight>(clock)) {}
  ~State() {
    if (has_own_stream_ && fork_guard_.check(kName).ok()) service_->end_writer(number_);
  }

  // Ok if the call may continue; otherwise the error that it must return. Losses are reported once.
  Status enter() {
    REVERIE_RETURN_IF_ERROR(fork_guard_.check(kName));
    return in_flight_->has_changes() ? check_changes() : Status();
  }

  Status check_open() {
    REVERIE_RETURN_IF_ERROR(fork_guard_.check(kName));
    if (!closed()) return {};
    return failed_precondition("this {} is closed; open another one", kName);
  }

  // With `is_one_of_many` it neither reports losses nor waits for room in the queue.
  Status create_item(const NewItem& item, TimePoint deadline, const WaitOptions& wait,
                     bool is_one_of_many);
  Status flush(std::size_t max_pending, TimePoint deadline, const WaitOptions& wait);
  void close() {
    if (fork_guard_.check(kName).ok()) in_flight_->close(*service_);
  }
  void close_for_good();

  bool closed() const { return in_flight_->closed(); }
  std::size_t pending_items() const { return in_flight_->queued(); }
  bool may_wait(std::string_view table) const {
    return pending_items() >= options_.max_in_flight_items ||
           (options_.validate_items && !signatures_.knows(table));
  }
  StepBuffer& steps() { return *steps_; }

 private:
  Status check_changes();
  std::uint64_t number_for(std::string_view table);

  std::shared_ptr<ReplayService> service_;
  TrajectoryWriterOptions options_;
  Clock& clock_;
  ForkGuard fork_guard_;
  std::unique_ptr<StepBuffer> steps_;
  Random keys_;
  ItemBuilder builder_;
  TableSignatures signatures_;
  Ref<InFlight> in_flight_;
  std::string first_table_;
  std::uint64_t number_ = 0;  // once there is a second table
  bool has_own_stream_ = false;
};

// For InsertRequest::writer. Items sent on the other stream must be inserted first, so that they
// are not overtaken.
std::uint64_t TrajectoryWriter::State::number_for(std::string_view table) {
  if (has_own_stream_) return number_;
  if (number_ == 0) {
    if (first_table_ == table) return 0;
    if (first_table_.empty()) {
      first_table_ = table;
      return 0;
    }
    number_ = next_writer_number();
  }
  has_own_stream_ = pending_items() == 0;
  return has_own_stream_ ? number_ : 0;
}

Status TrajectoryWriter::State::check_changes() {
  REVERIE_RETURN_IF_ERROR(check_open());
  return in_flight_->take_losses();
}

Status TrajectoryWriter::State::create_item(const NewItem& item, TimePoint deadline,
                                            const WaitOptions& wait, bool is_one_of_many) {
  REVERIE_RETURN_IF_ERROR(is_one_of_many ? check_open() : enter());
  if (item.priority && std::isnan(*item.priority)) [[unlikely]] {
    return invalid_argument("the priority of an item for table '{}' is NaN; it must be a number",
                            item.table);
  }
  const Signature* signature = nullptr;
  if (options_.validate_items) {
    REVERIE_ASSIGN_OR_RETURN(signature,
                             signatures_.find(item.table, *service_, deadline, clock_, wait));
  }
  REVERIE_ASSIGN_OR_RETURN(Trajectory trajectory, builder_.build(item, *steps_));
  if (signature) {
    if (Status status = check_signature(trajectory.view(), *signature); !status.ok()) {
      return status.with_context(format("table '{}'", item.table));
    }
  }
  if (!is_one_of_many && pending_items() >= options_.max_in_flight_items) {
    REVERIE_RETURN_IF_ERROR(
        in_flight_->wait(*service_, options_.max_in_flight_items - 1, deadline, wait));
    REVERIE_RETURN_IF_ERROR(enter());
  }
  builder_.note_use();
  return in_flight_->insert(*service_, item.table,
                            {keys_.next(), item.priority, std::move(trajectory), item.version},
                            number_for(item.table));
}

Status TrajectoryWriter::State::flush(std::size_t max_pending, TimePoint deadline,
                                      const WaitOptions& wait) {
  REVERIE_RETURN_IF_ERROR(enter());
  REVERIE_RETURN_IF_ERROR(in_flight_->wait(*service_, max_pending, deadline, wait));
  REVERIE_RETURN_IF_ERROR(enter());
  steps_->note_flush();
  return {};
}

void TrajectoryWriter::State::close_for_good() {
  if (!fork_guard_.check(kName).ok() || closed()) return;
  const TimePoint deadline = clock_.now() + seconds(kLastFlushS);
  std::vector<std::string> losses;
  bool in_time = true;
  while (in_time) {
    in_time = in_flight_->wait(*service_, 0, deadline, WaitOptions()).ok() && pending_items() > 0;
    if (const Status lost = in_flight_->take_losses(); !lost.ok()) losses.push_back(lost.message());
  }
  const std::size_t queued = pending_items();
  in_flight_->close(*service_);
  if (queued > 0) {
    log_warning(
        "a {} was dropped without close(), and {} of its items were still waiting for their "
        "tables after {} s: they are lost; call flush() or end_episode() first",
        kName, queued, kLastFlushS);
  }
  for (const std::string& lost : losses) {
    log_warning("a {} was dropped without close(): {}", kName, lost);
  }
}

Result<std::unique_ptr<TrajectoryWriter>> TrajectoryWriter::open(
    std::shared_ptr<ReplayService> service, TrajectoryWriterOptions options) {
  REVERIE_CHECK(service != nullptr);
  if (options.max_in_flight_items == 0) {
    return invalid_argument("max_in_flight_items is 0; it must be at least 1");
  }
  Random random(options.seed);
  Allocator& allocator = options.allocator ? *options.allocator : chunk_allocator(*service);
  Clock& clock = options.clock ? *options.clock : Clock::system();
  REVERIE_ASSIGN_OR_RETURN(auto steps, StepBuffer::make(options.chunks, allocator, random.next()));
  return std::unique_ptr<TrajectoryWriter>(new TrajectoryWriter(std::make_unique<State>(
      std::move(service), options, clock, std::move(steps), random.next())));
}

TrajectoryWriter::TrajectoryWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

TrajectoryWriter::~TrajectoryWriter() {
  state_->close_for_good();
}

ColumnId TrajectoryWriter::column(std::string_view name) {
  return state_->steps().column(name);
}

Status TrajectoryWriter::configure(std::string_view name, ChunkOptions options) {
  REVERIE_RETURN_IF_ERROR(state_->enter());
  return state_->steps().configure(name, options);
}

Status TrajectoryWriter::append(std::span<const ColumnValue> values, bool partial_step) {
  REVERIE_RETURN_IF_ERROR(state_->enter());
  return state_->steps().append(values, partial_step);
}

Status TrajectoryWriter::create_item(const NewItem& item, TimePoint deadline,
                                     const WaitOptions& wait) {
  return state_->create_item(item, deadline, wait, /*is_one_of_many=*/false);
}

Status TrajectoryWriter::create_one_of_many(const NewItem& item, TimePoint deadline,
                                            const WaitOptions& wait) {
  return state_->create_item(item, deadline, wait, /*is_one_of_many=*/true);
}

Status TrajectoryWriter::take_losses() {
  return state_->enter();
}

Status TrajectoryWriter::flush(std::size_t max_pending, TimePoint deadline,
                               const WaitOptions& wait) {
  return state_->flush(max_pending, deadline, wait);
}

Status TrajectoryWriter::end_episode(bool clear_buffers, TimePoint deadline,
                                     const WaitOptions& wait) {
  REVERIE_RETURN_IF_ERROR(state_->flush(0, deadline, wait));
  state_->steps().end_episode(clear_buffers);
  return {};
}

void TrajectoryWriter::close() {
  state_->close();
}

bool TrajectoryWriter::closed() const {
  return state_->closed();
}

StepIndex TrajectoryWriter::next_step() const {
  return state_->steps().next_step();
}

bool TrajectoryWriter::step_is_open() const {
  return state_->steps().step_is_open();
}

StepIndex TrajectoryWriter::episode_begin() const {
  return state_->steps().episode_begin();
}

std::size_t TrajectoryWriter::episode_steps() const {
  return static_cast<std::size_t>(next_step() - episode_begin());
}

std::size_t TrajectoryWriter::column_count() const {
  return state_->steps().column_count();
}

std::string_view TrajectoryWriter::column_name(ColumnId column) const {
  return state_->steps().column_name(column);
}

const TensorSpec* TrajectoryWriter::column_spec(ColumnId column) const {
  return state_->steps().column_spec(column);
}

bool TrajectoryWriter::has_cell(ColumnId column, StepIndex step) const {
  return state_->steps().has_cell(column, step);
}

Result<TensorView> TrajectoryWriter::cell(ColumnId column, StepIndex step) const {
  return state_->steps().cell(column, step);
}

std::size_t TrajectoryWriter::pending_items() const {
  return state_->pending_items();
}

bool TrajectoryWriter::may_wait(std::string_view table) const {
  return state_->may_wait(table);
}

}  // namespace reverie
