// ReverbClient: a client of a store by Reverb's protocol: of Reverie's server, or dm-reverb's.
//
//     REVERIE_ASSIGN_OR_RETURN(auto client, ReverbClient::open(io_threads, "localhost:7000", {}));
//     sample_and_wait(*client, {.table = "replay", .count = 256});
// What the protocol cannot express fails with UNIMPLEMENTED: look-ups, distinct samples,
// why_blocked. A sample request draws min_count items. Tickets are keys. Priorities that are left
// to the table are 1. The protocol does not report how many items an update found, so all of them
// count. While no server answers, requests wait for at most `retry_time`, then fail with
// UNAVAILABLE. After a lost connection inserts continue by themselves, each exactly once
// (insert_sender.h), and updates and queries are repeated, updates in their order; a sample in
// progress fails with UNAVAILABLE, since the items drawn for it may be lost.
//
// The stream of a sample request stays open for the next one, unless the target has several
// addresses, which take turns.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/adapters/reverb/insert_sender.h"
#include "reverie/adapters/reverb/sample_channel.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/grpc/grpc_blocking.h"
#include "reverie/grpc/grpc_client.h"
#include "reverie/service/replay_service.h"

namespace reverie {

struct ReverbClientOptions {
  GrpcClientOptions grpc = {};
  // How long a request waits for a server that does not answer.
  Duration retry_time = Duration::max();
  // Asks Reverie's servers for packed samples. False: for samples in Reverb's form.
  bool reads_packed = true;
};

// Thread-safe. Deadlines are on Clock::system(). `io_threads` outlives it. If a completion drops
// the last handle, another thread ends the client, soon after.
class ReverbClient final : public ReplayService, private SampleChannel::Owner {
 public:
  // Does not connect yet. INVALID_ARGUMENT for a malformed target.
  static Result<std::shared_ptr<ReverbClient>> open(IoThreads& io_threads, std::string_view target,
                                                    ReverbClientOptions options = {});
  ~ReverbClient() override;

  RequestId insert(InsertRequest request, Done<InsertResult> done) override;
  RequestId sample(SampleRequest request, Done<SampleResult> done) override;
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override;
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override;
  RequestId reset(std::string_view table, Done<Status> done) override;
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override;
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override;
  RequestId new_client(Done<Result<std::uint64_t>> done) override;
  void cancel(RequestId id) override;
  void close() override;
  void end_writer(std::uint64_t writer) override;
  Status why_unreachable() override;

  // Has the server write a checkpoint; returns its path on the server's disk. Waits; see
  // grpc_blocking.h.
  // UNIMPLEMENTED for a payload that the server did not store, as dm-reverb's stores none.
  Result<std::string> checkpoint_and_wait(std::string_view payload, const Interrupted& interrupted);
  // What the server's store was loaded from. UNIMPLEMENTED from dm-reverb's servers.
  Result<StoreOrigin> origin_and_wait(const Interrupted& interrupted);

  // Whether a server answers by the deadline. UNAVAILABLE as soon as it is known that none does:
  // this call does not wait for a reconnection. `done` is called on any thread.
  void ping(TimePoint deadline, std::function<void(Status)> done);

  // For connections made elsewhere: tests in one process.
  GrpcClient& grpc() { return *client_; }

 private:
  // A call that may be repeated.
  struct PendingQuery;
  using PendingQueryPtr = std::shared_ptr<PendingQuery>;
  // Whether a call is repeated after a lost connection. Those of kInOrder do not overtake another.
  enum class Repeats { kNever, kInAnyOrder, kInOrder };
  // What cancel() needs for a request.
  struct Pending {
    std::shared_ptr<GrpcClientCall> call;
    std::shared_ptr<SampleChannel> channel;
    PendingQueryPtr paused;  // until it is sent again
    int step = 0;            // of a request that is several calls, one after the other
    bool is_cancelled = false;
  };
  using Names = std::shared_ptr<const wire::ColumnNames>;
  // A sample request whose table's column names are unknown.
  struct Nameless {
    std::string table;
    SampleRequest request;
    Done<SampleResult> done;  // null once it has begun or was cancelled
    RequestId next = 0;       // the request that follows this one
    bool is_behind = false;   // it waits for the request that it follows
  };

  // A table's or a writer's sender, and its number, which the ids of its requests begin with.
  struct Sender {
    std::shared_ptr<InsertSender> sender;
    RequestId number = 0;
  };

  ReverbClient(std::unique_ptr<GrpcClient> client, const ReverbClientOptions& options)
      : client_(std::move(client)),
        retry_time_(options.retry_time),
        reads_packed_(options.reads_packed),
        timers_(Clock::system()),
        world_(*client_, timers_, Clock::system()) {}

  Sender sender_of(std::string_view table, std::uint64_t writer);
  Sender make_sender(std::string what) REVERIE_REQUIRES(mutex_);
  RequestId begin() REVERIE_REQUIRES(mutex_) { return ++last_id_; }
  // Keeps `call` for cancel(), unless the request is complete already or at a later step. If the
  // request was cancelled meanwhile, cancels the call at once.
  RequestId keep(RequestId id, std::shared_ptr<GrpcClientCall> call, int step = 0);
  void forget(RequestId id);
  RequestId unary(std::string_view method, std::string request, Repeats repeats,
                  GrpcClient::UnaryDone done);
  void begin_call(const PendingQueryPtr& query);
  void repeat(const PendingQueryPtr& query, const Status& why);
  PendingQueryPtr take_paused(RequestId id);
  // Begins the paused calls of kInOrder, in their order, once the first may be repeated.
  void begin_held();
  PendingQueryPtr next_held();
  TimePoint give_up_at() const;
  GrpcCallOptions patient() const;
  Names names_of(std::string_view table) REVERIE_REQUIRES(mutex_);
  // Returns the names of `table`; null if it is not among them.
  Names learn(const std::vector<TableInfo>& infos, std::string_view table);
  // Requests the names for nameless_[id], then begins it and those that follow it, in order.
  void ask_names(RequestId id);
  void on_names(RequestId id, const Result<Ref<GrpcMessage>>& response);
  void start_followers(RequestId id);
  void start_sample(RequestId id, std::string_view table, SampleRequest request, const Names& names,
                    Done<SampleResult> done);
  void ask(SampleChannel::Request request, RequestId follows = 0);
  void keep(RequestId id, const std::shared_ptr<SampleChannel>& channel);
  bool is_closed();
  static Status closed_status();
  static std::string path_of(std::string_view method);

  // SampleChannel::Owner
  void on_idle(const std::shared_ptr<SampleChannel>& channel) override;
  void on_over(const std::shared_ptr<SampleChannel>& channel, const Status& why) override;

  const std::unique_ptr<GrpcClient> client_;
  const Duration retry_time_;
  const bool reads_packed_;
  const ForkGuard fork_guard_;
  TimerQueue timers_;
  GrpcWorld world_;

  Mutex mutex_;
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<RequestId, Pending> pending_ REVERIE_GUARDED_BY(mutex_);
  // Calls of kInOrder are paused, and further ones wait behind them.
  bool is_holding_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<RequestId, Nameless> nameless_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::string, Sender, std::less<>> senders_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Sender> writers_
      REVERIE_GUARDED_BY(mutex_);  // by writers of several tables
  // Null for writers that have ended.
  std::vector<std::shared_ptr<InsertSender>> senders_by_number_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<SampleChannel>> idle_channels_ REVERIE_GUARDED_BY(mutex_);
  // By table. While they are known, a sample stream is open, whose end tells that they may be old;
  // with several addresses, streams are short, and only one that fails tells.
  std::map<std::string, Names, std::less<>> names_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
