// Tested in tests/integration/served_store_test.cc.
#include "reverie/server/server.h"

#include <system_error>
#include <utility>

#include "reverie/base/format.h"
#include "reverie/base/start_thread.h"
#include "reverie/net/address.h"
#include "reverie/net/local_door.h"
#include "reverie/os/memory_size.h"

namespace reverie {
namespace {

// By default, clients' data in flight may take the memory divided by this.
constexpr std::size_t kMemoryPart = 8;

}  // namespace

Server::Server(std::shared_ptr<LocalService> store, std::unique_ptr<ReverbService> reverb,
               const ServerOptions& options)
    : store_(std::move(store)),
      reverb_(std::move(reverb)),
      io_threads_(options.io_thread_count),
      link_loops_(io_threads_),
      grpc_(io_threads_, options.grpc) {
  reverb_->add_to(grpc_);
}

// A server that does not listen yet.
Result<std::unique_ptr<Server>> Server::make(std::vector<TableOptions> tables,
                                             ServerOptions options) {
  if (options.addresses.empty()) {
    return invalid_argument("a server needs at least one address to listen at; none was given");
  }
  auto opened = options.checkpoints ? checkpoint::open_checkpointed(
                                          std::move(tables), options.store, *options.checkpoints)
                                    : LocalService::open(std::move(tables), options.store);
  REVERIE_ASSIGN_OR_RETURN(auto store, std::move(opened));
  options.grpc.in_flight = std::make_shared<ByteBudget>(
      options.in_flight_bytes_max.value_or(memory_size_bytes() / kMemoryPart));
  options.reverb.in_flight = options.grpc.in_flight;
  if (store->checkpoints() != nullptr) {
    options.reverb.checkpoints.write = [weak = std::weak_ptr(store)](std::string_view payload,
                                                                     auto done) {
      const std::shared_ptr<LocalService> alive = weak.lock();
      if (!alive) return done(cancelled("the store is closed"));
      alive->checkpoint(std::as_bytes(std::span(payload)), std::move(done));
    };
    options.reverb.checkpoints.origin = [weak = std::weak_ptr(store)] {
      const std::shared_ptr<LocalService> alive = weak.lock();
      return alive ? alive->origin() : StoreOrigin();
    };
  }
  if (!options.reverb.clock) options.reverb.clock = options.store.clock;
  options.reverb.sessions =
      insert_sessions_of(*store, options.reverb.clock ? *options.reverb.clock : Clock::system());
  REVERIE_ASSIGN_OR_RETURN(auto reverb, ReverbService::make(store, options.reverb));
  std::unique_ptr<Server> server;
  try {
    server.reset(new Server(std::move(store), std::move(reverb), options));
  } catch (const std::system_error& error) {
    return no_thread(format("{} I/O threads of a server", options.io_thread_count), error.what());
  }
  if (!options.serves_peers) return server;
  PeerStoreServiceOptions peers;
  peers.token = options.grpc.token;
  peers.kept_bytes_max = options.reverb.kept_bytes_max;
  peers.message_bytes_max = options.grpc.limits.message_bytes_max;
  peers.leased_bytes_max = options.peers_leased_bytes_max;
  peers.in_flight = options.grpc.in_flight;
  peers.codec = options.reverb.codec;
  peers.checkpoints = options.reverb.checkpoints;
  peers.sessions = options.reverb.sessions;
  peers.clock = options.reverb.clock;
  peers.timeouts = {options.grpc.hello_timeout, options.grpc.first_call_timeout,
                    options.grpc.idle_timeout};
  REVERIE_ASSIGN_OR_RETURN(server->peers_,
                           PeerStoreService::make(server->store_, server->link_loops_, peers));
  server->grpc_.add_protocol(server->peers_->protocol());
  return server;
}

Status Server::check(std::vector<TableOptions> tables, ServerOptions options) {
  const std::vector<std::string> addresses = options.addresses;
  options.checkpoints.reset();  // a check makes and locks nothing
  REVERIE_ASSIGN_OR_RETURN(const auto server, make(std::move(tables), std::move(options)));
  return server->grpc_.check(addresses);
}

Result<std::unique_ptr<Server>> Server::open(std::vector<TableOptions> tables,
                                             ServerOptions options) {
  const std::vector<std::string> addresses = options.addresses;
  const bool has_tls = options.grpc.tls.has_value();
  REVERIE_ASSIGN_OR_RETURN(auto server, make(std::move(tables), std::move(options)));
  REVERIE_ASSIGN_OR_RETURN(server->addresses_, server->grpc_.listen(addresses));
  REVERIE_ASSIGN_OR_RETURN(const Endpoint endpoint, parse_endpoint(server->addresses_.front()));
  server->port_ = endpoint.port;
  std::vector<std::string> doors = server->addresses_;
  if (addresses.front().starts_with("localhost:")) {
    // "localhost" is also [::1], if the machine has IPv6 and the port is free there.
    const std::string also = format("[::1]:{}", server->port_);
    if (server->grpc_.listen({also}).ok()) doors.push_back(also);
  }
  if (has_tls) return server;
  for (const std::string& address : doors) {
    // If another process has the name, clients still find the TCP port.
    if (address.starts_with("unix:")) continue;
    REVERIE_ASSIGN_OR_RETURN(const Endpoint at, parse_endpoint(address));
    REVERIE_ASSIGN_OR_RETURN(const auto resolved, resolve(at));
    static_cast<void>(server->grpc_.listen({local_door(resolved.front()).to_string()}));
  }
  return server;
}

Server::~Server() {
  if (fork_guard_.check("Server").ok()) stop();
}

void Server::stop(Duration grace) {
  if (!fork_guard_.check("Server").ok()) return;
  MutexLock lock(stop_mutex_);
  grpc_.begin_stop();
  reverb_->close();
  if (peers_) peers_->close();
  grpc_.stop(grace);
  io_threads_.stop();
}

}  // namespace reverie
