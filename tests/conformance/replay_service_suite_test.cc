#include "tests/conformance/replay_service_suite.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/replay/local_service.h"
#include "reverie/server/server.h"
#include "reverie/shards/sharded_service.h"
#include "tests/support/flaky_service.h"

namespace reverie::testing {
namespace {

// A server, and a client of Reverb's protocol over a socket.
struct Served {
  IoThreads io_threads{1};
  std::unique_ptr<Server> server;
  std::shared_ptr<ReverbClient> client;

  static std::shared_ptr<ReplayService> open(std::vector<TableOptions> tables, bool reads_packed) {
    auto served = std::make_shared<Served>();
    served->server = Server::open(std::move(tables), {}).value();
    ReverbClientOptions options;
    options.reads_packed = reads_packed;
    served->client = ReverbClient::open(served->io_threads, served->server->addresses().front(),
                                        std::move(options))
                         .value();
    ReplayService* const service = served->client.get();
    return {std::move(served), service};
  }
};

// A server, and a client of our own protocol over a socket.
struct PeerServed {
  IoThreads io_threads{1};
  LinkLoops loops{io_threads};
  std::unique_ptr<Server> server;
  std::shared_ptr<PeerStoreClient> client;

  static std::shared_ptr<ReplayService> open(std::vector<TableOptions> tables) {
    auto served = std::make_shared<PeerServed>();
    served->server = Server::open(std::move(tables), {}).value();
    served->client =
        PeerStoreClient::open(served->loops, served->server->addresses().front()).value();
    ReplayService* const service = served->client.get();
    return {std::move(served), service};
  }
};

const std::vector<Lack> kReverbLacks = {Lack::kLookUps, Lack::kDistinct, Lack::kReasons,
                                        Lack::kCounts, Lack::kMoreThanLeast};

std::shared_ptr<ReplayService> open_local(std::vector<TableOptions> tables, Clock& clock) {
  StoreOptions options;
  options.clock = &clock;
  return LocalService::open(std::move(tables), options).value();
}

// A store with a journal in a new folder.
ServiceKind durable(const std::string& name, checkpoint::Durability durability) {
  return {name,
          [durability](std::vector<TableOptions> tables, Clock&) {
            std::string folder = ::testing::TempDir() + "journal_XXXXXX";
            EXPECT_NE(::mkdtemp(folder.data()), nullptr);
            checkpoint::CheckpointerOptions options;
            options.journal.durability = durability;
            std::shared_ptr<checkpoint::Checkpointer> checkpointer =
                checkpoint::Checkpointer::open(folder, options).value();
            std::shared_ptr<LocalService> service =
                checkpointer->open_store(std::move(tables), {}).value();
            LocalService* const raw = service.get();
            return std::shared_ptr<ReplayService>(
                raw, [folder, checkpointer, service](ReplayService*) mutable {
                  service.reset();
                  checkpointer.reset();
                  std::error_code ignored;
                  std::filesystem::remove_all(folder, ignored);
                });
          },
          // The stats of waits use the system's clock, not the test's.
          {Lack::kReasons},
          /*is_far=*/true};  // confirmed by the thread that writes the journal
}

// A service over `count` shards, each with all the tables.
ServiceKind sharded(int count) {
  return {"Sharded" + std::to_string(count),
          [count](const std::vector<TableOptions>& tables, Clock& clock) {
            std::vector<Shard> shards;
            for (int s = 0; s < count; ++s) {
              shards.push_back({"store " + std::to_string(s), open_local(tables, clock)});
            }
            ShardedOptions options;
            options.clock = &clock;
            return ShardedService::open(std::move(shards), options).value();
          },
          {Lack::kDistinct}};
}

// Three shards, of which the first is frozen: it answers no request.
ServiceKind with_a_frozen_shard() {
  return {"FrozenShard",
          [](const std::vector<TableOptions>& tables, Clock&) {
            std::vector<Shard> shards;
            for (int s = 0; s < 3; ++s) {
              auto flaky = std::make_shared<FlakyService>(open_local(tables, Clock::system()));
              if (s == 0) flaky->set(FlakyService::Mode::kFrozen);
              shards.push_back({"store " + std::to_string(s), std::move(flaky)});
            }
            ShardedOptions options;
            options.connections.probe_interval = std::chrono::milliseconds(2);
            options.connections.probe_timeout = std::chrono::milliseconds(20);
            return ShardedService::open(std::move(shards), options).value();
          },
          {Lack::kDistinct, Lack::kReasons, Lack::kAllShards},
          /*is_far=*/true};
}

INSTANTIATE_TEST_SUITE_P(Local, ReplayServiceSuite,
                         ::testing::Values(ServiceKind{"Local", open_local}));
INSTANTIATE_TEST_SUITE_P(Synced, ReplayServiceSuite,
                         ::testing::Values(durable("Synced", checkpoint::Durability::kSync)));
INSTANTIATE_TEST_SUITE_P(Written, ReplayServiceSuite,
                         ::testing::Values(durable("Written", checkpoint::Durability::kInterval)));
INSTANTIATE_TEST_SUITE_P(OneShard, ReplayServiceSuite, ::testing::Values(sharded(1)));
INSTANTIATE_TEST_SUITE_P(ThreeShards, ReplayServiceSuite, ::testing::Values(sharded(3)));
INSTANTIATE_TEST_SUITE_P(FrozenShard, ReplayServiceSuite, ::testing::Values(with_a_frozen_shard()));

// Reverb's protocol, between our own client and server.
INSTANTIATE_TEST_SUITE_P(Reverb, ReplayServiceSuite,
                         ::testing::Values(ServiceKind{
                             "Reverb",
                             [](std::vector<TableOptions> tables, Clock&) {
                               return Served::open(std::move(tables), /*reads_packed=*/true);
                             },
                             kReverbLacks, /*is_far=*/true}));

// Our own protocol. The waiting times of requests use the server's clock, not the test's.
INSTANTIATE_TEST_SUITE_P(Peer, ReplayServiceSuite,
                         ::testing::Values(ServiceKind{
                             "Peer",
                             [](std::vector<TableOptions> tables, Clock&) {
                               return PeerServed::open(std::move(tables));
                             },
                             {Lack::kReasons},
                             /*is_far=*/true}));

// Reverb's protocol without our extensions, as a client of dm-reverb is served.
INSTANTIATE_TEST_SUITE_P(ReverbEntries, ReplayServiceSuite,
                         ::testing::Values(ServiceKind{
                             "ReverbEntries",
                             [](std::vector<TableOptions> tables, Clock&) {
                               return Served::open(std::move(tables), /*reads_packed=*/false);
                             },
                             kReverbLacks, /*is_far=*/true}));

}  // namespace
}  // namespace reverie::testing
