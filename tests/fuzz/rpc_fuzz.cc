// Reads any bytes as what a peer sends: its frames, and the values in them, are read or refused.
// Also sends them to a peer that expects a handshake: it answers or hangs up.
//
// Input: a stream of frames.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "reverie/rpc/frame.h"
#include "reverie/rpc/peer_core.h"
#include "reverie/rpc/remote_error.h"
#include "reverie/tensor/value_reader.h"

namespace {

using namespace reverie;

void require(bool holds) {
  if (!holds) std::abort();
}

class NoEffects final : public PeerEffects {
 public:
  void dial(LinkId, const std::string&) override {}
  void send(LinkId, const FrameHeader&, std::shared_ptr<const Message>) override {}
  void hang_up(LinkId) override {}
  void trust(LinkId, const std::string&) override {
    std::abort();
  }  // the peer requires a token that no input contains
  void deliver(Request) override { std::abort(); }
  void withdraw(InboundId) override {}
  void complete(CallId, CallResult) override {}
  std::function<void()> on_receipt(InboundId, FrameKind) override { return {}; }
};

void read_values(const Payload& payload) {
  ValueReader reader(payload);
  std::size_t sum = 0;
  while (!reader.done()) {
    const Result<ValueToken> token = reader.next();
    if (!token.ok()) break;
    require(token->count <= payload.head.size());
    for (const std::byte b : token->bytes) sum += static_cast<std::size_t>(b);
  }
  (void)decode_error(payload);
  require(sum + 1 > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  FrameReader reader(FrameLimits{64, 1 << 16, 1 << 16});
  std::vector<Frame> frames;
  (void)reader.feed(bytes, frames).ok();
  NoEffects effects;
  PeerOptions options;
  options.name = "me";
  options.run = {1, 2};
  options.token = "secret";
  std::uint64_t next = 1;
  options.random = [&next] { return next++; };
  PeerCore core(std::move(options), effects);
  const LinkId link = core.accepted("127.0.0.1:1", {0});
  for (Frame& frame : frames) {
    read_values(frame.message.payload);
    (void)decode_greeting(frame.message).ok();
    (void)decode_resumption(frame.message).ok();
    (void)decode_found(frame.message).ok();
    (void)decode_refusal(frame.message).ok();
    core.received(link, std::move(frame), {0});
  }
  core.tick({1'000'000'000'000});
  return 0;
}
