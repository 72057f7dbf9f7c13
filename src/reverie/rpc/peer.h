// Peers call each other's functions by name. docs/concepts/rpc.md shows how.
//
//     Peer::Options options{.name = "actor"};
//     REVERIE_ASSIGN_OR_RETURN(auto peer, Peer::make(options));
//     REVERIE_RETURN_IF_ERROR(peer->connect("localhost:7000"));
//     peer->call("learner", "policy", payload, {}, [](CallResult result) { ... });
//
// A thin shell around PeerCore: a lock, one I/O thread, sockets, and shared memory between
// processes of one host. A call writes to shared memory on its caller's thread, and to a socket if
// at most two are in progress; more share one write of the I/O thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

// How peers encrypt TCP connections; PEM texts, not the names of files. Each presents its
// certificate to the other, whichever connects, and accepts one that `authorities` have signed.
struct PeerTls {
  std::string certificate_chain;
  std::string private_key;
  std::string authorities;
  // The name in the certificate of a peer that this one connects to; empty: the host that it
  // connects to. One name serves peers that share a certificate.
  std::string server_name;
};

// Thread-safe. After a fork each call in the child returns FAILED_PRECONDITION, or nothing and
// without effect if it returns no status.
class Peer {
 public:
  struct Options {
    std::string name;   // 1 to 256 bytes, unique among the connected peers
    std::string token;  // the same at both ends of a connection; may be empty
    // Encrypts TCP connections. Without a token, a peer is accepted by its certificate.
    std::optional<PeerTls> tls;
    // Lets a peer without either listen where other machines can reach it.
    bool is_insecure_allowed = false;
    // The transports that it listens and connects by. Peers on one machine prefer the Unix socket.
    bool uses_unix = true;
    bool uses_tcp = true;
    // Whether TCP links to peers that set it too go over UCX, which does not encrypt. Needs a
    // library that was built with it, and TCP without TLS.
    bool uses_ucx = false;
    std::string ucx_transports = {};  // as UCX_TLS; empty: what that variable says, or all
    // Whether frames go through shared memory if a Unix socket leads to the peer and both set this.
    bool uses_shared_memory = true;
    // Whether others are told where it listens. If not, they need an explicit address.
    bool tells_addresses = true;
    std::size_t calls_max = 65'536;
    std::size_t call_bytes_max = std::size_t{8} << 30;
    // How much this peer holds for others: see PeerOptions. Without a value: an eighth of the
    // machine's memory, and at least a GiB.
    std::optional<std::size_t> held_bytes_max = std::nullopt;
    // A peer that is silent, or out of reach, for this long is dead: its calls fail.
    Duration dead_after = std::chrono::milliseconds(1500);
    // How long to look for a name, and how long to wait for an explicit address that does not
    // answer.
    Duration find_timeout = std::chrono::seconds(2);
    Duration reach_timeout = std::chrono::seconds(30);
  };
  // Called on the I/O thread or a polling thread, under no lock. It passes the request on, or
  // answers it; it must not wait.
  using Handler = std::function<void(Request)>;
  // Called with requests whose callers no longer wait: very many if a peer is lost. On any thread,
  // under no lock.
  using Withdrawn = std::function<void(std::span<const InboundId>)>;
  // Called on the I/O thread, on a polling thread, or within a call of any method; under no lock.
  // It must not wait.
  using Done = std::function<void(CallResult)>;
  // Called when a connection is made or lost or cannot be made, with a text for people. On any
  // thread, under no lock; it must not wait.
  enum class EventKind { kListens, kConnected, kLost, kNotReached };
  using OnEvent = std::function<void(EventKind kind, const std::string& text)>;

  // INVALID_ARGUMENT for an invalid name or bound, a malformed certificate or key, or UCX with TLS
  // or without TCP; UNIMPLEMENTED for UCX in a library without it; RESOURCE_EXHAUSTED if the system
  // has no thread for it.
  static Result<std::unique_ptr<Peer>> make(const Options& options);
  // Closes. Must not run on the I/O thread.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const;
  // Replaces the transports of Options. FAILED_PRECONDITION once the peer listens or connects,
  // INVALID_ARGUMENT if neither Unix sockets nor TCP are used; for UCX as make().
  Status set_ways(bool uses_unix, bool uses_tcp, bool uses_shared_memory, bool uses_ucx = false);
  // Listens at "host:port" (port 0: a free one) or "unix:/path"; returns the chosen address. Peers
  // of this machine also get a Unix socket. INVALID_ARGUMENT for an address that other machines can
  // reach, without a token or TLS; ALREADY_EXISTS if another socket listens there.
  Result<std::string> listen(const std::string& address);
  // Keeps a connection to the peer that listens there, now or later. Returns immediately.
  Status connect(const std::string& address);
  // ALREADY_EXISTS for a name that is defined.
  Status define(const std::string& function, Handler handler);
  // False if it was not defined. Requests that were handed over can still be answered.
  bool undefine(const std::string& function);
  void set_withdrawn(Withdrawn withdrawn);
  // Adds a callback for each of them, which may be dropped once `owner` has ended.
  void add_withdrawn(std::weak_ptr<const void> owner, std::function<void(InboundId)> withdrawn);
  // Until the peer is closed.
  void set_on_event(OnEvent on_event);

  // Returns the call's number. `done` is called once, or not at all if this returns an error.
  Result<CallId> call(const std::string& peer, const std::string& function, Payload payload,
                      const CallOptions& options, Done done);
  void cancel(CallId call);
  // Calls and waits, at most until the deadline.
  CallResult sync(const std::string& peer, const std::string& function, Payload payload,
                  const CallOptions& options);
  // Waits for messages until `is_done` or `until`: polls for as long as that pays, up to 150 us
  // after the last message, and then sleeps. One thread at a time reads messages in this way, and
  // is woken by them directly; handlers and callbacks of calls may run on it meanwhile. Returns
  // earlier if another thread does so already, which then makes `is_done` true, and when the peer
  // is closed. A thread that `yields` gives way to one that does not. Returns `is_done`.
  bool wait(const std::function<bool()>& is_done, TimePoint until, bool yields = false) const;
  // Has a thread that sleeps in wait() ask `is_done` again. May be called under locks.
  void wake() const;
  // Does nothing if the caller is gone or has cancelled. With `copies_bulk`, bulk that may change
  // is copied before this returns.
  void answer(InboundId request, Payload payload, bool copies_bulk = false);
  // Several answers, which are sent together.
  struct Answer {
    InboundId request;
    Payload payload;
  };
  void answer(std::vector<Answer> answers, bool copies_bulk = false);
  void fail(InboundId request, const RemoteError& error);
  // Answers requests of a peer without keeping it alive. A handler whose owner ends before the peer
  // needs one: a request that it was given just before undefine() waits until it is answered.
  class Answerer;
  Answerer answerer() const;

  // The run at the other end: of a name, or of the caller of a request.
  Neighbour neighbour(const std::string& peer) const;
  Neighbour neighbour(InboundId request) const;
  // Whether the session continues at the other end, which has proved that it runs on this host:
  // what that has lent is still lent. False if it is not known at the moment.
  bool is_kept(std::uint64_t session) const;
  // Passes calls of kDeviceFunction to `handler`; without it they are refused with NOT_FOUND.
  void serve_devices(Handler handler);

  // Whether the caller still waits for the request's answer.
  bool is_wanted(InboundId request) const;

  std::vector<PeerInfo> peers() const;
  std::vector<std::string> functions() const;
  std::vector<std::string> addresses() const;  // where it listens
  std::size_t pending_calls() const;

  // Calls fail with CANCELLED, and other peers are told that this one has left. Idempotent: a
  // second caller waits until the first has finished, or returns at once if it is the I/O thread or
  // in a callback of this peer. The first caller must not be the I/O thread.
  void close();
  // FAILED_PRECONDITION after close(), or in a forked child.
  Status check_open() const;

  class Impl;

 private:
  explicit Peer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// A value. Thread-safe. Does nothing once the peer has ended, or if the caller is gone.
class Peer::Answerer {
 public:
  void answer(InboundId request, Payload payload) const;
  void fail(InboundId request, const RemoteError& error) const;

 private:
  friend class Peer;
  explicit Answerer(std::weak_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::weak_ptr<Impl> impl_;
};

}  // namespace reverie
