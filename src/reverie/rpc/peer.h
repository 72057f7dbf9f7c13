// Peers call each other's functions by name. docs/concepts/rpc.md shows how.
//
//     Peer::Options options{.name = "actor"};
//     REVERIE_ASSIGN_OR_RETURN(auto peer, Peer::make(options));
//     REVERIE_RETURN_IF_ERROR(peer->connect("localhost:7000"));
//     peer->call("learner", "policy", payload, {}, [](CallResult result) { ... });
//
// A thin shell around PeerCore: a lock, one I/O thread, sockets, and shared memory between
// processes of one host. A call writes to shared memory on its caller's thread, to a socket where
// it is the only one under way; many share one write of the I/O thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

// How peers encrypt what they send each other by TCP; PEM texts, not the names of files. Each shows
// its certificate to the other, whichever connects, and takes one that `authorities` have signed.
struct PeerTls {
  std::string certificate_chain;
  std::string private_key;
  std::string authorities;
  // What the certificate of a peer must bear that this one connects to; empty: the host that it
  // connects to. One name serves peers that share a certificate.
  std::string server_name;
};

// Thread-safe. After a fork each call in the child gives FAILED_PRECONDITION.
class Peer {
 public:
  struct Options {
    std::string name;   // 1 to 256 bytes, unique among the peers that meet
    std::string token;  // both ends of a connection have the same, or none
    // Encrypts connections by TCP. Without a token the certificate is what lets a peer in.
    std::optional<PeerTls> tls;
    // Lets a peer without either listen where other machines can reach it.
    bool is_insecure_allowed = false;
    // What it listens and connects by. Peers on one machine prefer the Unix socket.
    bool uses_unix = true;
    bool uses_tcp = true;
    // Whether frames go through shared memory where a Unix socket leads to the peer, and both say
    // so.
    bool uses_shared_memory = true;
    // Whether others are told where it listens. If not, they reach it by what they were given.
    bool tells_addresses = true;
    std::size_t calls_max = 65'536;
    std::size_t call_bytes_max = std::size_t{8} << 30;
    // What others may make this peer hold: see PeerOptions. Without a value: an eighth of the
    // machine's memory, and a GiB at the least.
    std::optional<std::size_t> held_bytes_max = std::nullopt;
    // A peer that is silent, or out of reach, for this long is dead: its calls fail.
    Duration dead_after = std::chrono::milliseconds(1500);
    // How long a name is looked for, and an address that was given and does not answer.
    Duration find_timeout = std::chrono::seconds(2);
    Duration reach_timeout = std::chrono::seconds(30);
  };
  // On the I/O thread or one that looks, under no lock: hands the request on, or answers it; does
  // not wait.
  using Handler = std::function<void(Request)>;
  // A request's caller gave it up. On any thread, under no lock.
  using Withdrawn = std::function<void(InboundId)>;
  // On the I/O thread, one that looks, or within call() or cancel(); under no lock. Does not wait.
  using Done = std::function<void(CallResult)>;

  // INVALID_ARGUMENT for a name or bound that cannot be, or a malformed certificate or key.
  static Result<std::unique_ptr<Peer>> make(const Options& options);
  // Closes. Not on the I/O thread.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const;
  // Listens at "host:port" (port 0: a free one) or "unix:/path"; gives the address that was chosen.
  // Peers of this machine get a Unix socket beside it. INVALID_ARGUMENT for an address that other
  // machines reach, without a token or TLS; ALREADY_EXISTS when another socket listens there.
  Result<std::string> listen(const std::string& address);
  // Keeps a connection to the peer that listens there, now or later. Returns at once.
  Status connect(const std::string& address);
  // ALREADY_EXISTS for a name that is defined.
  Status define(const std::string& function, Handler handler);
  // False if it was not defined. Requests that were handed over can still be answered.
  bool undefine(const std::string& function);
  void set_withdrawn(Withdrawn withdrawn);
  // One more that is told, until the peer is closed.
  void add_withdrawn(Withdrawn withdrawn);

  // Gives the call's number. An error: `done` is not called. Else it is, once.
  Result<CallId> call(const std::string& peer, const std::string& function, Payload payload,
                      const CallOptions& options, Done done);
  void cancel(CallId call);
  // Calls and waits, at most until the deadline.
  CallResult sync(const std::string& peer, const std::string& function, Payload payload,
                  const CallOptions& options);
  // Reads shared memory on the caller's thread until `is_done`, for as long as looking pays: some
  // 50 us beyond the last thing that came, and not at all where it was in vain lately. Gives
  // `is_done`. Handlers and what waits for calls run on this thread meanwhile.
  bool look(const std::function<bool()>& is_done) const;
  // Without effect once the caller is gone, or has given up. With `copies_bulk` bulk that may
  // change is copied before it returns.
  void answer(InboundId request, Payload payload, bool copies_bulk = false);
  // Many at once, which share their way out.
  struct Answer {
    InboundId request;
    Payload payload;
  };
  void answer(std::vector<Answer> answers, bool copies_bulk = false);
  void fail(InboundId request, const RemoteError& error);

  // Whether the caller still waits for the request's answer.
  bool is_wanted(InboundId request) const;

  std::vector<PeerInfo> peers() const;
  std::vector<std::string> functions() const;
  std::vector<std::string> addresses() const;  // at which it listens
  std::size_t pending_calls() const;

  // Calls fail with CANCELLED, others learn that this peer has left. Idempotent.
  void close();
  // FAILED_PRECONDITION after close(), or in a forked child.
  Status check_open() const;

  class Impl;

 private:
  explicit Peer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
