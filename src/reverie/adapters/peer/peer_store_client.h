// PeerStoreClient: a client of a store of a Reverie server on the same machine.
//
//     REVERIE_ASSIGN_OR_RETURN(auto client, PeerStoreClient::open(loops, "localhost:7000", {}));
//     sample_and_wait(*client, {.table = "replay", .count = 256});
// It has every call of an embedded store except two: a draw cannot be returned, and views are
// inserted as items. Requests use one connection, through shared memory if both sides can map it: a
// thread that waits for an answer polls that memory itself. While no server answers, requests wait
// for at most `retry_time`, then fail with UNAVAILABLE. After a lost connection inserts continue by
// themselves, each exactly once (insert_pump.h), and updates and queries are repeated; a sample,
// reset or checkpoint in progress fails with UNAVAILABLE: it may still have been applied. A
// permanent error, such as a refused token, fails at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/adapters/peer/insert_pump.h"
#include "reverie/adapters/peer/link_loops.h"
#include "reverie/adapters/peer/store_link.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/timer_queue.h"
#include "reverie/net/address.h"
#include "reverie/net/connection.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/rpc/handshake.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/store_messages/store_wire.h"

namespace reverie {

struct PeerStoreOptions {
  // The server's secret. It is never sent: each side proves that it has it, and a server that does
  // not is refused with UNAUTHENTICATED.
  std::string token = {};
  // How long a request waits for a server that does not answer.
  Duration retry_time = Duration::max();
  Duration connect_timeout = std::chrono::seconds(20);
};

// Thread-safe. Deadlines are on Clock::system(). `loops` outlives it. If a completion drops the
// last handle, another thread ends the client, soon after.
class PeerStoreClient final : public ReplayService,
                              public std::enable_shared_from_this<PeerStoreClient> {
 public:
  // Does not connect yet. INVALID_ARGUMENT for a malformed target, or one with several addresses.
  static Result<std::shared_ptr<PeerStoreClient>> open(LinkLoops& loops, std::string_view target,
                                                       PeerStoreOptions options = {});
  ~PeerStoreClient() override;

  RequestId insert(InsertRequest request, Done<InsertResult> done) override;
  RequestId sample(SampleRequest request, Done<SampleResult> done) override;
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override;
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override;
  RequestId reset(std::string_view table, Done<Status> done) override;
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override;
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override;
  RequestId new_client(Done<Result<std::uint64_t>> done) override;
  void end_writer(std::uint64_t writer) override;
  std::optional<bool> look(const std::function<bool()>& is_done) override;
  Status why_unreachable() override;
  void cancel(RequestId id) override;
  void close() override;

  // Has the server write a checkpoint that holds `payload`; returns its path on the
  // server's disk.
  RequestId checkpoint(std::string_view payload, Done<Result<std::string>> done);
  Result<std::string> checkpoint_and_wait(std::string_view payload,
                                          const WaitOptions& options = {});
  // What the server's store was loaded from.
  RequestId origin(Done<Result<StoreOrigin>> done);
  Result<StoreOrigin> origin_and_wait(const WaitOptions& options = {});

  // The transport that carries frames now; "nothing" without a connection.
  std::string transport();

 private:
  class Session;
  using SessionPtr = std::shared_ptr<Session>;
  class Returns;
  // The parts of a sample that have arrived.
  struct Sampling;
  // Gets the answer, or null and why there is none.
  using Answer = std::function<void(const Status& why, const Payload* answer)>;
  struct Pending {
    store_wire::StoreCall kind = store_wire::StoreCall::kInfo;
    std::shared_ptr<const Message> message;  // of a sample: once it is sent
    bool is_repeatable = false;
    bool is_sent = false;
    bool is_reading = false;                  // a part of its sample, which writes to its batch
    TimePoint deadline = TimePoint::max();    // while it is not sent
    TimePoint give_up_at = TimePoint::max();  // while it is not sent
    TimePoint answer_by = TimePoint::max();   // once it is sent
    Status late_with = {};                    // of a cancelled request
    Answer answer;
    std::shared_ptr<Sampling> sampling;
  };
  // A callback to call once no lock is held.
  struct Outcome {
    std::vector<std::pair<Answer, Status>> failed;
    InsertPump::Ended ended;
  };
  struct Pump {
    std::shared_ptr<InsertPump> pump;
    std::uint32_t number = 0;
  };

  PeerStoreClient(LinkLoops& loops, Endpoint endpoint, PeerStoreOptions options);
  static void end(PeerStoreClient* client);

  Status check_usable();
  TimePoint give_up_at() const;
  RequestId ask(Pending pending);
  // A request whose answer `read` decodes.
  template <typename T>
  RequestId question(store_wire::StoreCall kind, bool is_repeatable, Payload asked,
                     T (*read)(const Payload&), Done<T> done);
  void send(RequestId id, Pending& pending) REVERIE_REQUIRES(mutex_);
  // Ends all requests, except those that are being read: their reader ends them.
  void fail_all(const Status& why, Outcome& outcome) REVERIE_REQUIRES(mutex_);
  std::shared_ptr<const Message> sample_message(Sampling& sampling) REVERIE_REQUIRES(mutex_);
  std::shared_ptr<InsertPump> pump_of(std::string_view table, std::uint64_t writer,
                                      RequestId& base);
  std::shared_ptr<InsertPump> make_pump(RequestId& base) REVERIE_REQUIRES(mutex_);

  // --- The connection.
  void need_connection() REVERIE_REQUIRES(mutex_);
  void start_connecting();
  void connected(Result<std::unique_ptr<Connection>> connection);
  // `is_final`: the error is permanent, and waiting requests fail with it.
  void connect_failed(const Status& why, bool is_final);
  void on_frames(const SessionPtr& session, const std::vector<Frame>& frames);
  void on_lost(const SessionPtr& session, const Status& why);
  // `is_goodbye`: the server has begun none of the requests that it has not answered.
  void end_session(const SessionPtr& session, const Status& why, bool is_final,
                   bool is_goodbye = false);
  void on_room(const SessionPtr& session);
  Status handle_handshake(const SessionPtr& session, const Frame& frame);
  void on_open(const SessionPtr& session);
  void on_answer(const SessionPtr& session, const Frame& frame);
  void on_part(const SessionPtr& session, RequestId id, const std::shared_ptr<Sampling>& sampling,
               const Frame& frame);
  void read_items(const SessionPtr& session, RequestId id, Sampling& sampling,
                  const store_wire::SamplePart& part, const Payload& payload, Status& status);
  void end_orphan(const SessionPtr& session, RequestId id, const Frame& frame)
      REVERIE_REQUIRES(mutex_);
  void on_inserted(const Session& session, const Payload& payload);
  static void send_cancel(Session& session, RequestId id);

  void watch(TimePoint due) { alarm_.set(due); }
  void sweep();
  static void finish(Outcome& outcome);
  Status unreachable() REVERIE_REQUIRES(mutex_);
  // Why a connection has ended.
  Status gone() REVERIE_REQUIRES(mutex_);
  std::vector<std::shared_ptr<InsertPump>> pumps() REVERIE_REQUIRES(mutex_);

  LinkLoops& loops_;
  IoLoop& loop_;
  const Endpoint endpoint_;
  const PeerStoreOptions options_;
  const ForkGuard fork_guard_;
  // Loop thread only.
  ConnectHandle connecting_;

  Mutex mutex_;
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<RequestId, Pending> pending_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::string, Pump, std::less<>> table_pumps_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Pump> writer_pumps_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<InsertPump>> pumps_ REVERIE_GUARDED_BY(mutex_);  // null: has ended
  // By table of the connected server.
  std::map<std::string, std::shared_ptr<const wire::ColumnNames>, std::less<>> names_
      REVERIE_GUARDED_BY(mutex_);
  // Sample requests of this connection whose last part has arrived, since the last one was sent.
  std::vector<std::uint64_t> received_ REVERIE_GUARDED_BY(mutex_);
  bool is_connecting_ REVERIE_GUARDED_BY(mutex_) = false;
  SessionPtr session_ REVERIE_GUARDED_BY(mutex_);
  Duration pause_ REVERIE_GUARDED_BY(mutex_) = Duration::zero();
  TimePoint connect_at_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();  // the next attempt
  TimePoint broken_since_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  bool is_logged_ REVERIE_GUARDED_BY(mutex_) = false;
  Status last_failure_ REVERIE_GUARDED_BY(mutex_);

  TimerQueue timers_;
  Alarm alarm_;  // after timers_, so that it is stopped first
};

}  // namespace reverie
