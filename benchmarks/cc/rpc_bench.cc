// Calls between two processes on one host, from C++: a round trip, calls that do not wait for each
// other, and an array in one direction. The server is a child process whose handlers run on the
// thread that reads the request.
//
// Estimates. A round trip through shared memory between two polling threads: two cache lines in
// each direction, 4 x 100 ns, and 1 us of frames and bookkeeping on each side: 2.5 us. A call that
// does not wait: one lock, three maps, 150 bytes into a ring on either side, 600 ns. An array of 1
// MB: a copy at the rate of memcpy in the second-level cache, 40 us, and a round trip.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/net/ucx_connection.h"
#include "reverie/rpc/peer.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

enum Way : std::int64_t { kMemory, kUnix, kTcp, kUcx };
const char* const kWays[] = {"shared memory", "Unix socket", "TCP", "UCX"};

std::vector<std::int64_t> all_ways() {
  std::vector<std::int64_t> ways = {kMemory, kUnix, kTcp};
  if (check_ucx().ok()) ways.push_back(kUcx);  // by UCX_TLS
  return ways;
}

void by_every_way(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t way : all_ways()) benchmark->Arg(way);
}

bool is_by_tcp(std::int64_t way) {
  return way == kTcp || way == kUcx;
}

Peer::Options options_of(std::int64_t way, const char* name) {
  Peer::Options options;
  options.name = name;
  options.uses_unix = !is_by_tcp(way);
  options.uses_tcp = is_by_tcp(way);
  options.uses_ucx = way == kUcx;
  options.uses_shared_memory = way == kMemory;
  return options;
}

// Serves until its parent has ended.
[[noreturn]] void serve(std::int64_t way, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto server = std::move(Peer::make(options_of(way, "server"))).value();
  const auto answer = [&](Request request) { server->answer(request.id, {}); };
  REVERIE_CHECK(server->define("nothing", answer).ok());
  REVERIE_CHECK(server->define("take", answer).ok());
  std::vector<std::byte> own;
  REVERIE_CHECK(server
                    ->define("copy",
                             [&](Request request) {
                               const auto bytes = request.message.payload.bulk.front().bytes;
                               own.resize(bytes.size());
                               std::memcpy(own.data(), bytes.data(), bytes.size());
                               server->answer(request.id, {});
                             })
                    .ok());
  const std::string address =
      server->listen(is_by_tcp(way) ? "127.0.0.1:0" : format("unix:@bench-{}", random_seed()))
          .value();
  REVERIE_CHECK(::write(out, address.data(), address.size()) ==
                static_cast<ssize_t>(address.size()));
  ::close(out);
  while (true) ::pause();
}

// A server in a child process, and a client of it.
class TwoProcesses {
 public:
  explicit TwoProcesses(std::int64_t way) {
    int ends[2];
    REVERIE_CHECK(::pipe(ends) == 0);
    child_ = ::fork();
    if (child_ == 0) serve(way, ends[1]);
    ::close(ends[1]);
    char text[256];
    const ssize_t size = ::read(ends[0], text, sizeof(text));
    ::close(ends[0]);
    REVERIE_CHECK(size > 0);
    client_ = std::move(Peer::make(options_of(way, "client"))).value();
    REVERIE_CHECK(client_->connect({text, static_cast<std::size_t>(size)}).ok());
    // Makes calls until the connection uses the requested transport.
    while (client_->peers().empty() || client_->peers().front().transport != kWays[way]) {
      call("nothing", {});
    }
  }
  ~TwoProcesses() {
    client_.reset();
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  TwoProcesses(const TwoProcesses&) = delete;
  TwoProcesses& operator=(const TwoProcesses&) = delete;

  Peer& client() { return *client_; }
  void call(const char* function, Payload payload) {
    const CallResult result = client_->sync("server", function, std::move(payload), {});
    REVERIE_CHECK(result.kind == CallResult::Kind::kAnswer);
  }

 private:
  pid_t child_ = -1;
  std::unique_ptr<Peer> client_;
};

// One item is a call of 64 bytes and its answer.
void BM_RoundTrip(benchmark::State& state) {
  TwoProcesses two(state.range(0));
  const std::vector<std::byte> bytes(64);
  std::vector<Duration> times;
  for (auto _ : state) {
    Payload payload;
    ValueWriter(payload).bytes(bytes);
    const TimePoint begin = Clock::system().now();
    two.call("nothing", std::move(payload));
    times.push_back(Clock::system().now() - begin);
  }
  std::sort(times.begin(), times.end());
  state.counters["p50_us"] = to_seconds(times[times.size() / 2]) * 1e6;
  state.counters["p99_us"] = to_seconds(times[times.size() * 99 / 100]) * 1e6;
  state.SetItemsProcessed(state.iterations());
  state.SetLabel(kWays[state.range(0)]);
}
BENCHMARK(BM_RoundTrip)->Apply(by_every_way)->UseRealTime();

// One item is a call; 1,000 are in progress at a time.
void BM_CallsUnderWay(benchmark::State& state) {
  TwoProcesses two(state.range(0));
  constexpr std::int64_t kUnderWay = 1000;
  std::atomic<std::int64_t> left{0};
  std::int64_t begun = 0;
  const auto wait_for = [&](std::int64_t count) {
    while (left.load() > count) {
      (void)two.client().wait([&] { return left.load() <= count; }, TimePoint::max());
    }
  };
  for (auto _ : state) {
    wait_for(kUnderWay - 1);
    left.fetch_add(1, std::memory_order_relaxed);
    ++begun;
    REVERIE_CHECK(two.client()
                      .call("server", "nothing", {}, {},
                            [&left, client = &two.client()](CallResult) {
                              const std::int64_t before = left.fetch_sub(1);
                              if (before == kUnderWay || before == 1) client->wake();
                            })
                      .ok());
  }
  wait_for(0);
  state.SetItemsProcessed(begun);
  state.SetLabel(kWays[state.range(0)]);
}
BENCHMARK(BM_CallsUnderWay)->Apply(by_every_way)->UseRealTime();

// Bytes/s of an array that is sent, and passed to the handler, or also copied by it into separate
// memory. Args: way, megabytes, whether it copies.
void BM_Array(benchmark::State& state) {
  TwoProcesses two(state.range(0));
  const auto size = static_cast<std::size_t>(state.range(1)) << 20;
  const auto bytes = std::make_shared<std::vector<std::byte>>(size, std::byte{1});
  const std::int64_t shape[] = {static_cast<std::int64_t>(size)};
  const auto send = [&] {
    Payload payload;
    ValueWriter(payload).lent_tensor(DType::kUInt8, shape, *bytes, TensorMaker::kNumpy, bytes);
    two.call(state.range(2) != 0 ? "copy" : "take", std::move(payload));
  };
  for (int i = 0; i < 8; ++i) send();
  for (auto _ : state) send();
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
  state.SetLabel(kWays[state.range(0)]);
}
BENCHMARK(BM_Array)->ArgsProduct({all_ways(), {1, 128}, {0, 1}})->UseRealTime();

// The bound: copying the same bytes from one array to another on one thread. Arg: megabytes.
void BM_Memcpy(benchmark::State& state) {
  const auto size = static_cast<std::size_t>(state.range(0)) << 20;
  const std::vector<std::byte> from(size, std::byte{1});
  std::vector<std::byte> into(size);
  for (auto _ : state) {
    std::memcpy(into.data(), from.data(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
}
BENCHMARK(BM_Memcpy)->Arg(1)->Arg(128)->UseRealTime();

}  // namespace
}  // namespace reverie
