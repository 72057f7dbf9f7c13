// Sends any bytes to a server ('s' first) or a client ('c'): nothing crashes or hangs, every call
// ends, and every connection is closed.

#include <cstdint>
#include <memory>
#include <span>

#include "reverie/grpc/grpc_blocking.h"
#include "reverie/grpc/grpc_client.h"
#include "reverie/grpc/grpc_server.h"
#include "tests/support/connection_end.h"
#include "tests/support/grpc_methods.h"

namespace reverie {
namespace {

// Shared by all inputs: what one input leaves behind would show with the next.
struct Ends {
  Ends() : server(threads, {}) { test::add_methods(server); }
  IoThreads threads{1};
  GrpcServer server;
};

std::string after_first(std::span<const std::uint8_t> input) {
  return {reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1};
}

void feed_server(Ends& ends, std::span<const std::uint8_t> input) {
  IoLoop& loop = ends.threads.loop(0);
  ConnectionPair pair = make_connection_pair(loop, loop).value();
  ends.server.serve(std::move(pair.second));
  {
    test::ConnectionEnd peer(std::move(pair.first));
    peer.read_on();
    peer.send(after_first(input));
  }  // the peer hangs up here
  while (ends.server.figures().connection_count > 0) {
  }
  REVERIE_CHECK(ends.server.figures().call_count == 0);
}

void feed_client(Ends& ends, std::span<const std::uint8_t> input) {
  IoLoop& loop = ends.threads.loop(0);
  ConnectionPair pair = make_connection_pair(loop, loop).value();
  const auto client = GrpcClient::open(ends.threads, "unix:nowhere", {}).value();
  client->adopt(std::move(pair.first));
  GrpcBlockingStream stream(*client, "/t/Upper");
  {
    test::ConnectionEnd peer(std::move(pair.second));
    peer.read_on();
    peer.send(after_first(input));
  }
  while (stream.read()) {
  }
  (void)stream.status();
}

}  // namespace
}  // namespace reverie

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const ends = new reverie::Ends;
  if (size == 0) return 0;
  if (data[0] == 'c') {
    reverie::feed_client(*ends, {data, size});
  } else {
    reverie::feed_server(*ends, {data, size});
  }
  return 0;
}
