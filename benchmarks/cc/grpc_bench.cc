// The cost of gRPC over nghttp2, compared with the sockets below it.
//
// Estimates. A streamed message of 400 kB: the kernel copies it once on each side, and we copy it
// once out of the socket's buffer, about 15 us each in cache; so near 5 GB/s, two thirds of a raw
// socket whose reader copies too. 400 B: hundreds of messages share frames and system calls, which
// leaves about 150 ns of queue, prefix and message at each end: 1 GB/s. A round trip: four wake-ups
// of sleeping threads, a few us each if cores are free and tens if not; our own work is 3 to 4 us.
//
// One end serves on an I/O thread and the other calls on another, as two processes on one host do.
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "reverie/grpc/grpc_blocking.h"
#include "reverie/grpc/grpc_client.h"
#include "reverie/grpc/grpc_server.h"
#include "tests/support/grpc_methods.h"
#include "tests/support/http2_frames.h"

namespace reverie {
namespace {

// The number of messages in one measured batch, large enough to ignore how it began.
std::size_t batch_of(std::size_t size) {
  return std::max<std::size_t>(200, std::min<std::size_t>(50'000, (std::size_t{64} << 20) / size));
}

const char* listen_address(bool is_unix) {
  return is_unix ? "unix:@reverie_grpc_bench" : "127.0.0.1:0";
}

// A server and a client on separate I/O threads.
struct Ends {
  explicit Ends(bool is_unix) : server(server_threads, {}) {
    test::add_methods(server);
    const auto address = server.listen({listen_address(is_unix)});
    client = GrpcClient::open(client_threads, address->front(), {}).value();
  }
  IoThreads server_threads;
  IoThreads client_threads;
  GrpcServer server;
  std::unique_ptr<GrpcClient> client;
};

// Counts messages, and signals when all have arrived.
class Counter final : public GrpcClientEvents {
 public:
  void on_message(Ref<GrpcMessage> message) override {
    bytes += message->bytes().size();
    benchmark::DoNotOptimize(message->bytes().data());
  }
  void on_end(const Status& status) override {
    REVERIE_CHECK(status.ok());
    is_over = true;
    is_over.notify_all();
  }
  std::size_t bytes = 0;
  std::atomic<bool> is_over{false};
};

// Items are messages of `size` bytes that a server streams to one client. Args: size, Unix socket?
void BM_ServerStream(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::size_t count = batch_of(size);
  Ends ends(state.range(1) != 0);
  for (auto _ : state) {
    const auto counter = std::make_shared<Counter>();
    ends.client->start("/t/Count", {}, counter)
        ->write(GrpcPayload::of(format("{} {}", count, size)));
    counter->is_over.wait(false);
    REVERIE_CHECK(counter->bytes == count * size);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(count) * state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(count * size) * state.iterations());
}

// The other direction: a client streams to a server, as a writer does.
void BM_ClientStream(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::size_t count = batch_of(size);
  Ends ends(state.range(1) != 0);
  const auto text = std::make_shared<const std::string>(size, 'x');
  for (auto _ : state) {
    GrpcBlockingStream stream(*ends.client, "/t/Sum");
    for (std::size_t i = 0; i < count; ++i) {
      GrpcPayload payload;
      payload.append(std::as_bytes(std::span(*text)), text);
      (void)stream.write(std::move(payload));
    }
    stream.half_close();
    REVERIE_CHECK(stream.read().has_value());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(count) * state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(count * size) * state.iterations());
}

// Two connected sockets.
std::pair<int, int> make_sockets(bool is_unix) {
  int ends[2];
  if (is_unix) {
    REVERIE_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    return {ends[0], ends[1]};
  }
  const SocketAddress any = resolve(parse_endpoint("127.0.0.1:0").value(), false)->front();
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  REVERIE_CHECK(::bind(listener, any.data(), any.size()) == 0 && ::listen(listener, 1) == 0);
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size);
  ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
  REVERIE_CHECK(::connect(ends[0], reinterpret_cast<sockaddr*>(&bound), size) == 0);
  ends[1] = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return {ends[0], ends[1]};
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    REVERIE_CHECK(sent > 0);
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// The bound: messages with a length prefix of four bytes through a plain socket, written 256 KiB at
// a time; the reader copies each one to separate memory, which it reuses.
void BM_RawStream(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0));
  const std::size_t count = batch_of(size);
  const auto [from, to] = make_sockets(state.range(1) != 0);
  std::string batch;
  while (batch.size() < std::size_t{256} << 10) {
    batch += test::big_endian(static_cast<std::uint32_t>(size), 4) + std::string(size, 'x');
  }
  const std::size_t messages_of_batch = batch.size() / (size + 4);
  const std::size_t batches = (count + messages_of_batch - 1) / messages_of_batch;
  std::vector<char> buffer(std::size_t{128} << 10);
  std::vector<char> message(size + 4);
  for (auto _ : state) {
    std::jthread writer([&, fd = from] {
      for (std::size_t i = 0; i < batches; ++i) write_all(fd, batch);
    });
    std::size_t left = batches * batch.size();
    std::size_t filled = 0;
    while (left > 0) {
      const ssize_t got = ::recv(to, buffer.data(), buffer.size(), 0);
      REVERIE_CHECK(got > 0);
      left -= static_cast<std::size_t>(got);
      for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
        const std::size_t part =
            std::min(static_cast<std::size_t>(got) - at, message.size() - filled);
        std::memcpy(message.data() + filled, buffer.data() + at, part);
        filled = (filled + part) % message.size();
        at += part;
      }
      benchmark::DoNotOptimize(message.data());
    }
  }
  ::close(from);
  ::close(to);
  const auto messages = static_cast<std::int64_t>(batches * messages_of_batch);
  state.SetItemsProcessed(messages * state.iterations());
  state.SetBytesProcessed(messages * static_cast<std::int64_t>(size) * state.iterations());
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (const int is_unix : {0, 1}) {
    for (const int size : {400, 4'000, 40'000, 400'000}) bench->Args({size, is_unix});
  }
  bench->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_ServerStream)->Apply(sizes);
BENCHMARK(BM_ClientStream)->Apply(sizes);
BENCHMARK(BM_RawStream)->Apply(sizes);

// One call and its answer, from a thread that sleeps until the answer is there. Arg: Unix socket?
void BM_UnaryRoundTrip(benchmark::State& state) {
  Ends ends(state.range(0) != 0);
  for (auto _ : state) {
    REVERIE_CHECK(unary_and_wait(*ends.client, "/t/Upper", GrpcPayload::of("x")).ok());
  }
}
BENCHMARK(BM_UnaryRoundTrip)->Arg(0)->Arg(1)->UseRealTime()->MeasureProcessCPUTime();

// The bound: a byte in each direction between two threads that sleep in the kernel.
void BM_RawRoundTrip(benchmark::State& state) {
  const auto [here, there] = make_sockets(state.range(0) != 0);
  std::jthread echo([fd = there] {
    char byte = 0;
    while (::recv(fd, &byte, 1, 0) == 1) write_all(fd, {&byte, 1});
  });
  char byte = 'x';
  for (auto _ : state) {
    write_all(here, {&byte, 1});
    REVERIE_CHECK(::recv(here, &byte, 1, 0) == 1);
  }
  ::close(here);
  echo.join();
  ::close(there);
}
BENCHMARK(BM_RawRoundTrip)->Arg(0)->Arg(1)->UseRealTime()->MeasureProcessCPUTime();

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// The memory of a server for each of many connections that have made one call and wait. The peers
// are plain sockets, so that only the server's memory counts.
void BM_IdleConnections(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2 * count + 100) {
    state.SkipWithError("too few descriptors (ulimit -n)");
    return;
  }
  const std::string talk =
      test::hello() +
      test::frame(test::kHeadersFrame, test::kEndHeaders, 1, test::call_fields("/t/Upper")) +
      test::frame(test::kDataFrame, test::kEndStream, 1, test::grpc_message("abc"));
  for (auto _ : state) {
    IoThreads threads(2);
    GrpcServer server(threads, {});
    test::add_methods(server);
    const std::string address = server.listen({"127.0.0.1:0"})->front();
    const SocketAddress to = resolve(parse_endpoint(address).value(), false)->front();
    std::vector<int> sockets;
    const std::size_t before = resident_bytes();
    for (std::size_t i = 0; i < count; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      REVERIE_CHECK(fd >= 0 && ::connect(fd, to.data(), to.size()) == 0);
      write_all(fd, talk);
      sockets.push_back(fd);
    }
    for (const int fd : sockets) {
      std::string answer;
      char part[512];
      while (answer.find("ABC") == std::string::npos) {
        const ssize_t got = ::recv(fd, part, sizeof(part), 0);
        REVERIE_CHECK(got > 0);
        answer.append(part, static_cast<std::size_t>(got));
      }
    }
    REVERIE_CHECK(server.figures().connection_count == count);
    state.counters["bytes_a_connection"] =
        static_cast<double>(resident_bytes() - before) / static_cast<double>(count);
    for (const int fd : sockets) ::close(fd);
  }
}
BENCHMARK(BM_IdleConnections)->Arg(4096)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace reverie
