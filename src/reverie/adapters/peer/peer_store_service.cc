// Tested in tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/peer_store_service.h"

#include <algorithm>
#include <utility>

#include "reverie/adapters/peer/peer_store.h"
#include "reverie/adapters/peer/store_connection.h"
#include "reverie/service/blocking.h"

namespace reverie {

Result<std::unique_ptr<PeerStoreService>> PeerStoreService::make(
    std::shared_ptr<ReplayService> service, LinkLoops& loops,
    const PeerStoreServiceOptions& options) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<TableInfo> infos, info_and_wait(*service));
  auto store = std::make_shared<PeerStore>(std::move(service),
                                           options.clock ? *options.clock : Clock::system());
  for (const TableInfo& info : infos) {
    store->tables[info.options.name] = {wire::ColumnNames::of(info.options.signature),
                                        info.options.undoes_unsent,
                                        store->service->keeps_receipts(info.options.name)};
  }
  store->token = options.token;
  store->codec = options.codec;
  store->kept_bytes_max = options.kept_bytes_max;
  store->message_bytes_max = options.message_bytes_max;
  store->leased_bytes_max = options.leased_bytes_max;
  store->in_flight = options.in_flight;
  store->checkpoints = options.checkpoints;
  store->sessions =
      options.sessions ? options.sessions : insert_sessions_of(*store->service, store->clock);
  return std::unique_ptr<PeerStoreService>(
      new PeerStoreService(std::move(store), loops, options.timeouts));
}

PeerStoreService::~PeerStoreService() {
  close();
}

DoorProtocol PeerStoreService::protocol() {
  DoorProtocol protocol;
  protocol.name = "reverie-store";
  protocol.first_bytes = {std::string(store_wire::kFirstBytes)};
  // It may be called after this object has ended.
  protocol.serve = [store = store_, open = open_](AcceptedConnection incoming) {
    serve(store, open, std::move(incoming));
  };
  protocol.make_way = [open = open_] { return open->close_longest_idle(); };
  protocol.idle_since = [open = open_] { return open->idle_since(); };
  return protocol;
}

const PeerStoreService::Open::One* PeerStoreService::Open::longest_idle() {
  const auto longest = std::ranges::min_element(
      connections, {}, [](const One& one) { return one.connection->idle_since(); });
  const bool is_idle =
      longest != connections.end() && longest->connection->idle_since() != TimePoint::max();
  return is_idle ? &*longest : nullptr;
}

std::optional<TimePoint> PeerStoreService::Open::idle_since() {
  MutexLock lock(mutex);
  const One* const longest = longest_idle();
  if (longest == nullptr) return std::nullopt;
  return longest->connection->idle_since();
}

bool PeerStoreService::Open::close_longest_idle() {
  MutexLock lock(mutex);
  const One* const longest = longest_idle();
  if (longest == nullptr) return false;
  longest->connection->mark_in_use();
  longest->loop->post([weak = std::weak_ptr(longest->connection)] {
    if (const auto alive = weak.lock()) {
      alive->leave_if_idle(unavailable("the server has no descriptors left; connect again"));
    }
  });
  return true;
}

namespace {

// Ends a connection that is silent for too long, and looks again when that is possible.
void watch(const std::shared_ptr<LoopTimer>& timer,
           const std::weak_ptr<StoreConnection>& connection,
           const PeerStoreServiceOptions::Timeouts& timeouts, TimePoint accepted_at,
           Duration pause) {
  timer->start(pause, [timer = std::weak_ptr(timer), connection, timeouts, accepted_at] {
    const auto own = timer.lock();
    const auto alive = connection.lock();
    if (!own || !alive) return;
    const TimePoint now = Clock::system().now();
    const Duration shortest = std::min({timeouts.hello, timeouts.first_call, timeouts.idle});
    if (!alive->is_open()) {
      const Duration left = timeouts.hello - (now - accepted_at);
      if (left > Duration::zero()) {
        return watch(own, connection, timeouts, accepted_at, std::min(left, shortest));
      }
      return alive->end_now(deadline_exceeded("the client did not complete its handshake in time"));
    }
    const Duration bound = alive->had_request() ? timeouts.idle : timeouts.first_call;
    const TimePoint since = alive->idle_since();
    const Duration left = since == TimePoint::max() ? bound : bound - (now - since);
    if (left <= Duration::zero()) {
      alive->mark_in_use();
      alive->leave_if_idle(unavailable("the connection has had no request for too long"));
      if (!alive->is_open()) return;  // else it is in use
    }
    watch(own, connection, timeouts, accepted_at, left > Duration::zero() ? left : bound);
  });
}

}  // namespace

void PeerStoreService::serve(AcceptedConnection incoming) {
  serve(store_, open_, std::move(incoming));
}

void PeerStoreService::serve(const std::shared_ptr<PeerStore>& store,
                             const std::shared_ptr<Open>& open, AcceptedConnection incoming) {
  // Another machine's clients speak gRPC, which encrypts.
  if (!incoming.connection->is_peer_local()) return;
  IoLoop& loop = incoming.connection->loop();
  auto held = std::make_shared<AcceptedConnection>(std::move(incoming));
  loop.post([store, open, held, &loop] {
    const auto timer = std::make_shared<LoopTimer>(loop);
    const auto connection = StoreConnection::make(
        store,
        [&](std::weak_ptr<StoreLinkEvents> events, const FrameLimits& limits) {
          return StoreLink::make(open->loops, std::move(held->connection), std::move(events),
                                 limits);
        },
        std::move(held->place),
        [open, timer](const StoreConnection* ended) {
          timer->cancel();
          std::shared_ptr<StoreConnection> gone;
          MutexLock lock(open->mutex);
          const auto found = std::ranges::find(open->connections, ended, [](const auto& known) {
            return static_cast<const StoreConnection*>(known.connection.get());
          });
          if (found == open->connections.end()) return;
          gone = std::move(found->connection);
          open->connections.erase(found);
        });
    bool is_closed = false;
    {
      MutexLock lock(open->mutex);
      is_closed = open->is_closed;
      if (!is_closed) open->connections.push_back({connection, &loop});
    }
    if (is_closed) return connection->end_now(unavailable("the server has stopped"));
    const auto& timeouts = open->timeouts;
    watch(timer, connection, timeouts, Clock::system().now(),
          std::min({timeouts.hello, timeouts.first_call, timeouts.idle}));
    connection->start(held->received);
  });
}

void PeerStoreService::close() {
  std::vector<Open::One> connections;
  {
    MutexLock lock(open_->mutex);
    open_->is_closed = true;
    connections = open_->connections;
  }
  for (Open::One& one : connections) {
    one.loop->run_and_wait([&one] {
      one.connection->end_now({});
      one.connection = nullptr;
    });
  }
}

PeerStoreFigures PeerStoreService::figures() const {
  return {store_->inserts.load(),        store_->samples.load(),     store_->unsent_samples.load(),
          store_->undone_samples.load(), store_->connections.load(), store_->leased_bytes.load()};
}

}  // namespace reverie
