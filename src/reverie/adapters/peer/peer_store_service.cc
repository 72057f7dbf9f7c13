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
      new PeerStoreService(std::move(store), loops, options.hello_timeout));
}

PeerStoreService::~PeerStoreService() {
  close();
}

DoorProtocol PeerStoreService::protocol() {
  DoorProtocol protocol;
  protocol.name = "reverie-store";
  protocol.first_bytes = {std::string(store_wire::kFirstBytes)};
  // It may be called after this object has ended.
  protocol.serve = [store = store_, open = open_,
                    timeout = hello_timeout_](AcceptedConnection incoming) {
    serve(store, open, timeout, std::move(incoming));
  };
  return protocol;
}

void PeerStoreService::serve(AcceptedConnection incoming) {
  serve(store_, open_, hello_timeout_, std::move(incoming));
}

void PeerStoreService::serve(const std::shared_ptr<PeerStore>& store,
                             const std::shared_ptr<Open>& open, Duration hello_timeout,
                             AcceptedConnection incoming) {
  // Another machine's clients speak gRPC, which encrypts.
  if (!incoming.connection->is_peer_local()) return;
  IoLoop& loop = incoming.connection->loop();
  auto held = std::make_shared<AcceptedConnection>(std::move(incoming));
  loop.post([store, open, hello_timeout, held, &loop] {
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
    timer->start(hello_timeout, [weak = std::weak_ptr(connection)] {
      const auto alive = weak.lock();
      if (alive && !alive->is_open()) {
        alive->end_now(deadline_exceeded("the client did not complete its handshake in time"));
      }
    });
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
