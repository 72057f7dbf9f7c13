// SampleChannel: a sample stream that stays open for successive requests.
//
//     request  request ...   -->  server
//     samples of the first, samples of the second ...  <--
// Starting a stream costs headers in both directions and a call at the server; a request on an open
// stream is one message. A server handles the requests of a stream strictly in order, so a request
// may be sent before the previous one is answered.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "reverie/adapters/reverb/call_world.h"
#include "reverie/adapters/reverb/sample_call.h"
#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"

namespace reverie {

// Thread-safe. No callback runs under its lock.
class SampleChannel final : public GrpcClientEvents,
                            public std::enable_shared_from_this<SampleChannel> {
 public:
  struct Request {
    RequestId id = 0;
    std::string message;  // encoded, without the received count
    std::unique_ptr<SampleCall> call;
    // How long the server may take to answer, once it is this request's turn.
    Duration answer_max = Duration::max();
    std::function<void(SampleResult)> done;
  };
  // The owner of the channel; called on the I/O thread.
  struct Owner {
    virtual ~Owner() = default;
    // All requests are answered: the channel is free for another.
    virtual void on_idle(const std::shared_ptr<SampleChannel>& channel) = 0;
    // The channel takes no more requests. `why` is ok if it was finished.
    virtual void on_over(const std::shared_ptr<SampleChannel>& channel, const Status& why) = 0;
  };

  // `owner` and `world` outlive the stream, which ends with the client at the latest.
  SampleChannel(Owner& owner, CallWorld& world) : owner_(owner), world_(world) {}

  // Starts the stream with its first request, which with `is_only` is also the last. Call it once.
  void open(Request request, GrpcCallOptions options, bool is_only);
  // Sends a request, if no request waits, or if `follows` is the last one that waits. Otherwise, or
  // if the stream has ended or belongs to the parent of a forked process, returns false and leaves
  // `request` unchanged.
  bool ask(Request& request, RequestId follows = 0);
  // Cancels the request, and all others of the channel, if it waits here.
  void cancel(RequestId id);
  // Lets the server end the stream. Requires that no request waits.
  void finish();

  void on_message(Ref<GrpcMessage> message) override;
  void on_end(const Status& status) override;

 private:
  void push(Request request) REVERIE_REQUIRES(mutex_);
  void watch_front() REVERIE_REQUIRES(mutex_);
  void watch(TimePoint due) REVERIE_REQUIRES(mutex_);
  void on_watch();
  // Ends the stream and all its requests with `why`.
  void give_up(Status why) REVERIE_REQUIRES(mutex_);

  Owner& owner_;
  CallWorld& world_;
  const ForkGuard fork_guard_;

  Mutex mutex_;
  std::shared_ptr<GrpcClientCall> call_ REVERIE_GUARDED_BY(mutex_);
  // The first is being answered; only the I/O thread removes it and uses its call.
  std::deque<Request> requests_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t received_ REVERIE_GUARDED_BY(mutex_) = 0;  // samples, on this stream
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  bool has_no_successor_ REVERIE_GUARDED_BY(mutex_) = false;
  Status why_ REVERIE_GUARDED_BY(mutex_);  // of a stream that this side ended
  TimePoint answer_by_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();  // of the first request
  std::uint64_t watch_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  TimePoint watch_due_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
};

}  // namespace reverie
