// Binds server/server.h, adapters/reverb/reverb_client.h and shards/sharded_service.h: both ends of
// a socket.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/bind.h"
#include "python/bindings/checkpoints.h"
#include "python/bindings/client.h"
#include "python/bindings/convert.h"
#include "python/bindings/registry.h"
#include "python/bindings/table_info.h"
#include "reverie/adapters/peer/link_loops.h"
#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/base/fork.h"
#include "reverie/net/address.h"
#include "reverie/server/server.h"
#include "reverie/shards/sharded_service.h"

namespace reverie::python {
namespace {

constexpr std::size_t kClientThreads = 2;

// The threads that all clients of this process share. Never destroyed: clients may outlive the
// interpreter. A forked child gets its own.
IoThreads& client_threads() {
  static std::uint32_t generation = 0;
  static IoThreads* threads = nullptr;
  if (threads == nullptr || generation != fork_generation()) {
    threads = new IoThreads(kClientThreads);  // throws where there are no threads
    generation = fork_generation();
  }
  return *threads;
}

// The same threads, which also poll the memory that clients share with their servers.
LinkLoops& client_loops() {
  static std::uint32_t generation = 0;
  static LinkLoops* loops = nullptr;
  if (loops == nullptr || generation != fork_generation()) {
    loops = new LinkLoops(client_threads());
    generation = fork_generation();
  }
  return *loops;
}

class PyServer {
 public:
  explicit PyServer(std::unique_ptr<Server> server) : server_(std::move(server)) {}
  PyServer(PyServer&&) = default;
  ~PyServer() {
    if (!server_) return;
    const GilReleased released;
    server_.reset();
  }

  ClientHandle client(bool raises_corrupt) const {
    check();
    return ClientHandle(server_->store(), server_->store(), on_corrupt_of(raises_corrupt));
  }
  nb::list info() const {
    check();
    return table_infos(*server_->store());
  }
  std::map<std::string, double> extension_summary(nb::handle table, std::size_t index) const {
    check();
    Table* const found = unwrap(server_->store()->table(text_argument("table", table)));
    return without_gil([&] { return found->extension_summary(index); });
  }
  nb::object loaded() const {
    check();
    return loaded_checkpoint(server_->store()->origin());
  }
  nb::object journal_error() const {
    check();
    return python::journal_error(*server_->store());
  }
  std::vector<std::string> addresses() const { return server_->addresses(); }
  std::uint16_t port() const { return server_->port(); }
  std::map<std::string, std::uint64_t> figures() const {
    const ReverbFigures figures = server_->figures();
    const GrpcServerFigures door = without_gil([&] { return server_->connections(); });
    const PeerStoreFigures peers = server_->peers();
    return {{"inserts", figures.inserts + peers.inserts},
            {"samples", figures.samples + peers.samples},
            {"unsent_samples", figures.unsent_samples + peers.unsent_samples},
            {"undone_samples", figures.undone_samples + peers.undone_samples},
            {"connections", door.connection_count + peers.connections},
            {"peer_connections", peers.connections},
            {"peer_leased_bytes", peers.leased_bytes},
            {"calls", door.call_count},
            {"held_bytes", door.held_bytes},
            {"bytes_received", door.bytes_received},
            {"bytes_sent", door.bytes_sent}};
  }
  void stop(nb::handle grace_s) const {
    check();
    const double grace = number_argument("grace_s", grace_s);
    without_gil([&] { server_->stop(seconds(grace)); });
  }

 private:
  void check() const { unwrap(fork_guard_.check("Server")); }

  std::unique_ptr<Server> server_;
  ForkGuard fork_guard_;
};

// Sets limits by the names of `reverie.ServerLimits`; absent ones are unchanged.
void set_limits(ServerOptions& server, const std::map<std::string, std::size_t>& limits) {
  const auto set = [&limits](const char* name, auto& bound) {
    const auto found = limits.find(name);
    if (found != limits.end())
      bound = static_cast<std::remove_cvref_t<decltype(bound)>>(found->second);
  };
  set("connections", server.grpc.connection_count_max);
  set("calls", server.grpc.limits.call_count_max);
  set("message_bytes", server.grpc.limits.message_bytes_max);
  set("connection_bytes", server.grpc.limits.connection_bytes_max);
  set("unread_bytes", server.grpc.limits.queued_bytes_max);
  set("stream_bytes", server.reverb.kept_bytes_max);
  set("bytes_in_flight", server.in_flight_bytes_max);
  const auto set_time = [&limits](const char* name, Duration& bound) {
    const auto found = limits.find(name);
    if (found != limits.end()) bound = std::chrono::seconds(found->second);
  };
  set_time("first_call_s", server.grpc.first_call_timeout);
  set_time("idle_s", server.grpc.idle_timeout);
}

std::vector<TableOptions> tables_options(nb::list tables) {
  std::vector<TableOptions> options;
  for (nb::handle table : tables) options.push_back(table_options(nb::cast<nb::dict>(table)));
  return options;
}

ServerOptions server_options(nb::handle max_bytes, nb::handle memory,
                             std::vector<std::string> addresses, std::string token, bool insecure,
                             nb::handle tls, const std::map<std::string, std::size_t>& limits,
                             const std::string& codec) {
  ServerOptions server;
  const std::optional<CodecChoice> choice = codec_choice_from_name(codec);
  if (!choice) {
    raise(invalid_argument("codec is '{}'; it must be 'auto', 'raw', 'lz4' or 'zstd'", codec));
  }
  server.reverb.codec = *choice;
  if (!max_bytes.is_none()) server.store.max_bytes = integer_argument("max_bytes", max_bytes, 1);
  server.store.registry = &registry();
  server.store.memory = chunk_memory(memory);
  server.addresses = std::move(addresses);
  server.grpc.token = std::move(token);
  server.grpc.is_insecure_allowed = insecure;
  if (!tls.is_none()) {
    const auto [chain, key, authorities] =
        nb::cast<std::tuple<std::string, std::string, std::string>>(tls);
    server.grpc.tls = TlsServerOptions{chain, key, authorities};
  }
  set_limits(server, limits);
  return server;
}

void init_server(PyServer* self, nb::list tables, nb::handle max_bytes, nb::handle memory,
                 std::vector<std::string> addresses, std::string token, bool insecure,
                 nb::handle tls, const std::map<std::string, std::size_t>& limits,
                 const std::string& codec, nb::handle checkpoints) {
  std::vector<TableOptions> given = tables_options(tables);
  ServerOptions options = server_options(max_bytes, memory, std::move(addresses), std::move(token),
                                         insecure, tls, limits, codec);
  options.checkpoints = checkpoint_options(checkpoints);
  new (self) PyServer(
      unwrap(without_gil([&] { return Server::open(std::move(given), std::move(options)); })));
}

void check_server(nb::list tables, nb::handle max_bytes, nb::handle memory,
                  std::vector<std::string> addresses, std::string token, bool insecure,
                  nb::handle tls, const std::map<std::string, std::size_t>& limits,
                  const std::string& codec) {
  std::vector<TableOptions> given = tables_options(tables);
  ServerOptions options = server_options(max_bytes, memory, std::move(addresses), std::move(token),
                                         insecure, tls, limits, codec);
  unwrap(without_gil([&] { return Server::check(std::move(given), std::move(options)); }));
}

// A lost shard is tried again at least about this often.
constexpr Duration kShardBackoffMax = std::chrono::seconds(1);

// The thread that drops the last handle may hold the interpreter's lock, which a thread of the
// service may need for logging. In a forked child the service is leaked, since threads of the
// parent may hold its locks.
std::shared_ptr<ReplayService> released_without_gil(std::shared_ptr<ReplayService> service) {
  auto* const held = new std::shared_ptr<ReplayService>(std::move(service));
  return {held->get(), [held, guard = ForkGuard()](ReplayService*) {
            if (!guard.check("Client").ok()) return;
            if (!holds_gil()) {
              delete held;
              return;
            }
            const GilReleased released;
            delete held;
          }};
}

Result<std::shared_ptr<ReplayService>> open_shards(const std::vector<std::string>& addresses,
                                                   const ReverbClientOptions& options,
                                                   ShardSampling sampling) {
  ShardedOptions sharded;
  sharded.sampler.sampling = sampling;
  sharded.retry_time = options.retry_time;
  std::vector<Shard> shards;
  for (const std::string& address : addresses) {
    REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<ReverbClient> client,
                             ReverbClient::open(client_threads(), address, options));
    // The service owns the client, and is not probed any more once it is gone.
    auto probe = [asked = client.get(),
                  timeout = sharded.connections.probe_timeout](std::function<void(Status)> done) {
      asked->ping(Clock::system().now() + timeout, std::move(done));
    };
    shards.push_back({address, std::move(client), std::move(probe)});
  }
  REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<ReplayService> service,
                           ShardedService::open(std::move(shards), sharded));
  return service;
}

ClientHandle connect(const std::vector<std::string>& addresses, std::string token, nb::handle tls,
                     nb::handle retry_timeout_s, bool is_sharded, const std::string& sampling,
                     nb::handle seed, bool raises_corrupt, const std::string& protocol) {
  const OnCorrupt on_corrupt = on_corrupt_of(raises_corrupt);
  std::optional<std::uint64_t> given_seed;
  if (!seed.is_none()) given_seed = integer_argument<std::uint64_t>("seed", seed, 0);
  ReverbClientOptions options;
  if (!retry_timeout_s.is_none()) {
    const double given = number_argument("retry_timeout_s", retry_timeout_s);
    if (!(given > 0)) {
      raise(invalid_argument(
          "retry_timeout_s is {}; it must be above 0, or None to try without end", given));
    }
    options.retry_time = seconds(given);
  }
  options.grpc.token = std::move(token);
  if (!tls.is_none()) {
    const auto [authorities, chain, key, name] =
        nb::cast<std::tuple<std::string, std::string, std::string, std::string>>(tls);
    options.grpc.tls = TlsClientOptions{authorities, chain, key, name};
  }
  if (sampling != "even" && sampling != "mass") {
    raise(invalid_argument("sampling is '{}'; it must be 'even' or 'mass'", sampling));
  }
  if (protocol == "peer") {
    PeerStoreOptions peer;
    peer.token = std::move(options.grpc.token);
    peer.retry_time = options.retry_time;
    auto client = unwrap(PeerStoreClient::open(client_loops(), addresses.at(0), std::move(peer)));
    return ClientHandle(released_without_gil(std::move(client)), nullptr, on_corrupt, given_seed);
  }
  if (!is_sharded) {
    auto client = unwrap(ReverbClient::open(client_threads(), addresses.at(0), std::move(options)));
    return ClientHandle(released_without_gil(std::move(client)), nullptr, on_corrupt, given_seed);
  }
  options.grpc.backoff_max = kShardBackoffMax;
  auto service = unwrap(open_shards(
      addresses, options, sampling == "mass" ? ShardSampling::kMass : ShardSampling::kEven));
  return ClientHandle(released_without_gil(std::move(service)), nullptr, on_corrupt, given_seed);
}

// (address, why it is left out, or "") of each shard; empty for one server.
std::vector<std::tuple<std::string, std::string>> shard_states(const ClientHandle& client) {
  unwrap(client.check());
  std::vector<std::tuple<std::string, std::string>> states;
  const auto* const sharded = dynamic_cast<const ShardedService*>(client.service().get());
  if (sharded == nullptr) return states;
  for (const ShardState& state : sharded->shards()) {
    states.emplace_back(state.name, state.is_up ? std::string() : state.why.to_string());
  }
  return states;
}

}  // namespace

void bind_server(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyServer>(m, "Server", "See ``reverie.Server``.")
      .def(
          "__init__", &init_server, "tables"_a, "max_bytes"_a.none(), "memory"_a.none(),
          "addresses"_a, "token"_a, "insecure"_a, "tls"_a.none(), "limits"_a, "codec"_a,
          "checkpoints"_a.none(),
          nb::sig(
              "def __init__(self, tables: list[dict[str, typing.Any]], "
              "max_bytes: int | None, memory: tuple[str, int | None] | None, addresses: list[str], "
              "token: str, insecure: bool, "
              "tls: tuple[str, str, str] | None, limits: dict[str, int], "
              "codec: str, checkpoints: dict[str, typing.Any] | None) -> None"))
      .def("client", &PyServer::client, "raises_corrupt"_a = false,
           nb::sig("def client(self, raises_corrupt: bool = False) -> Client"))
      .def("info", &PyServer::info, nb::sig("def info(self) -> list[dict[str, typing.Any]]"))
      .def("extension_summary", &PyServer::extension_summary, "table"_a, "index"_a,
           nb::sig("def extension_summary(self, table: str, index: int) -> dict[str, float]"))
      .def("stop", &PyServer::stop, "grace_s"_a, nb::sig("def stop(self, grace_s: float) -> None"))
      .def("loaded_checkpoint", &PyServer::loaded,
           nb::sig("def loaded_checkpoint(self) -> tuple[str, bytes] | None"))
      .def("journal_error", &PyServer::journal_error,
           nb::sig("def journal_error(self) -> str | None"))
      .def_prop_ro("addresses", &PyServer::addresses)
      .def_prop_ro("port", &PyServer::port)
      .def_prop_ro("figures", &PyServer::figures);
  m.def("check_server", &check_server, "tables"_a, "max_bytes"_a.none(), "memory"_a.none(),
        "addresses"_a, "token"_a, "insecure"_a, "tls"_a.none(), "limits"_a, "codec"_a,
        nb::sig("def check_server(tables: list[dict[str, typing.Any]], max_bytes: int | None, "
                "memory: tuple[str, int | None] | None, addresses: list[str], token: str, "
                "insecure: bool, "
                "tls: tuple[str, str, str] | None, limits: dict[str, int], "
                "codec: str) -> None"),
        "Raises what ``Server`` would, except where a port is in use; listens nowhere.");
  m.def("connect", &connect, "addresses"_a, "token"_a, "tls"_a.none(), "retry_timeout_s"_a.none(),
        "sharded"_a, "sampling"_a, "seed"_a.none(), "raises_corrupt"_a = false,
        "protocol"_a = "grpc",
        nb::sig("def connect(addresses: list[str], token: str, "
                "tls: tuple[str, str, str, str] | None, retry_timeout_s: float | None, "
                "sharded: bool, sampling: str, seed: int | None, "
                "raises_corrupt: bool = False, protocol: str = 'grpc') -> Client"),
        "A client of the server at an address, or of a store whose shards are at several; connects "
        "when it is first used.");
  m.def("shard_states", &shard_states, "client"_a,
        nb::sig("def shard_states(client: Client) -> list[tuple[str, str]]"),
        "Address and, while it is left out, the reason, of each shard; empty for one server.");
  m.def(
      "single_targets",
      [](const std::string& target) {
        return unwrap(without_gil([&] { return single_targets(target); }));
      },
      "target"_a, nb::sig("def single_targets(target: str) -> list[str]"),
      "A target for each address that a target resolves to; looks names up.");
}

}  // namespace reverie::python
