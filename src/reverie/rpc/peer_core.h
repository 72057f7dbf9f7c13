// A peer's logic: how each other peer is reached, the state of each call, and the effect of a lost
// connection or a restarted peer on it.
//
//                     call, answer, define ...            events of connections, tick
//                                |                                  |
//                                v                                  v
//     name --> waiting calls --> PeerCore --> session (run) --> link (connection)
//                                |
//                                v  PeerEffects: dial, send, deliver, complete
//
// A state machine: it has no lock, no clock, no thread and no socket. Each event comes with the
// time, and each effect goes to PeerEffects. So one seed replays a whole network of peers.
//
// The rules:
// - A call belongs to one run of the called peer, and arrives there at most once: its session
//   (session.h) may use several connections, one after the other.
// - When a run ends, or is silent for `dead_after`, its calls fail, except those that were never
//   sent and unanswered ones that are marked idempotent: these go to the next run.
// - The connected peers are asked for a name that is not connected; names that no peer knows are
//   refused after `find_timeout`. While an explicit address has not answered yet, calls wait, at
//   most for `reach_timeout`.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/rpc/frame.h"
#include "reverie/rpc/handshake.h"
#include "reverie/rpc/session.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// Functions that every peer serves.
inline constexpr std::string_view kPingFunction = "reverie.ping";
inline constexpr std::string_view kListFunction = "reverie.functions";
// Served by peers that may read each other's devices: calls/device_tensors.h.
inline constexpr std::string_view kDeviceFunction = "reverie.device";

// Identifies a call of another peer. A value.
struct InboundId {
  std::uint64_t session = 0;
  std::uint64_t call = 0;
  friend auto operator<=>(const InboundId&, const InboundId&) = default;
};

// A received call.
struct Request {
  InboundId id;
  std::string caller;
  std::string function;
  Message message;
};

// What went wrong in a handler.
struct RemoteError {
  StatusCode code = StatusCode::kInternal;
  std::string type;  // the exception's class, for messages
  std::string text;
  std::string traceback;
};

// A Unix socket that ends with the process that listens there, and with which shared memory begins.
inline bool is_abstract(std::string_view address) {
  return address.starts_with("unix:@");
}

// How a call ended.
struct CallResult {
  enum class Kind {
    kAnswer,
    kRemoteError,  // the handler failed: `status` says how
    kRestarted,    // the run that was called is gone
    kFailed,       // `status` says why
  };
  Kind kind = Kind::kFailed;
  Status status;
  Payload payload = {};         // the answer
  std::string error_type = {};  // of a remote error: its class and its traceback, for messages
  std::string traceback = {};
};

// Copies the bulk that may change to `memory`.
Status keep_bulk(Payload& payload, Allocator& memory);

// The effects of the core. They must not call the core.
class PeerEffects {
 public:
  virtual ~PeerEffects() = default;
  // Connects, and calls link_up or link_down later.
  virtual void dial(LinkId link, const std::string& address) = 0;
  virtual void send(LinkId link, const FrameHeader& header,
                    std::shared_ptr<const Message> message) = 0;
  // Closes the link once all frames are sent. It has no further events.
  virtual void hang_up(LinkId link) = 0;
  // The peer has proved its identity: larger frames are accepted. One frame of the handshake
  // follows.
  virtual void trust(LinkId link, const std::string& peer) = 0;
  // Both sides use UCX, and the handshake is over: everything from here on goes over UCX, in both
  // directions. Only with PeerOptions::uses_ucx.
  virtual void use_ucx(LinkId, bool /*is_dialler*/) {}
  virtual void deliver(Request request) = 0;
  // The request's caller no longer waits for an answer.
  virtual void withdraw(InboundId request) = 0;
  virtual void complete(CallId call, CallResult result) = 0;
  // What a receipt does when it is given, on any thread and under any lock: it has copied() called
  // later.
  virtual std::function<void()> on_receipt(InboundId message, FrameKind kind) = 0;
};

struct PeerOptions {
  std::string name;
  RunId run;
  std::string token;  // empty: none is required
  std::string host;   // equal for peers that reach the same Unix sockets; empty: unknown
  bool uses_unix = true;
  bool uses_tcp = true;
  bool uses_ucx = false;                              // for TCP links, if both sides do
  std::size_t calls_max = 65'536;                     // that are not answered yet
  std::size_t call_bytes_max = std::size_t{8} << 30;  // of these
  // How much this peer holds for all others together: calls that are not answered yet, and answers
  // that are not read yet. A single call or answer of any size is accepted.
  std::size_t held_bytes_max = std::size_t{1} << 30;
  Duration dead_after = std::chrono::milliseconds(1500);
  Duration find_timeout = std::chrono::seconds(2);
  // How long a call waits for an explicit address that does not answer.
  Duration reach_timeout = std::chrono::seconds(30);
  std::function<std::uint64_t()> random;  // fresh random bits
};

struct CallOptions {
  TimePoint deadline = TimePoint::max();
  bool is_idempotent = false;  // may run more than once
  bool copies_bulk = false;    // copies bulk that may change before call() returns
};

// The run at the other end, as far as it concerns memory that both could share.
struct Neighbour {
  std::uint64_t session = 0;  // 0: it is not connected, and never was
  std::string name;
  // It runs on this host, and shares memory over its link as far as is known: there is no link now,
  // the link has shown it, or it may still do so.
  bool is_proved = false;
  bool may_be_proved = false;  // that is being found out
  // The same number at both ends of the session, which only these know; 0 before it is open.
  std::uint64_t secret = 0;
};

// The state of a peer that has been connected.
struct PeerInfo {
  std::string name;
  std::string link_address;
  LinkId link = 0;
  bool is_connected = false;
  std::string transport;  // of the link, and why it was chosen
  std::string transport_reason;
  std::size_t calls = 0;     // of ours, not answered
  std::size_t requests = 0;  // of theirs, not answered
};

// Not thread-safe.
class PeerCore {
 public:
  PeerCore(PeerOptions options, PeerEffects& effects);

  // --- The user's calls.
  const PeerOptions& options() const { return options_; }
  // An address at which others reach this peer. Connected peers are told, later ones in the
  // handshake.
  void add_address(std::string address, TimePoint now);
  // What addresses are dialled from now on.
  void set_ways(bool uses_unix, bool uses_tcp, bool uses_ucx) {
    options_.uses_unix = uses_unix;
    options_.uses_tcp = uses_tcp;
    options_.uses_ucx = uses_ucx;
  }
  // Keeps a connection to the peer that listens there.
  void connect(const std::string& address, TimePoint now);
  Status define(const std::string& function);
  bool undefine(const std::string& function);
  std::vector<std::string> functions() const;
  std::vector<PeerInfo> peers() const;
  // RESOURCE_EXHAUSTED or INVALID_ARGUMENT at once; otherwise complete() is called once.
  Result<CallId> call(const std::string& peer, const std::string& function, Payload payload,
                      const CallOptions& options, TimePoint now);
  // Completes the call with CANCELLED, unless it is complete.
  void cancel(CallId call, TimePoint now);
  void answer(InboundId request, Payload payload, TimePoint now);
  void fail(InboundId request, const RemoteError& error, TimePoint now);
  bool is_wanted(InboundId request) const;
  // Sends a goodbye; all calls fail. Later calls and events have no effect.
  void close(TimePoint now);
  std::size_t pending_calls() const { return calls_.size(); }
  // Calls of others that were neither answered nor withdrawn.
  std::size_t pending_requests() const { return request_count_; }
  // The present link to the peer, or to the caller of the request; 0 if there is none.
  LinkId link_to(const std::string& peer) const;
  LinkId link_to(InboundId request) const;
  // `may_prove` is false if it is known that the present link proves nothing about the host.
  Neighbour neighbour(const std::string& peer, bool may_prove, TimePoint now) const;
  Neighbour neighbour(InboundId request, bool may_prove, TimePoint now) const;
  // Whether kDeviceFunction is delivered.
  void serve_devices() { serves_devices_ = true; }
  // The lent memory that a received call or answer names is not read any more.
  void copied(InboundId message, FrameKind kind, TimePoint now);

  // --- Events of connections.
  // A peer connected; returns the number of the link.
  LinkId accepted(const std::string& address, TimePoint now);
  // Closes the oldest connection that is still in its handshake, to make room for a new one. False
  // if there is none.
  bool make_way(TimePoint now);
  // A dialled link is connected; `remote`, unless it is a Unix socket, replaces a wildcard in the
  // addresses that the peer tells.
  void link_up(LinkId link, const std::string& remote, TimePoint now);
  // NOT_FOUND means that no process listens at the dialled address. If that is an abstract Unix
  // socket, the run that listened there has ended, and its calls fail at once.
  void link_down(LinkId link, const Status& why, TimePoint now);
  // Bytes arrived, a complete frame or not.
  void heard(LinkId link, TimePoint now);
  void received(LinkId link, Frame frame, TimePoint now);
  // The run at the other end of the link has proved that it runs on this host.
  void host_proved(LinkId link);

  // --- Time.
  void tick(TimePoint now);
  // When tick() is due.
  TimePoint next_tick() const { return next_tick_; }

 private:
  enum class Stage { kDialling, kHello, kWelcome, kResume, kResumed, kOpen };
  struct Link {
    bool is_dialled = false;
    std::string address;  // the dialled address, or the listener's
    std::string remote;   // the host of the other end, "localhost" over a Unix socket
    Stage stage = Stage::kDialling;
    Greeting mine;
    Greeting theirs;
    bool uses_ucx = false;        // this side, and in the end both
    bool is_ucx_heard = false;    // something arrived after the handshake
    std::uint64_t session = 0;    // once it is open
    TimePoint opened;             // when its handshake began
    TimePoint joined;             // when its session used it first
    bool is_host_proved = false;  // over this link
    TimePoint heard;
    TimePoint sent;
  };
  // An address and the state of its connection.
  struct Route {
    bool is_explicit = false;
    std::string peer;  // empty until it has answered
    RunId run;         // that answered there last
    LinkId link = 0;
    TimePoint next_try;
    Duration pause{};
    Status last;              // why there is no connection
    bool is_refused = false;  // for a permanent reason
    int failures = 0;         // in a row
  };
  struct Call {
    std::string peer;
    std::shared_ptr<Message> message;
    CallOptions options;
    std::uint64_t session = 0;   // 0: waits for a session
    TimePoint waits_since;       // for a session
    std::uint64_t sequence = 0;  // of its frame
    std::size_t size_bytes = 0;
  };
  // A name that calls wait for.
  struct Wanted {
    std::vector<CallId> calls;
    TimePoint since;
    TimePoint last_asked;
    std::vector<std::uint64_t> to_answer;  // sessions whose answer is awaited
    std::string known_by;                  // the last one that is connected to it
  };

  void dial(const std::string& address, TimePoint now);
  void step_routes(TimePoint now);
  bool is_needed(const Route& route) const;
  void tell_addresses(Session& session, TimePoint now);
  // The addresses that the peer has announced.
  void note_addresses(Session& session, const std::vector<std::string>& addresses);
  // Drops learned addresses that no present peer tells and no call waits for.
  void drop_stale_routes();
  void add_routes(const std::string& peer, const std::vector<std::string>& addresses,
                  const std::string& host);
  void step_wanted(TimePoint now);
  void ask_for(const std::string& name, Wanted& wanted, TimePoint now);
  // Why calls of that name are not sent; they fail once they have waited for `fails_after`, if that
  // has a value.
  Status unknown_reason(const std::string& name, const Wanted& wanted,
                        std::optional<Duration>& fails_after, TimePoint now) const;
  std::string dial_failures(const std::string& peer) const;
  void step_deadlines(TimePoint now);
  void step_links(TimePoint now);
  void tick_by(TimePoint when) { next_tick_ = std::min(next_tick_, when); }

  void send(LinkId link, const FrameHeader& header, std::shared_ptr<const Message> message,
            TimePoint now);
  void refuse(LinkId link, const Status& why, TimePoint now);
  // The link is lost already, or drop_link closes it. Its session may continue.
  void lose_link(LinkId link, const Status& why, TimePoint now);
  void drop_link(LinkId link, const Status& why, TimePoint now);
  void on_hello(LinkId id, Link& link, const Frame& frame, TimePoint now);
  void on_welcome(LinkId id, Link& link, const Frame& frame, TimePoint now);
  void on_resume(LinkId id, Link& link, const Message& message, TimePoint now);
  void on_resumed(LinkId id, Link& link, const Message& message, TimePoint now);
  Status check_greeting(const Greeting& theirs) const;
  // May end the session, if it belongs to a run that has ended.
  Status claim_name(const Greeting& theirs, TimePoint now);
  Session* session_of_name(const std::string& name);
  std::uint64_t key_of_run(const Greeting& theirs, TimePoint now);
  bool should_replace(const Session& session, const Link& link) const;
  void open(LinkId id, std::uint64_t key, std::uint64_t received, TimePoint now);
  // The other side has lost its state: what was sent to it is lost. Ends their link.
  void forget_sent(std::uint64_t key, TimePoint now);
  void end_call(CallId id, const Status& why, CallResult::Kind kind, TimePoint now);
  // Copies what the caller may change once its call has ended: the rest of its frame is sent later,
  // and all of it again if the connection is lost.
  void keep_arrays(const Session& session, Session::Queued& queued, const Call& call,
                   TimePoint now);
  void end_session(std::uint64_t key, const Status& why, CallResult::Kind kind, TimePoint now);

  void on_message(std::uint64_t key, Frame frame, TimePoint now);
  void on_call(std::uint64_t key, Frame frame, TimePoint now);
  void on_answer(std::uint64_t key, Frame frame);
  // Notes where a received message comes from, and makes the receipt for what was lent with it.
  void mark(std::uint64_t key, const Session& session, Frame& frame);
  Neighbour neighbour_of(std::uint64_t key, bool may_prove, TimePoint now) const;
  void on_find(std::uint64_t key, const Frame& frame, TimePoint now);
  void on_found(std::uint64_t key, const Frame& frame, TimePoint now);
  // In order; iterates over all calls.
  std::vector<CallId> calls_of(std::uint64_t key) const;
  // Returns the sequence.
  std::uint64_t enqueue(Session& session, FrameKind kind, std::uint64_t call,
                        std::shared_ptr<const Message> message, TimePoint now);
  // Sends an error instead if the peer already has too much to read.
  void enqueue_answer(Session& session, std::uint64_t call, Payload payload, TimePoint now);
  void enqueue_error(Session& session, std::uint64_t call, const Status& why, TimePoint now);
  void send_queued(Session& session, Session::Queued& queued, TimePoint now);
  void acknowledge(Session& session, TimePoint now);
  void start(CallId id, std::uint64_t key, TimePoint now);
  void finish(CallId id, CallResult result);
  // False if there is no such request: it was answered or cancelled.
  bool end_request(Session& session, std::uint64_t call);
  void withdraw_all(std::uint64_t key, Session& session);
  void wait_for_peer(CallId id, const std::string& peer, TimePoint now);

  PeerOptions options_;
  PeerEffects& effects_;
  std::vector<std::string> addresses_;
  std::map<LinkId, Link> links_;
  std::map<std::string, Route> routes_;
  std::map<std::uint64_t, Session> sessions_;
  std::unordered_map<std::string, std::uint64_t> session_by_name_;
  std::unordered_map<CallId, Call> calls_;
  std::size_t call_bytes_ = 0;
  std::size_t request_count_ = 0;  // calls of others, not answered
  std::size_t request_bytes_ = 0;  // of these
  std::size_t answer_bytes_ = 0;   // of answers that others have not received
  std::map<std::string, Wanted> wanted_;
  std::set<std::string> functions_;
  std::set<RunId> without_ucx_;  // runs of which nothing came by UCX
  LinkId next_link_ = 1;
  std::uint64_t next_session_ = 1;
  CallId next_call_ = 1;
  TimePoint next_tick_{};
  TimePoint next_deadline_ = TimePoint::max();
  bool is_closed_ = false;
  bool serves_devices_ = false;
};

}  // namespace reverie
