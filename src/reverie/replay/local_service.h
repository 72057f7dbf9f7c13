// LocalService: the store in this process.
//
//     auto service = LocalService::open({table_options}, {});
//     sample_and_wait(**service, {.table = "replay", .count = 256});
//
// A ReplayService over a set of tables that share one chunk store. Its only thread is one for
// deadlines, started with the first waiting request that has one; it also serves inserts that wait
// for room which a released pin has freed.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/base/fork.h"
#include "reverie/record/store_origin.h"
#include "reverie/replay/registry.h"
#include "reverie/replay/table.h"
#include "reverie/service/replay_service.h"

namespace reverie {

struct StoreOptions {
  // A bound on all items and the chunks that they refer to, each counted once. An insert beyond it
  // waits, then fails; but a full table, or one that has evicted and whose samples remove nothing,
  // evicts all but one of its items at most. So each table may exceed the bound by one item.
  std::optional<std::int64_t> max_bytes;
  // Where chunks are kept; null: only in memory. Required by tables with memory_bytes; it gets
  // their bounds.
  std::shared_ptr<ChunkMemory> memory = nullptr;
  Clock* clock = nullptr;              // null: the system's; outlives the service
  const Registry* registry = nullptr;  // null: the included components
};

// Writes a store's checkpoints: checkpoint/checkpoint_worker.h. Thread-safe.
class StoreCheckpoints {
 public:
  using Done = ReplayService::Done<Result<std::string>>;
  // The first bits of its request ids, which no table uses.
  static constexpr RequestId kCheckpointIds = RequestId{0xffff} << 48;

  virtual ~StoreCheckpoints() = default;
  virtual RequestId checkpoint(std::vector<std::byte> payload, Done done) = 0;
  virtual void cancel(RequestId id) = 0;
  // Ends what is being written, and everything that waits, with CANCELLED.
  virtual void stop() = 0;
  virtual StoreOrigin origin() const = 0;
  // Begins a stop(), and does not wait for it. Nothing is accepted any more.
  virtual void abandon() = 0;
  // Whether the calling thread is one that stop() waits for.
  virtual bool is_own_thread() const = 0;
};

class LocalService final : public ReplayService {
 public:
  // INVALID_ARGUMENT: no table, two of one name, or invalid options; see TableCore::make. If a
  // thread of the store drops the last reference, another one ends it, soon after.
  static Result<std::shared_ptr<LocalService>> open(std::vector<TableOptions> tables,
                                                    StoreOptions options);
  ~LocalService() override;

  RequestId insert(InsertRequest request, Done<InsertResult> done) override;
  std::size_t insert_at_once(std::string_view table, std::span<Item> items) override;
  std::size_t insert_views(std::string_view table, std::span<const TrajectoryView> items) override;
  RequestId sample(SampleRequest request, Done<SampleResult> done) override;
  const std::atomic<double>* mass(std::string_view table) override;
  std::optional<std::size_t> hand_back(std::string_view table, SampleBatch& batch) override;
  std::vector<SessionNumbers> known_sessions() override { return known_sessions_; }
  void settle(std::string_view session, std::uint64_t below) override;
  void receive(std::string_view table, std::span<const DrawId> draws) override;
  bool keeps_receipts(std::string_view table) override;
  AheadReaders* ahead_readers() override { return &ahead_readers_; }
  ChunkMemory* chunk_memory() override { return context_->memory.get(); }
  Status check_mutation(const MutateRequest& request) override;
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override;
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override;
  RequestId reset(std::string_view table, Done<Status> done) override;
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override;
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override;
  RequestId new_client(Done<Result<std::uint64_t>> done) override;
  void cancel(RequestId id) override;
  // Also waits for completions that another thread of the store runs: that of the deadlines, and
  // those of a log and of checkpoints, on which it must not be called. A second caller waits too.
  void close() override;

  // Only an embedded store offers this. NOT_FOUND lists the existing tables.
  Result<Table*> table(std::string_view name);
  // CANCELLED once closed.
  Status check_open() const;
  // All tables at one moment, in their order. CANCELLED once closed, FAILED_PRECONDITION while an
  // earlier snapshot is held. `log_position`, unless null, is set to the log's position, if any.
  Result<std::vector<std::unique_ptr<TableSnapshot>>> freeze(std::uint64_t* log_position = nullptr);
  // Nanoseconds since 1970 minus this store's clock.
  std::int64_t calendar_offset_ns() const { return context_->calendar_offset_ns; }
  // Writes all tables, as they are at one moment, and `payload` to a checkpoint on disk;
  // returns its path once it is durable. UNIMPLEMENTED for a store without a place for
  // checkpoints.
  RequestId checkpoint(std::span<const std::byte> payload, Done<Result<std::string>> done);
  // Call before the store is shared.
  void set_checkpoints(std::unique_ptr<StoreCheckpoints> checkpoints) {
    checkpoints_ = std::move(checkpoints);
  }
  // From now on the log gets every change of its tables. Call it before the store is shared.
  void set_log(std::unique_ptr<StoreLog> log);
  void set_known_sessions(std::vector<SessionNumbers> sessions) {
    known_sessions_ = std::move(sessions);
  }
  // Null for a store without a log.
  StoreLog* log() const { return log_.get(); }
  // Null for a store that writes no checkpoints.
  const StoreCheckpoints* checkpoints() const { return checkpoints_.get(); }
  // The checkpoint that the store was loaded from.
  StoreOrigin origin() const { return checkpoints_ ? checkpoints_->origin() : StoreOrigin(); }
  // Bytes of the chunks that items refer to.
  std::int64_t used_bytes() const { return context_->chunks.used_bytes(); }

 private:
  explicit LocalService(std::shared_ptr<StoreContext> context) : context_(std::move(context)) {}
  static void end(LocalService* store);
  // For calls that a table does not refuse by itself once the store is closed.
  Result<Table*> open_table(std::string_view name);
  // Has every table check again the inserts that wait for room.
  void serve_all();

  const std::shared_ptr<StoreContext> context_;
  // Fixed once open. The names, sorted, are apart from the tables: a look-up must not touch cache
  // lines that the other tables' threads write.
  std::vector<std::shared_ptr<Table>> tables_;
  std::vector<std::pair<std::string_view, Table*>> by_name_;
  std::atomic<int> serve_requests_{0};
  std::atomic<bool> closed_{false};
  std::atomic<std::uint64_t> client_count_{0};
  std::unique_ptr<StoreLog> log_;
  std::vector<SessionNumbers> known_sessions_;
  std::unique_ptr<StoreCheckpoints> checkpoints_;
  AheadReaders ahead_readers_;
  Mutex close_mutex_;  // held while the log and the checkpoints end
  ForkGuard fork_guard_;
};

}  // namespace reverie
