// A served store with clients that send hostile messages of Reverb's protocol, or lack the token:
// each gets a typed status, memory stays bounded, and other clients are not affected.
#include <atomic>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/grpc/grpc_blocking.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/server/server.h"
#include "reverie/service/blocking.h"
#include "tests/scale.h"
#include "tests/support/certificates.h"
#include "tests/support/http2_frames.h"
#include "tests/support/items.h"
#include "tests/support/readable_frames.h"
#include "tests/support/refusal.h"
#include "tests/support/resident.h"

namespace reverie {
namespace {

using testing::float_chunk;

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

class HostileStore : public ::testing::Test {
 protected:
  static constexpr std::size_t kMiB = std::size_t{1} << 20;

  void SetUp() override { open({}); }
  void open(GrpcServerOptions grpc) {
    ServerOptions options;
    options.addresses = {"127.0.0.1:0"};
    options.grpc = std::move(grpc);
    server_ =
        Server::open({testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))},
                     std::move(options))
            .value();
  }
  std::unique_ptr<GrpcClient> connect(GrpcClientOptions options = {}) {
    return GrpcClient::open(threads_, server_->addresses().front(), std::move(options)).value();
  }
  static GrpcCallOptions within(double timeout_s) {
    GrpcCallOptions options;
    options.deadline = Clock::system().now() + seconds(timeout_s);
    return options;
  }
  // The status at the end of a stream of this method over which `message` was sent.
  Status status_of(const std::string& method, std::string message) {
    const auto client = connect();
    GrpcBlockingStream stream(*client, format("{}{}", wire::kServicePath, method), within(30));
    (void)stream.write(GrpcPayload::of(std::move(message)));
    stream.half_close();
    return stream.status();
  }
  void expect_others_unharmed() {
    const auto client = ReverbClient::open(threads_, server_->addresses().front()).value();
    Item item = testing::make_item(++last_key_, 1.0);
    ASSERT_TRUE(insert_and_wait(*client, {"t", {&item, 1}, within(30).deadline}).status.ok());
    SampleRequest request;
    request.table = "t";
    request.deadline = within(30).deadline;
    ASSERT_TRUE(sample_and_wait(*client, std::move(request)).status.ok());
  }
  static std::string insert(const std::string& chunk, std::vector<wire::Slice> slices,
                            const std::vector<std::uint64_t>& keep = {}) {
    const std::vector<wire::Bytes> chunks = {wire::bytes_of(chunk)};
    wire::WireItem item;
    item.key = 7;
    item.table = "t";
    item.priority = 1;
    const auto end = static_cast<std::uint32_t>(slices.size());
    item.slices = std::move(slices);
    item.columns = {{0, end, false}};
    return wire::write_insert_request(chunks, {&item, 1}, keep).flat();
  }
  static std::string chunk(ChunkKey key) {
    return wire::write_chunk(*float_chunk(0, 4, {key, 1, 0}), 0, 4, key).value();
  }
  // A field of a message: its tag, a length that may be wrong, and bytes.
  static std::string field(std::uint32_t number, std::uint64_t length, const std::string& bytes) {
    std::string text;
    wire::put_tag(text, wire::bytes_field(number));
    wire::put_varint(text, length);
    return text + bytes;
  }
  static std::string field(std::uint32_t number, const std::string& bytes) {
    return field(number, bytes.size(), bytes);
  }
  static std::string dims(const std::vector<std::int64_t>& shape) {
    std::string all;
    for (const std::int64_t extent : shape) {
      std::string dim;
      wire::put_int(dim, 1, extent);
      all += field(2, dim);
    }
    return all;
  }
  // A ChunkData with one float32 tensor.
  static std::string tensor_chunk(const std::vector<std::int64_t>& shape,
                                  const std::string& content) {
    std::string tensor;
    wire::put_int(tensor, 1, 1);
    tensor += field(2, dims(shape)) + field(4, content);
    std::string made;
    wire::put_uint(made, 1, 9);
    return made + field(5, field(1, tensor));
  }

  // A plain socket to the server.
  int dial() {
    const auto to = resolve(parse_endpoint(server_->addresses().front()).value(), false);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REVERIE_CHECK(fd >= 0 && ::connect(fd, to->front().data(), to->front().size()) == 0);
    return fd;
  }
  // The frames up to the end of the first call, or until the server hangs up.
  static std::string answer_of(int fd) {
    std::string answer;
    char part[4096];
    while (!test::has_trailers(answer)) {
      const ssize_t got = ::recv(fd, part, sizeof(part), 0);
      if (got <= 0) break;
      answer.append(part, static_cast<std::size_t>(got));
    }
    return answer;
  }

  IoThreads threads_{2};
  std::unique_ptr<Server> server_;
  ItemKey last_key_ = 1'000;
};

TEST_F(HostileStore, SlicesOutsideTheirChunkAreRefused) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::string good = chunk(3);
  for (const wire::Slice& slice : std::vector<wire::Slice>{{3, 4, 1, 0},
                                                           {3, 0, 5, 0},
                                                           {3, -1, 1, 0},
                                                           {3, 0, -1, 0},
                                                           {3, 0, 0, 0},
                                                           {3, kMost, kMost, 0},
                                                           {3, 0, 1, 1},
                                                           {3, 0, 1, -1},
                                                           {3, 0, 1, kMost}}) {
    const Status status = status_of("InsertStream", insert(good, {slice}));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  }
  EXPECT_EQ(status_of("InsertStream", insert(good, {{4, 0, 1, 0}})).code(), StatusCode::kInternal)
      << "there is no such chunk";
  expect_others_unharmed();
}

TEST_F(HostileStore, DuplicateAndUnknownKeptKeysAreRefused) {
  const std::string good = chunk(3);
  EXPECT_EQ(status_of("InsertStream", insert(good, {{3, 0, 1, 0}}, {3, 3})).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(status_of("InsertStream", insert(good, {{3, 0, 1, 0}}, {3, 99})).code(),
            StatusCode::kFailedPrecondition);
  expect_others_unharmed();
}

TEST_F(HostileStore, MessagesCutAtAnyByteAreRefusedOrHarmless) {
  const std::string whole = insert(chunk(3), {{3, 0, 1, 0}}, {3});
  const auto client = connect();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    GrpcBlockingStream stream(*client, format("{}InsertStream", wire::kServicePath), within(30));
    (void)stream.write(GrpcPayload::of(whole.substr(0, size)));
    stream.half_close();
    const Status status = stream.status();
    ASSERT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument ||
                status.code() == StatusCode::kFailedPrecondition ||
                status.code() == StatusCode::kInternal)
        << size << ": " << status.to_string();
  }
  expect_others_unharmed();
}

TEST_F(HostileStore, LengthsBeyondTheMessageTakeNoMemory) {
  const std::size_t before = resident_bytes();
  for (const std::uint64_t length :
       {std::uint64_t{1} << 63u, ~std::uint64_t{0}, std::uint64_t{1} << 40u}) {
    for (const std::uint32_t number : {1u, 2u, 3u}) {
      for (const char* const method : {"InsertStream", "SampleStream", "MutatePriorities"}) {
        const Status status = status_of(method, field(number, length, "x"));
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << method << status.to_string();
      }
    }
  }
  EXPECT_LT(resident_bytes(), before + 50 * kMiB);
  expect_others_unharmed();
}

TEST_F(HostileStore, ShapesWithoutTheirBytesTakeNoMemory) {
  const std::size_t before = resident_bytes();
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const std::vector<std::vector<std::int64_t>> shapes = {
      {kHuge}, {1, kHuge}, {kHuge, kHuge}, {1, kHuge, 4}, {-1}, {1, -7}, {0}, {}, {1 << 25}};
  for (const auto& shape : shapes) {
    const Status status =
        status_of("InsertStream", insert(tensor_chunk(shape, "x"), {{9, 0, 1, 0}}));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  }
  // More rows than the few bytes can decode to.
  const Status unfolding =
      status_of("InsertStream", insert(tensor_chunk({1, 1 << 28}, "x"), {{9, 0, 1, 0}}));
  expect_refused(unfolding, StatusCode::kInvalidArgument, {"unfolds from 1 bytes"});
  EXPECT_LT(resident_bytes(), before + 50 * kMiB);
}

TEST_F(HostileStore, MoreTensorsThanAChunkHasAreRefused) {
  std::string tensors;
  std::string tensor;
  wire::put_int(tensor, 1, 1);
  tensor += field(2, dims({1})) + field(4, "x");
  for (int i = 0; i < 1'000'000; ++i) tensors += field(1, tensor);
  std::string made;
  wire::put_uint(made, 1, 9);
  made += field(5, tensors);
  const std::size_t before = resident_bytes();
  const Status status = status_of("InsertStream", insert(made, {{9, 0, 1, 0}}));
  expect_refused(status, StatusCode::kInvalidArgument, {"more than 65535 tensors"});
  EXPECT_LT(resident_bytes(), before + 200 * kMiB);
  expect_others_unharmed();
}

TEST_F(HostileStore, AGzipBombIsRefusedWithoutTakingItsMemory) {
  GrpcServerOptions options;
  options.limits.message_bytes_max = 4 * kMiB;
  server_.reset();
  open(options);
  // 50 MiB of zeros, compressed to 50 kB.
  std::string bomb(2 * kMiB, '\0');
  z_stream deflater{};
  ASSERT_EQ(deflateInit2(&deflater, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  deflater.next_out = reinterpret_cast<Bytef*>(bomb.data());
  deflater.avail_out = static_cast<uInt>(bomb.size());
  std::string zeros(kMiB, '\0');
  for (int i = 0; i < 50; ++i) {
    deflater.next_in = reinterpret_cast<Bytef*>(zeros.data());
    deflater.avail_in = static_cast<uInt>(zeros.size());
    ASSERT_EQ(deflate(&deflater, i == 49 ? Z_FINISH : Z_NO_FLUSH), i == 49 ? Z_STREAM_END : Z_OK);
  }
  bomb.resize(deflater.total_out);
  deflateEnd(&deflater);
  const std::size_t before = resident_bytes();
  std::string body =
      std::string(1, '\1') + test::big_endian(static_cast<std::uint32_t>(bomb.size()), 4) + bomb;
  std::string bytes =
      test::hello() + test::frame(test::kHeadersFrame, test::kEndHeaders, 1,
                                  test::call_fields(format("{}InsertStream", wire::kServicePath)) +
                                      test::fields({{"grpc-encoding", "gzip"}}));
  for (std::size_t at = 0; at < body.size(); at += 16'000) {
    bytes += test::frame(test::kDataFrame, 0, 1, std::string_view(body).substr(at, 16'000));
  }
  const int fd = dial();
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t sent = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    at += static_cast<std::size_t>(sent);
  }
  const std::string answer = answer_of(fd);
  ::close(fd);
  EXPECT_NE(test::readable(answer).find("grpc-status: 8"), std::string::npos)
      << test::readable(answer);
  EXPECT_LT(resident_bytes(), before + 50 * kMiB);
  expect_others_unharmed();
}

// The signature comes from a server, and a client reads it: the client uses the table without one.
TEST_F(HostileStore, AnExtremelyNestedSignatureIsIgnored) {
  // Lists of one element: StructuredValue { list_value { values } }, from the innermost outwards.
  std::vector<std::string> heads;
  std::size_t size = 0;
  for (int i = 0; i < 100'000; ++i) {
    heads.push_back(field(1, size, ""));
    size += heads.back().size();
    heads.push_back(field(51, size, ""));
    size += heads.back().size();
  }
  std::string nested;
  for (auto head = heads.rbegin(); head != heads.rend(); ++head) nested += *head;
  std::string table;
  table += field(6, nested) + field(8, "t");
  GrpcServer server(threads_, {});
  const std::string response = field(2, table);
  server.add_unary(format("{}ServerInfo", wire::kServicePath),
                   [&](const auto&, const auto&, const GrpcUnaryReply& reply) {
                     reply(GrpcPayload::of(response));
                   });
  const auto client =
      ReverbClient::open(threads_, server.listen({"127.0.0.1:0"}).value().front()).value();
  const std::vector<TableInfo> infos = info_and_wait(*client).value();
  ASSERT_EQ(infos.size(), 1u);
  EXPECT_FALSE(infos.front().options.signature.has_value());
}

TEST_F(HostileStore, ThousandsOfWrongTokensAreRefused) {
  GrpcServerOptions options;
  options.token = "the right one";
  server_.reset();
  open(options);
  const std::int64_t count = scaled(2'000, 10'000);
  GrpcClientOptions guess;
  guess.token = "the wrong one";  // it has the same length
  const auto guesser = connect(guess);
  const auto outsider = connect();
  std::atomic<std::int64_t> refused{0};
  std::atomic<std::int64_t> answered{0};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto& client = i % 2 == 0 ? guesser : outsider;
    client->unary(format("{}ServerInfo", wire::kServicePath), GrpcPayload(), within(60),
                  [&](const Result<Ref<GrpcMessage>>& response) {
                    if (response.status().code() == StatusCode::kUnauthenticated) ++refused;
                    ++answered;
                    answered.notify_all();
                  });
  }
  for (std::int64_t seen = answered; seen < count; seen = answered) answered.wait(seen);
  EXPECT_EQ(refused.load(), count);
  GrpcClientOptions right;
  right.token = options.token;
  const auto client = connect(right);
  EXPECT_TRUE(
      unary_and_wait(*client, format("{}ServerInfo", wire::kServicePath), {}, within(30)).ok());
}

TEST_F(HostileStore, OnlyTheRightCertificateIsAccepted) {
  GrpcServerOptions options;
  options.tls = test::server_tls();
  options.tls->client_authorities = test::tls_text("authority.pem");
  server_.reset();
  open(options);
  const auto ask = [&](std::optional<TlsClientOptions> tls) {
    GrpcClientOptions client;
    client.tls = std::move(tls);
    const auto made = connect(client);
    return unary_and_wait(*made, format("{}ServerInfo", wire::kServicePath), {}, within(30))
        .status();
  };
  TlsClientOptions good = test::client_tls();
  good.certificate_chain = test::tls_text("client.pem");
  good.private_key = test::tls_text("client_key.pem");
  EXPECT_TRUE(ask(good).ok()) << ask(good).to_string();
  EXPECT_EQ(ask(std::nullopt).code(), StatusCode::kFailedPrecondition) << "no TLS";
  TlsClientOptions without = good;
  without.certificate_chain.clear();
  without.private_key.clear();
  EXPECT_EQ(ask(without).code(), StatusCode::kUnauthenticated) << "no certificate";
  TlsClientOptions stranger = good;
  stranger.certificate_chain = test::tls_text("stranger.pem");
  stranger.private_key = test::tls_text("stranger_key.pem");
  EXPECT_EQ(ask(stranger).code(), StatusCode::kUnauthenticated) << "of another authority";
  TlsClientOptions wary = good;
  wary.authorities = test::tls_text("stranger.pem");
  EXPECT_EQ(ask(wary).code(), StatusCode::kUnauthenticated) << "a server of another authority";
  TlsClientOptions elsewhere = good;
  elsewhere.server_name = "elsewhere";
  EXPECT_EQ(ask(elsewhere).code(), StatusCode::kUnauthenticated) << "a server of another name";
  EXPECT_TRUE(ask(good).ok()) << "and the others go on";
}

// Plain sockets that make one call and then wait: how much memory each costs the server.
TEST_F(HostileStore, IdleConnectionsTakeLittleMemoryAndOthersAreServed) {
  const std::int64_t count = scaled(400, 4'096);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2 * static_cast<rlim_t>(count) + 200) {
    GTEST_SKIP() << "too few descriptors (ulimit -n " << limit.rlim_cur << ")";
  }
  expect_others_unharmed();
  const std::string talk =
      test::hello() +
      test::frame(test::kHeadersFrame, test::kEndHeaders, 1,
                  test::call_fields(format("{}ServerInfo", wire::kServicePath))) +
      test::frame(test::kDataFrame, test::kEndStream, 1, test::grpc_message(""));
  std::vector<int> sockets;
  const std::size_t before = resident_bytes();
  for (std::int64_t i = 0; i < count; ++i) {
    const int fd = dial();
    ASSERT_EQ(::send(fd, talk.data(), talk.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(talk.size()));
    sockets.push_back(fd);
  }
  for (const int fd : sockets) {
    const std::string answer = answer_of(fd);
    ASSERT_NE(test::readable(answer).find("grpc-status: 0"), std::string::npos);
  }
  const std::size_t each = (resident_bytes() - before) / static_cast<std::size_t>(count);
  RecordProperty("bytes_a_connection", static_cast<int>(each));
  std::printf("%lld idle connections: %zu bytes each (at most 65536)\n",
              static_cast<long long>(count), each);
  // A sanitizer keeps extra memory beside each allocation.
  if (!testing::kIsSanitized) {
    EXPECT_LE(each, std::size_t{64} << 10);
  }
  expect_others_unharmed();
  for (const int fd : sockets) ::close(fd);
}

}  // namespace
}  // namespace reverie
