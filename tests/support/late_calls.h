// Calls whose handlers a peer looks up before the end of what they belong to, and runs afterwards.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/calls/pending_call.h"
#include "reverie/rpc/peer.h"
#include "tests/support/eventually.h"

namespace reverie::test {

// Has `caller`, which is connected to `server`, call `function` sixteen times, and the server run
// `end` between reading these calls and handling them. Returns the calls, which are done.
//
// The thread that reads the server's messages is kept until all are written: it takes them in one
// turn. One that it reads only in the next turn finds no function, if `end` undefines it.
inline std::vector<std::shared_ptr<PendingCall>> late_calls(Peer& server,
                                                            const std::shared_ptr<Peer>& caller,
                                                            const std::function<void()>& end,
                                                            const std::string& function,
                                                            const Payload& payload) {
  constexpr int kCalls = 16;
  std::atomic<bool> is_held{false};
  std::atomic<bool> are_sent{false};
  const auto hold = [&](const Request& request) {
    is_held = true;
    EXPECT_TRUE(eventually([&] { return are_sent.load(); }));
    server.answer(request.id, Payload());
  };
  const auto end_all = [&](const Request& request) {
    end();
    server.answer(request.id, Payload());
  };
  EXPECT_TRUE(server.define("hold", hold).ok());
  EXPECT_TRUE(server.define("end", end_all).ok());
  // Through shared memory a call has been written when begin() returns.
  EXPECT_EQ(caller->sync(server.name(), "nothing", {}, {}).status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(eventually([&] {
    const auto peers = caller->peers();
    return peers.size() == 1 && peers[0].transport == "shared memory";
  }));
  const auto begin = [&](const std::string& name, const Payload& arguments) {
    return PendingCall::begin(caller, server.name(), name, arguments, {}).value();
  };
  const TimePoint until = Clock::system().now() + std::chrono::minutes(1);
  const auto held = begin("hold", {});
  EXPECT_TRUE(eventually([&] { return is_held.load(); }));
  const auto ended = begin("end", {});
  std::vector<std::shared_ptr<PendingCall>> calls;
  for (int i = 0; i < kCalls; ++i) calls.push_back(begin(function, payload));
  are_sent = true;
  EXPECT_TRUE(held->wait_until(until) && held->result().status.ok());
  EXPECT_TRUE(ended->wait_until(until) && ended->result().status.ok());
  for (const auto& call : calls) EXPECT_TRUE(call->wait_until(until)) << "not answered";
  server.undefine("hold");
  server.undefine("end");
  return calls;
}

}  // namespace reverie::test
