#include "reverie/replay/local_service.h"

#include <algorithm>
#include <set>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/base/start_thread.h"

namespace reverie {
namespace {

// Request ids of table i are above i << kTableShift.
constexpr int kTableShift = 48;

const Registry& shipped_components() {
  static const auto* const registry = new Registry;
  return *registry;
}

}  // namespace

Result<std::shared_ptr<LocalService>> LocalService::open(std::vector<TableOptions> tables,
                                                         StoreOptions options) {
  if (tables.empty()) return invalid_argument("a store needs at least one table; none was given");
  if (options.max_bytes && *options.max_bytes < 1) {
    return invalid_argument("max_bytes of the store is {}; it must be at least 1",
                            *options.max_bytes);
  }
  std::set<std::string> names;
  for (const TableOptions& table : tables) {
    if (!names.insert(table.name).second) {
      return invalid_argument("two tables are named '{}'; give each table a name of its own",
                              table.name);
    }
  }
  auto context = std::make_shared<StoreContext>(options.max_bytes,
                                                options.clock ? *options.clock : Clock::system());
  REVERIE_ASSIGN_OR_RETURN(auto holders, ChunkHolders::make(tables, options.memory));
  context->memory = std::move(options.memory);
  context->chunks.set_holders(std::move(holders));
  auto service = std::shared_ptr<LocalService>(new LocalService(context), &LocalService::end);
  const Registry& registry = options.registry ? *options.registry : shipped_components();
  for (TableOptions& table : tables) {
    REVERIE_ASSIGN_OR_RETURN(auto core,
                             TableCore::make(std::move(table), registry, context->chunks));
    const RequestId id_base = static_cast<RequestId>(service->tables_.size()) << kTableShift;
    service->tables_.push_back(std::make_shared<Table>(std::move(core), context, id_base));
    Table* const opened = service->tables_.back().get();
    service->by_name_.emplace_back(opened->options().name, opened);
  }
  std::ranges::sort(service->by_name_);
  context->on_room = [raw = service.get()] { raw->serve_all(); };
  // Called by a writer's thread, possibly after the store has ended.
  context->chunks.set_on_shrunk([weak = std::weak_ptr(service)](const Chunk& chunk) {
    const auto shrunk = weak.lock();
    if (!shrunk) return;
    ChunkStore& chunks = shrunk->context_->chunks;
    if (ChunkHolders* const kept = chunks.holders()) kept->on_moved(chunk);
    if (chunks.has_waiters()) shrunk->serve_all();
  });
  return service;
}

// A thread of the store cannot wait for its own end.
void LocalService::end(LocalService* store) {
  const bool is_own = store->context_->timers.is_own_thread() ||
                      (store->log_ && store->log_->is_own_thread()) ||
                      (store->checkpoints_ && store->checkpoints_->is_own_thread());
  if (!is_own || !store->fork_guard_.check("store").ok()) return delete store;
  auto ending = start_thread("the end of a store", [store] { delete store; });
  if (ending.ok()) return ending->detach();
  log_warning("a store stays open as long as the process: {}", ending.status().message());
}

LocalService::~LocalService() {
  if (!fork_guard_.check("store").ok()) return;  // the threads and locks belong to the parent
  close();
  context_->timers.stop();
  context_->on_room = nullptr;
}

RequestId LocalService::insert(InsertRequest request, Done<InsertResult> done) {
  const auto found = table(request.table);
  if (found.ok()) return (*found)->insert(request, std::move(done));
  done({found.status(), 0});
  return 0;
}

std::size_t LocalService::insert_at_once(std::string_view table_name, std::span<Item> items) {
  auto found = table(table_name);
  return found.ok() ? (*found)->insert_at_once(items) : 0;
}

std::size_t LocalService::insert_views(std::string_view table_name,
                                       std::span<const TrajectoryView> items) {
  auto found = table(table_name);
  return found.ok() ? (*found)->insert_views(items) : 0;
}

RequestId LocalService::sample(SampleRequest request, Done<SampleResult> done) {
  const auto found = table(request.table);
  if (found.ok()) return (*found)->sample(std::move(request), std::move(done));
  request.batch.clear();
  done({found.status(), std::move(request.batch)});
  return 0;
}

const std::atomic<double>* LocalService::mass(std::string_view name) {
  auto found = table(name);
  return found.ok() ? &(*found)->mass() : nullptr;
}

std::optional<std::size_t> LocalService::hand_back(std::string_view name, SampleBatch& batch) {
  auto found = table(name);
  return found.ok() ? (*found)->hand_back(batch) : 0;
}

void LocalService::settle(std::string_view session, std::uint64_t below) {
  if (log_) log_->on_settle(session, below);
}

void LocalService::receive(std::string_view name, std::span<const DrawId> draws) {
  auto found = table(name);
  if (found.ok()) (*found)->receive(draws);
}

bool LocalService::keeps_receipts(std::string_view name) {
  auto found = table(name);
  return found.ok() && (*found)->keeps_receipts();
}

Status LocalService::check_mutation(const MutateRequest& request) {
  REVERIE_ASSIGN_OR_RETURN(Table* const found, open_table(request.table));
  return found->check_mutation(request);
}

RequestId LocalService::mutate(const MutateRequest& request, Done<MutateResult> done) {
  const auto found = open_table(request.table);
  MutateResult result;
  result.status = found.status();
  if (found.ok()) result = (*found)->mutate(request);
  if (found.ok() && (*found)->has_log() && result.updated + result.deleted > 0) {
    return (*found)->confirm(
        request.is_waited_for ? StoreLog::Caller::kWaits : StoreLog::Caller::kGoesOn,
        [done = std::move(done), result = std::move(result)](const Status& status) mutable {
          if (result.status.ok()) result.status = status;
          done(std::move(result));
        });
  }
  done(std::move(result));
  return 0;
}

RequestId LocalService::lookup(const LookupRequest& request, Done<LookupResult> done) {
  const auto found = open_table(request.table);
  LookupResult result;
  result.status = found.status();
  if (found.ok()) result = (*found)->lookup(request.keys);
  done(std::move(result));
  return 0;
}

RequestId LocalService::reset(std::string_view name, Done<Status> done) {
  auto found = open_table(name);
  Status status = found.status();
  const bool is_logged = status.ok() && (*found)->has_log();
  if (is_logged) status = log_->admit();
  if (status.ok()) {
    (*found)->reset();
    if (is_logged) return (*found)->confirm(StoreLog::Caller::kGoesOn, std::move(done));
  }
  done(std::move(status));
  return 0;
}

RequestId LocalService::info(Done<Result<std::vector<TableInfo>>> done) {
  if (Status status = check_open(); !status.ok()) {
    done(std::move(status));
    return 0;
  }
  std::vector<TableInfo> infos;
  for (const auto& table : tables_) infos.push_back(table->info());
  done(std::move(infos));
  return 0;
}

RequestId LocalService::why_blocked(std::string_view name, Done<Result<BlockedReport>> done) {
  const auto found = open_table(name);
  done(found.ok() ? (*found)->why_blocked() : Result<BlockedReport>(found.status()));
  return 0;
}

RequestId LocalService::new_client(Done<Result<std::uint64_t>> done) {
  done(++client_count_);
  return 0;
}

RequestId LocalService::checkpoint(std::span<const std::byte> payload,
                                   Done<Result<std::string>> done) {
  if (Status status = check_open(); !status.ok()) {
    done(std::move(status));
    return 0;
  }
  if (!checkpoints_) {
    done(unimplemented("this store writes no checkpoints; open it with a checkpointer"));
    return 0;
  }
  return checkpoints_->checkpoint({payload.begin(), payload.end()}, std::move(done));
}

void LocalService::cancel(RequestId id) {
  if (!fork_guard_.check("store").ok()) return;
  const bool is_checkpoint =
      (id & StoreCheckpoints::kCheckpointIds) == StoreCheckpoints::kCheckpointIds;
  const auto index = static_cast<std::size_t>(id >> kTableShift);
  if (is_checkpoint) {
    if (checkpoints_) checkpoints_->cancel(id);
  } else if (id != 0 && index < tables_.size()) {
    tables_[index]->cancel(id);
  }
}

void LocalService::close() {
  if (!fork_guard_.check("store").ok()) return;
  closed_ = true;
  // Before anything that waits for the disk, so that a checkpoint ends meanwhile.
  if (checkpoints_) checkpoints_->abandon();
  for (const auto& table : tables_) table->close();
  // A deadline that has just passed may be completing requests, which hold what their caller ends
  // next: a server's connections, and this store itself.
  context_->timers.stop();
  const MutexLock lock(close_mutex_);
  if (log_) log_->close();
  // This also releases the folder, in which the log must have written its last byte.
  if (checkpoints_) checkpoints_->stop();
}

void LocalService::set_log(std::unique_ptr<StoreLog> log) {
  log_ = std::move(log);
  for (std::uint32_t i = 0; i < tables_.size(); ++i) {
    if (log_->keeps(i)) tables_[i]->set_log(log_.get(), i);
  }
}

Status LocalService::check_open() const {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("store"));
  return closed_ ? cancelled("the store is closed") : Status();
}

Result<Table*> LocalService::open_table(std::string_view name) {
  REVERIE_ASSIGN_OR_RETURN(Table* const found, table(name));
  REVERIE_RETURN_IF_ERROR(check_open());
  return found;
}

Result<Table*> LocalService::table(std::string_view name) {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("store"));
  const auto found =
      std::ranges::lower_bound(by_name_, name, {}, &std::pair<std::string_view, Table*>::first);
  if (found != by_name_.end() && found->first == name) return found->second;
  std::string names;
  for (const auto& table : tables_) {
    names += (names.empty() ? "'" : ", '") + table->options().name + "'";
  }
  return not_found("there is no table '{}'; the tables are {}", name, names);
}

Result<std::vector<std::unique_ptr<TableSnapshot>>> LocalService::freeze(
    std::uint64_t* log_position) {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("store"));
  if (!log_ || log_position == nullptr) return Table::freeze(tables_);
  return Table::freeze(tables_, [&] { *log_position = log_->cut(); });
}

void LocalService::serve_all() {
  // Serving may free bytes again: the thread that is already serving does another round instead.
  if (serve_requests_.fetch_add(1) > 0) return;
  int served = 1;
  do {
    for (const auto& table : tables_) table->serve();
    served = serve_requests_.fetch_sub(served) - served;
  } while (served > 0);
}

}  // namespace reverie
