// Calls by name between peers, without Python: one peer squares numbers, the other asks for sums of
// squares.
//
// Both peers are in one process here; between hosts, use the server's address and a token.
#include <cstdint>
#include <cstdio>
#include <latch>

#include "reverie/rpc/peer.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace {

using namespace reverie;

constexpr std::int64_t kCalls = 1000;

Payload number(std::int64_t value) {
  Payload payload;
  ValueWriter(payload).integer(value);
  return payload;
}

// 0 for anything that is not an integer: data from other peers is never trusted.
std::int64_t number_of(const Payload& payload) {
  ValueReader reader(payload);
  const Result<ValueToken> token = reader.next();
  return token.ok() && token->kind == ValueKind::kInteger ? token->integer : 0;
}

Status run() {
  Peer::Options options;
  options.name = "squares";
  REVERIE_ASSIGN_OR_RETURN(const auto server, Peer::make(options));
  // A handler runs on the server's I/O thread: it may answer quick calls, and passes slow work on.
  REVERIE_RETURN_IF_ERROR(server->define("square", [&server](Request request) {
    const std::int64_t x = number_of(request.message.payload);
    server->answer(request.id, number(x * x));
  }));
  REVERIE_ASSIGN_OR_RETURN(const std::string address, server->listen("127.0.0.1:0"));

  // Declared before the client, which ends all its calls when it is destroyed.
  std::latch answered(kCalls);
  std::int64_t sum = 0;  // only the client's I/O thread writes it until all calls are answered
  Status failure;
  options.name = "asker";
  REVERIE_ASSIGN_OR_RETURN(const auto client, Peer::make(options));
  REVERIE_RETURN_IF_ERROR(client->connect(address));
  for (std::int64_t i = 1; i <= kCalls; ++i) {
    const Result<CallId> call =
        client->call("squares", "square", number(i), {}, [&](CallResult result) {
          sum += number_of(result.payload);
          if (result.kind != CallResult::Kind::kAnswer) failure = result.status;
          answered.count_down();
        });
    if (!call.ok()) return call.status();
  }
  answered.wait();
  REVERIE_RETURN_IF_ERROR(failure);
  std::printf("the sum of the first %d squares is %lld\n", static_cast<int>(kCalls),
              static_cast<long long>(sum));
  const std::int64_t expected = kCalls * (kCalls + 1) * (2 * kCalls + 1) / 6;
  return sum == expected ? Status() : internal_error("it should be {}", expected);
}

}  // namespace

int main() {
  const Status status = run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
