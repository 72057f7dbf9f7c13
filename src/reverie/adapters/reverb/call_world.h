// CallWorld: the environment of a client's streams: calls, timers, a clock. In a client it is a
// GrpcClient, a TimerQueue and the machine's clock; in tests a simulated network and its clock, so
// that a seed drives the decisions about retries (tests/sim/store_sim_test.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/base/timer_queue.h"
#include "reverie/grpc/grpc_client.h"

namespace reverie {

// Thread-safe.
class CallWorld {
 public:
  virtual ~CallWorld() = default;
  // See GrpcClient::start.
  virtual std::shared_ptr<GrpcClientCall> start(std::string_view path, GrpcCallOptions options,
                                                std::shared_ptr<GrpcClientEvents> events) = 0;
  // Runs `work` on the thread of the events of calls, after the current event.
  virtual void post(std::function<void()> work) = 0;
  // See TimerQueue.
  virtual std::uint64_t schedule(TimePoint when, std::function<void()> run) = 0;
  virtual void cancel(std::uint64_t timer, TimePoint when) = 0;
  virtual TimePoint now() const = 0;
};

// The arguments outlive it.
class GrpcWorld final : public CallWorld {
 public:
  GrpcWorld(GrpcClient& client, TimerQueue& timers, Clock& clock)
      : client_(client), timers_(timers), clock_(clock) {}

  std::shared_ptr<GrpcClientCall> start(std::string_view path, GrpcCallOptions options,
                                        std::shared_ptr<GrpcClientEvents> events) override {
    return client_.start(path, std::move(options), std::move(events));
  }
  void post(std::function<void()> work) override { client_.loop().post(std::move(work)); }
  std::uint64_t schedule(TimePoint when, std::function<void()> run) override {
    return timers_.schedule(when, std::move(run));
  }
  void cancel(std::uint64_t timer, TimePoint when) override { timers_.cancel(timer, when); }
  TimePoint now() const override { return clock_.now(); }
  // Whether the caller is the thread of what was scheduled, or of the events of calls.
  bool is_own_thread() const { return client_.loop().is_current() || timers_.is_own_thread(); }

 private:
  GrpcClient& client_;
  TimerQueue& timers_;
  Clock& clock_;
};

}  // namespace reverie
