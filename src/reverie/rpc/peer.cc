// The shell around PeerCore: its lock, its connections, its timer, its callers.
//
// One file, since each method is a turn of the same kind: it locks, passes an event to the core,
// and carries out the effects after it has unlocked.
#include "reverie/rpc/peer.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <unistd.h>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/base/start_thread.h"
#include "reverie/door/door.h"
#include "reverie/net/connection.h"
#include "reverie/net/tls.h"
#include "reverie/os/host_id.h"
#include "reverie/os/memory_size.h"
#include "reverie/rpc/link_polls.h"
#include "reverie/rpc/wire_link.h"
#include "reverie/tensor/batch_memory.h"

namespace reverie {
namespace {

constexpr Duration kConnectMax = std::chrono::seconds(5);
constexpr std::size_t kLinksMax = 65'536;
constexpr std::size_t kKeptBuffers = 4;
// A connection that ends with this many unsent frames leaves the C heap large.
constexpr std::size_t kManyFrames = 10'000;
constexpr std::size_t kHeldBytesMin = std::size_t{1} << 30;
constexpr std::size_t kMemoryPart = 8;
// If no more calls are in progress, each is sent on its caller's thread.
constexpr std::size_t kLoneCalls = 2;
// Answers of handlers that run one after the other share one write.
constexpr std::size_t kAnswersAtOnce = 16;
// The peer whose handlers run on this thread, if more of them follow.
thread_local const void* gathers = nullptr;
constexpr const char* kAlpn = "reverie-rpc";

// While it lives, this thread runs callbacks of a peer; several are nested if these use other
// peers.
class WithinPeer {
 public:
  explicit WithinPeer(const void* peer) : peer_(peer), outer_(std::exchange(innermost, this)) {}
  ~WithinPeer() { innermost = outer_; }
  WithinPeer(const WithinPeer&) = delete;
  WithinPeer& operator=(const WithinPeer&) = delete;

  static bool is(const void* peer) {
    const WithinPeer* at = innermost;
    while (at != nullptr && at->peer_ != peer) at = at->outer_;
    return at != nullptr;
  }

 private:
  static inline thread_local const WithinPeer* innermost = nullptr;

  const void* const peer_;
  const WithinPeer* const outer_;
};

using ConnectingTls = std::shared_ptr<const TlsContext>;

// Null without TLS.
Result<ConnectingTls> connecting_tls(const std::optional<PeerTls>& tls) {
  if (!tls) return ConnectingTls();
  if (tls->certificate_chain.empty() || tls->private_key.empty() || tls->authorities.empty()) {
    return invalid_argument(
        "tls lacks a certificate, its key, or the authorities that signed those of the peers; a "
        "peer needs all three, since it connects to others and others to it");
  }
  return TlsContext::client(
      {tls->authorities, tls->certificate_chain, tls->private_key, tls->server_name}, {kAlpn});
}

Status check_ways(const Peer::Options& options, bool uses_unix, bool uses_tcp, bool uses_ucx) {
  if (!uses_unix && !uses_tcp) {
    return invalid_argument("peer '{}' may use neither Unix sockets nor TCP; allow one",
                            options.name);
  }
  if (!uses_ucx) return {};
  if (options.tls) {
    return invalid_argument("peer '{}' has tls, and UCX does not encrypt; leave one of them out",
                            options.name);
  }
  if (!uses_tcp) {
    return invalid_argument("peer '{}' uses UCX, which begins with TCP; allow TCP too",
                            options.name);
  }
  return check_ucx();
}

// Peers are authenticated by the handshake's proof or the certificate; listen() requires one of
// them.
DoorOptions door_options(const std::optional<PeerTls>& tls) {
  DoorOptions options;
  if (tls) {
    options.tls = TlsServerOptions{tls->certificate_chain, tls->private_key, tls->authorities};
  }
  options.is_insecure_allowed = true;
  options.encrypts_unix = false;
  options.connection_count_max = kLinksMax;
  return options;
}

}  // namespace

class Peer::Impl final : public PeerEffects, public std::enable_shared_from_this<Peer::Impl> {
 public:
  Impl(const Options& options, ConnectingTls tls)
      : Impl(options, std::move(tls), {random_seed(), random_seed()}) {}
  ~Impl() override = default;

  // --- A turn: an event under the lock, then its effects under no lock. The answers of handlers
  // within a turn are written together, in the turn of the last handler.
  template <typename Event>
  void turn(Event event) {
    const TimePoint now = clock_.now();
    std::vector<Request> deliveries;
    std::vector<InboundId> withdrawals;
    std::vector<std::pair<Done, CallResult>> completions;
    std::vector<std::pair<Handler, Request>> handled;
    std::vector<Withdrawn> withdrawn;
    std::vector<std::pair<EventKind, std::string>> unreported;
    OnEvent on_event;
    {
      MutexLock lock(mutex_);
      event(now);
      if (core_.next_tick() <= now) {
        note_unread(now);
        core_.tick(now);
      }
      if (gathers != this) flush_dirty();
      arm_timer();
      deliveries.swap(deliveries_);
      withdrawals.swap(withdrawals_);
      for (auto& [call, result] : completions_) {
        const auto done = done_.find(call);
        if (done == done_.end()) continue;
        completions.emplace_back(std::move(done->second), std::move(result));
        done_.erase(done);
      }
      completions_.clear();
      for (Request& request : deliveries) {
        const auto handler = handlers_.find(request.function);
        if (handler != handlers_.end()) handled.emplace_back(handler->second, std::move(request));
      }
      if (!withdrawals.empty()) {
        for (const auto& more : more_withdrawn_) withdrawn.push_back(more.second);
        if (withdrawn_) withdrawn.push_back(withdrawn_);
      }
      if (!unreported_.empty()) {
        unreported.swap(unreported_);
        on_event = on_event_;
      }
    }
    const WithinPeer within(this);
    for (const auto& [kind, text] : unreported) on_event(kind, text);
    for (auto& [done, result] : completions) done(std::move(result));
    const void* const outer = gathers;
    std::size_t left = handled.size();
    for (auto& [handler, request] : handled) {
      --left;
      gathers = left % kAnswersAtOnce == 0 ? outer : this;
      handler(std::move(request));
    }
    gathers = outer;
    if (handled.size() > 1 && outer != this) {
      MutexLock lock(mutex_);
      flush_dirty();
    }
    for (const Withdrawn& on_withdrawn : withdrawn) on_withdrawn(withdrawals);
  }

  Status check_open() {
    REVERIE_RETURN_IF_ERROR(fork_guard_.check("peer"));
    MutexLock lock(mutex_);
    if (is_closed_)
      return failed_precondition("peer '{}' is closed; make a new one", options_.name);
    return {};
  }

  // Its locks may be held for ever, by threads that only the parent has.
  bool is_forked() const { return !fork_guard_.check("peer").ok(); }

  // Whether its certificate and key can be used.
  Status check_door() { return door_.check({}); }

  Status set_ways(bool uses_unix, bool uses_tcp, bool uses_shared_memory, bool uses_ucx) {
    REVERIE_RETURN_IF_ERROR(check_open());
    REVERIE_RETURN_IF_ERROR(check_ways(options_, uses_unix, uses_tcp, uses_ucx));
    MutexLock lock(mutex_);
    if (is_begun_) {
      return failed_precondition("peer '{}' listens or connects already; set its transports before",
                                 options_.name);
    }
    uses_unix_ = uses_unix;
    uses_tcp_ = uses_tcp;
    uses_shared_memory_ = uses_shared_memory;
    uses_ucx_ = uses_ucx;
    core_.set_ways(uses_unix, uses_tcp, uses_ucx);
    return {};
  }

  // An address to listen or connect at.
  Result<Endpoint> begin(const std::string& text) {
    REVERIE_RETURN_IF_ERROR(check_open());
    REVERIE_ASSIGN_OR_RETURN(Endpoint endpoint, parse_endpoint(text));
    const bool is_unix = endpoint.kind == Endpoint::Kind::kUnix;
    MutexLock lock(mutex_);
    if (is_unix ? !uses_unix_ : !uses_tcp_) {
      return invalid_argument("address is '{}', but peer '{}' does not use such connections", text,
                              options_.name);
    }
    is_begun_ = true;
    return endpoint;
  }

  Result<std::string> listen(const std::string& text) {
    REVERIE_ASSIGN_OR_RETURN(const Endpoint endpoint, begin(text));
    REVERIE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, resolve(endpoint));
    const SocketAddress& address = addresses.front();
    const bool has_secret = !options_.token.empty() || options_.tls;
    if (!address.is_loopback() && !has_secret && !options_.is_insecure_allowed) {
      return invalid_argument(
          "address is '{}', which other machines can reach, and '{}' has no token; give both ends "
          "a token or tls, listen at 127.0.0.1, or say insecure=True",
          text, options_.name);
    }
    REVERIE_ASSIGN_OR_RETURN(const std::string chosen, open_door(text));
    listen_unix();
    turn([&](TimePoint) {
      mutex_.assert_held();
      log_event(EventKind::kListens, "'{}' listens at {}", options_.name, chosen);
    });
    return chosen;
  }

  Status connect(const std::string& text) {
    REVERIE_ASSIGN_OR_RETURN(const Endpoint endpoint, begin(text));
    listen_unix();
    turn([&](TimePoint now) {
      mutex_.assert_held();
      core_.connect(endpoint.to_string(), now);
    });
    return {};
  }

  Status define(const std::string& function, Handler handler) {
    REVERIE_RETURN_IF_ERROR(check_open());
    MutexLock lock(mutex_);
    REVERIE_RETURN_IF_ERROR(core_.define(function));
    handlers_[function] = std::move(handler);
    return {};
  }

  bool undefine(const std::string& function) {
    Handler gone;  // is released under no lock
    MutexLock lock(mutex_);
    const auto handler = handlers_.find(function);
    if (handler == handlers_.end()) return false;
    gone = std::move(handler->second);
    handlers_.erase(handler);
    return core_.undefine(function);
  }

  void set_withdrawn(Withdrawn withdrawn) {
    if (is_forked()) return;
    MutexLock lock(mutex_);
    withdrawn_.swap(withdrawn);  // what was there ends after the lock
  }

  void add_withdrawn(std::weak_ptr<const void> owner, std::function<void(InboundId)> withdrawn) {
    if (is_forked()) return;
    std::vector<OwnedWithdrawn> ended;  // after the lock
    MutexLock lock(mutex_);
    const auto rest =
        std::partition(more_withdrawn_.begin(), more_withdrawn_.end(),
                       [](const OwnedWithdrawn& one) { return !one.first.expired(); });
    ended.assign(std::make_move_iterator(rest), std::make_move_iterator(more_withdrawn_.end()));
    more_withdrawn_.erase(rest, more_withdrawn_.end());
    more_withdrawn_.emplace_back(
        std::move(owner), [each = std::move(withdrawn)](std::span<const InboundId> requests) {
          for (const InboundId request : requests) each(request);
        });
  }

  void set_on_event(OnEvent on_event) {
    if (is_forked()) return;
    MutexLock lock(mutex_);
    on_event_.swap(on_event);
  }

  Result<CallId> call(const std::string& peer, const std::string& function, Payload payload,
                      const CallOptions& options, Done done) {
    REVERIE_RETURN_IF_ERROR(fork_guard_.check("peer"));
    REVERIE_RETURN_IF_ERROR(place_bulk(payload, options.copies_bulk, peer));
    Result<CallId> id = CallId{0};
    turn([&](TimePoint now) {
      mutex_.assert_held();
      id = core_.call(peer, function, std::move(payload), options, now);
      if (id.ok()) done_.emplace(*id, std::move(done));
    });
    return id;
  }

  void cancel(CallId call) {
    if (is_forked()) return;
    turn([&](TimePoint now) {
      mutex_.assert_held();
      core_.cancel(call, now);
    });
  }

  void answer(std::span<Answer> answers, bool copies_bulk) {
    if (is_forked()) return;
    for (Answer& answer : answers) {
      const Status placed = place_bulk(answer.payload, copies_bulk, answer.request);
      if (placed.ok()) continue;
      fail(answer.request, {placed.code(), "", placed.message(), ""});
      answer.request = {};  // no session has this number
    }
    turn([&](TimePoint now) {
      mutex_.assert_held();
      for (Answer& answer : answers) {
        if (answer.request.session == 0) continue;
        core_.answer(answer.request, std::move(answer.payload), now);
      }
    });
  }

  void fail(InboundId request, const RemoteError& error) {
    if (is_forked()) return;
    turn([&](TimePoint now) {
      mutex_.assert_held();
      core_.fail(request, error, now);
    });
  }

  bool is_wanted(InboundId request) {
    if (is_forked()) return false;
    MutexLock lock(mutex_);
    return core_.is_wanted(request);
  }

  template <typename Receiver>
  Neighbour neighbour(const Receiver& receiver) {
    if (is_forked()) return {};
    MutexLock lock(mutex_);
    const auto link = links_.find(core_.link_to(receiver));
    const bool may_prove = link == links_.end() || link->second->may_prove_host();
    return core_.neighbour(receiver, uses_shared_memory_ && may_prove, clock_.now());
  }

  bool is_kept(std::uint64_t session) {
    if (is_forked()) return false;
    MutexLock lock(mutex_);
    const auto link = links_.find(core_.link_to(InboundId{session, 0}));
    return link != links_.end() && link->second->is_kept();
  }

  void serve_devices(Handler handler) {
    if (is_forked()) return;
    MutexLock lock(mutex_);
    core_.serve_devices();
    handlers_[std::string(kDeviceFunction)] = std::move(handler);
  }

  bool wait(const std::function<bool()>& is_done, TimePoint until, bool yields) {
    return is_forked() ? is_done() : polls_.wait(clock_, is_done, until, yields);
  }
  void wake() {
    if (!is_forked()) polls_.wake();
  }

  std::vector<PeerInfo> peers() {
    if (is_forked()) return {};
    MutexLock lock(mutex_);
    std::vector<PeerInfo> found = core_.peers();
    for (PeerInfo& info : found) {
      const auto link = links_.find(info.link);
      if (link == links_.end()) continue;
      info.transport = link->second->transport();
      info.transport_reason = link->second->why();
    }
    return found;
  }
  std::vector<std::string> functions() {
    if (is_forked()) return {};
    MutexLock lock(mutex_);
    return core_.functions();
  }
  std::vector<std::string> addresses() {
    if (is_forked()) return {};
    MutexLock lock(mutex_);
    return addresses_;
  }
  std::size_t pending_calls() {
    if (is_forked()) return 0;
    MutexLock lock(mutex_);
    return core_.pending_calls();
  }
  const std::string& name() const { return options_.name; }

  // False in a forked child, whose parent continues.
  bool close() {
    if (is_forked()) return false;
    {
      MutexLock lock(mutex_);
      if (std::exchange(is_closed_, true)) {
        // The first caller may wait for this thread, or be it.
        if (WithinPeer::is(this) || io_.loop(0).is_current()) return true;
        while (!has_ended_) ended_.wait(mutex_);
        return true;
      }
    }
    end();
    MutexLock lock(mutex_);
    has_ended_ = true;
    ended_.notify_all();
    return true;
  }

  // --- PeerEffects, under the lock.
  void dial(LinkId link, const std::string& address) override {
    mutex_.assert_held();
    dialling_.insert(link);
    io_.loop(0).post([this, link, address] { start_dial(link, address); });
  }
  void send(LinkId link, const FrameHeader& header,
            std::shared_ptr<const Message> message) override {
    mutex_.assert_held();
    const auto place = links_.find(link);
    if (place == links_.end()) return;
    place->second->queue(header, std::move(message));
    if (place->second->shares_next) {
      place->second->shares_next = false;
      place->second->offer_share({random_seed(), random_seed()});
    }
    dirty_.push_back(link);
  }
  void hang_up(LinkId link) override {
    mutex_.assert_held();
    if (dialling_.erase(link) > 0) {
      io_.loop(0).post([this, link] { dials_.erase(link); });
      return;
    }
    const auto place = links_.find(link);
    if (place == links_.end()) return;
    if (!io_.loop(0).is_current() && !place->second->connection().can_write_on_any_thread()) {
      // The loop's thread may be reading it now. Callers may change their arrays before it writes.
      place->second->keep_arrays();
      io_.loop(0).post([this, link] {
        turn([&](TimePoint) {
          mutex_.assert_held();
          hang_up(link);
        });
      });
      return;
    }
    place->second->flush();
    tell_lost(*place->second, "this peer hung up");
    end_link(place);
  }
  void trust(LinkId link, const std::string& peer) override {
    mutex_.assert_held();
    const auto place = links_.find(link);
    if (place == links_.end()) return;
    WireLink& trusted = *place->second;
    trusted.trust();
    trusted.peer_name = peer;
    log_event(EventKind::kConnected, "'{}' is connected to '{}' ({})", options_.name, peer,
              trusted.connection().peer());
    if (uses_ucx_ && !trusted.connection().is_unix()) {
      trusted.set_why("'" + peer + "' does not use UCX, or could not reach this peer by it");
    } else if (!trusted.connection().accepts_descriptors()) {
      trusted.set_why(uses_shared_memory_ ? "shared memory needs a Unix socket"
                                          : "this peer may not use shared memory");
    } else if (unshared_.contains(peer)) {
      trusted.set_why("what '" + peer + "' wrote to shared memory was rubbish");
    } else {
      trusted.shares_next = true;
    }
  }
  void use_ucx(LinkId link, bool is_dialler) override {
    mutex_.assert_held();
    const auto place = links_.find(link);
    if (place == links_.end()) return;
    place->second->flush();  // the last frame of the handshake goes by the socket
    if (!place->second->has_output()) {
      UcxOptions ucx{options_.ucx_transports};
      // Before its peer counts as dead, so that the calls of a link without UCX go on by TCP.
      ucx.answer_max = std::min(ucx.answer_max, options_.dead_after / 2);
      return place->second->use_ucx(is_dialler, ucx);
    }
    // A socket has room for a handshake, so it has failed.
    place->second->connection().shut_down();
  }
  void deliver(Request request) override {
    mutex_.assert_held();
    deliveries_.push_back(std::move(request));
  }
  void withdraw(InboundId request) override {
    mutex_.assert_held();
    withdrawals_.push_back(request);
  }
  void complete(CallId call, CallResult result) override {
    mutex_.assert_held();
    completions_.emplace_back(call, std::move(result));
  }
  std::function<void()> on_receipt(InboundId message, FrameKind kind) override {
    return [weak = weak_from_this(), message, kind] {
      const auto self = weak.lock();
      if (!self || self->is_forked()) return;
      // Its last owner is not the loop's thread: close() stops the loop before.
      self->io_.loop(0).post([impl = self.get(), message, kind] {
        impl->turn([&](TimePoint now) {
          impl->mutex_.assert_held();
          impl->core_.copied(message, kind, now);
        });
      });
    };
  }

 private:
  Impl(const Options& options, ConnectingTls tls, RunId run)
      : options_(options),
        tls_(std::move(tls)),
        run_(run),
        core_(core_options(options, run), *this) {
    events_.received = [this](LinkId link, std::vector<Frame> frames) {
      on_frames(link, std::move(frames));
    };
    events_.lost = [this](LinkId link, const Status& why) { on_lost(link, why); };
    events_.writable = [this](LinkId link) { on_writable(link); };
    events_.shared = [this](LinkId link, const Frame& frame, int descriptor) {
      return on_share_frame(link, frame, descriptor);
    };
    events_.rings = [this](LinkId link) { ring_doorbell(link); };
    events_.on_doorbell = [this](LinkId link) { handle_doorbell(link); };
    events_.adopts = [this](LinkId link) { return adopt(link); };
    events_.on_return_due = [this](LinkId link) {
      io_.loop(0).post([this, link] { rest_link(link); });
    };
    door_.add_protocol(
        {.name = kAlpn,
         .first_bytes = {},
         .serve = [this](AcceptedConnection incoming) { on_accept(std::move(incoming)); },
         .make_way = [this] { return make_way(); }});
    io_.loop(0).run_and_wait([this] {
      polls_.enter();
      io_.loop(0).set_watch(&polls_);
    });
  }

  // What the first caller of close() does.
  void end() {
    const WithinPeer within(this);  // what is released here may call close() again
    turn([&](TimePoint now) {
      mutex_.assert_held();
      core_.close(now);
    });
    door_.close();
    io_.loop(0).run_and_wait([this] {
      io_.loop(0).set_watch(nullptr);
      polls_.stop();
      dials_.clear();
      timer_.reset();
    });
    io_.stop();
    // They are released under no lock.
    std::unordered_map<std::string, Handler> handlers;
    Withdrawn withdrawn;
    std::vector<OwnedWithdrawn> more;
    OnEvent on_event;
    MutexLock lock(mutex_);
    handlers.swap(handlers_);
    withdrawn.swap(withdrawn_);
    more.swap(more_withdrawn_);
    on_event.swap(on_event_);
  }

  using OwnedWithdrawn = std::pair<std::weak_ptr<const void>, Withdrawn>;
  using Links = std::unordered_map<LinkId, std::shared_ptr<WireLink>>;

  // It is destroyed on the loop's thread, whichever thread releases it last.
  std::shared_ptr<WireLink> make_link(LinkId id, std::unique_ptr<Connection> connection) {
    IoLoop& loop = io_.loop(0);
    if (uses_shared_memory_) connection->accept_descriptors();
    return {new WireLink(id, std::move(connection), memory_.get(), polls_.count(), events_),
            [&loop](WireLink* link) {
              std::shared_ptr<WireLink> last(link);
              if (!loop.is_current()) loop.post([kept = std::move(last)] {});
            }};
  }

  void end_link(Links::iterator place) REVERIE_REQUIRES(mutex_) {
    WireLink& link = *place->second;
    link.end();
    polls_.unwatch(&link);
    polls_.remove(link);
    // Later: it may be running now, perhaps on a thread that keeps it for a moment. Its frames are
    // released here all the same, so that their memory can be given back.
    io_.loop(0).post([this, gone = std::move(place->second),
                      unsent = link.take_unsent()]() mutable {
      const bool were_many = unsent.size() >= kManyFrames;
      gone.reset();
      if (were_many) {
        MutexLock lock(mutex_);  // the turn that ended the link releases its session's part of them
      }
      unsent.clear();
      if (were_many) give_back_free_memory();
    });
    links_.erase(place);
  }

  static PeerOptions core_options(const Options& options, RunId run) {
    PeerOptions made;
    made.name = options.name;
    made.run = run;
    made.token = options.token;
    made.host = host_id();
    made.uses_unix = options.uses_unix;
    made.uses_tcp = options.uses_tcp;
    made.uses_ucx = options.uses_ucx;
    made.calls_max = options.calls_max;
    made.call_bytes_max = options.call_bytes_max;
    made.held_bytes_max =
        options.held_bytes_max.value_or(std::max(kHeldBytesMin, memory_size_bytes() / kMemoryPart));
    made.dead_after = options.dead_after;
    made.find_timeout = options.find_timeout;
    made.reach_timeout = options.reach_timeout;
    made.random = random_seed;
    return made;
  }

  template <typename... Args>
  void log_event(EventKind kind, fmt::format_string<Args...> pattern, Args&&... args)
      REVERIE_REQUIRES(mutex_) {
    if (on_event_)
      unreported_.emplace_back(kind, reverie::format(pattern, std::forward<Args>(args)...));
  }

  void tell_lost(WireLink& link, std::string_view why) REVERIE_REQUIRES(mutex_) {
    if (link.peer_name.empty()) {
      log_event(EventKind::kNotReached, "'{}' gave up a connection ({}) in its handshake: {}",
                options_.name, link.connection().peer(), why);
    } else {
      log_event(EventKind::kLost, "'{}' lost a connection to '{}': {}", options_.name,
                link.peer_name, why);
    }
  }

  Result<std::string> open_door(const std::string& address) {
    REVERIE_ASSIGN_OR_RETURN(const std::vector<std::string> opened, door_.listen({address}));
    const std::string& chosen = opened.front();
    turn([&](TimePoint now) {
      mutex_.assert_held();
      if (options_.tells_addresses) core_.add_address(chosen, now);
      addresses_.push_back(chosen);
    });
    return chosen;
  }

  // An abstract Unix socket, without a file, for peers of this machine. It is optional: an error is
  // ignored.
  void listen_unix() {
    {
      MutexLock lock(mutex_);
      if (!uses_unix_) return;
      if (std::exchange(listens_unix_, true)) return;
    }
    (void)open_door(format("unix:@reverie-{:016x}{:016x}", run_.high, run_.low)).ok();
  }

  // --- Loop thread only.
  void start_dial(LinkId id, const std::string& address) {
    {
      MutexLock lock(mutex_);
      if (!dialling_.contains(id)) return;
    }
    const Result<Endpoint> endpoint = parse_endpoint(address);
    if (!endpoint.ok()) return dialled(id, address, {}, endpoint.status());
    const bool is_unix = endpoint->kind == Endpoint::Kind::kUnix;
    dials_[id] = reverie::connect(
        io_.loop(0), *endpoint, is_unix ? nullptr : tls_, {}, kConnectMax,
        [this, id, address, host = endpoint->host](Result<std::unique_ptr<Connection>> connection) {
          // The handle is dropped later: this code runs within it.
          io_.loop(0).post([this, id] { dials_.erase(id); });
          dialled(id, address, host, std::move(connection));
        });
  }

  void dialled(LinkId id, const std::string& address, const std::string& host,
               Result<std::unique_ptr<Connection>> connection) {
    std::shared_ptr<WireLink> link;
    if (connection.ok()) {
      link = make_link(id, std::move(connection).value());
    }
    turn([&](TimePoint now) {  // NOLINT(bugprone-use-after-move): its status is read where there is
                               // no link
      mutex_.assert_held();
      if (dialling_.erase(id) == 0) return;
      if (!link) {
        log_event(EventKind::kNotReached, "'{}' cannot connect to {}: {}", options_.name, address,
                  connection.status().message());
        return core_.link_down(id, connection.status(), now);
      }
      links_[id] = link;
      core_.link_up(id, host, now);
    });
    if (link && !link->is_over()) link->start();
  }

  void on_accept(AcceptedConnection incoming) {
    std::shared_ptr<WireLink> link;
    turn([&](TimePoint now) {
      mutex_.assert_held();
      if (is_closed_) return;
      const LinkId id = core_.accepted(incoming.connection->peer(), now);
      link = make_link(id, std::move(incoming.connection));
      link->place = std::move(incoming.place);
      links_[id] = link;
    });
    if (link) link->start();
  }

  bool make_way() {
    bool has_made = false;
    turn([&](TimePoint now) {
      mutex_.assert_held();
      has_made = core_.make_way(now);
    });
    return has_made;
  }

  void on_frames(LinkId id, std::vector<Frame> frames) {
    turn([&](TimePoint now) {
      mutex_.assert_held();
      core_.heard(id, now);
      for (Frame& frame : frames) core_.received(id, std::move(frame), now);
    });
  }

  void on_lost(LinkId id, const Status& why) {
    turn([&](TimePoint now) {
      mutex_.assert_held();
      const auto place = links_.find(id);
      if (place == links_.end()) return;
      if (place->second->is_broken()) unshared_.insert(place->second->peer_name);
      tell_lost(*place->second, why.message());
      end_link(place);
      core_.link_down(id, why, now);
    });
  }

  Status on_share_frame(LinkId id, const Frame& frame, int descriptor) {
    MutexLock lock(mutex_);
    const auto place = links_.find(id);
    if (place == links_.end()) return {};
    Status status = place->second->on_share_frame(frame, descriptor);
    if (place->second->is_host_proved()) core_.host_proved(id);
    if (status.ok() && !place->second->is_flush_posted) write_on(*place->second);
    return status;
  }

  void ring_doorbell(LinkId id) {
    MutexLock lock(mutex_);
    const auto place = links_.find(id);
    if (place != links_.end()) place->second->ring_doorbell();
  }

  void handle_doorbell(LinkId id) {
    std::shared_ptr<WireLink> link;
    {
      MutexLock lock(mutex_);
      const auto place = links_.find(id);
      if (place != links_.end() && place->second->has_ring()) link = place->second;
    }
    if (link) polls_.watch(link);
  }

  // Loop thread only. From now on the thread that waits for the link's messages reads them.
  bool adopt(LinkId id) {
    MutexLock lock(mutex_);
    const auto place = links_.find(id);
    if (place == links_.end() || is_closed_) return true;  // it is over: it is not read again
    // A handshake may end with a change to UCX, on the loop's thread.
    if (core_.link_to(place->second->peer_name) != id) return false;
    const Status adopted = polls_.adopt(place->second, io_.loop(0));
    if (adopted.ok() && place->second->is_flush_posted) polls_.want_write(*place->second);
    return adopted.ok();
  }

  // Copies bulk to the arena that the other side reads, if there is one; otherwise, with `copies`,
  // copies bulk that may change to memory of this peer. Under no lock, since it may take long.
  template <typename Receiver>
  Status place_bulk(Payload& payload, bool copies, const Receiver& receiver) {
    if (payload.bulk.empty() || payload.block) return {};
    const std::size_t size = payload.bulk_bytes();
    std::shared_ptr<SharedArena> arena;
    if (uses_shared_memory_ && size >= kArenaBulkMin) {
      MutexLock lock(mutex_);
      const auto link = links_.find(core_.link_to(receiver));
      if (link != links_.end()) arena = link->second->arena_for(size, clock_.now());
    }
    if (arena && write_to_arena(*arena, size, payload)) return {};
    return copies ? keep_bulk(payload, *memory_) : Status();
  }

  // False where the arena has no room.
  static bool write_to_arena(SharedArena& arena, std::size_t size, Payload& payload) {
    const Result<std::shared_ptr<ArenaBlock>> block = arena.allocate(size);
    if (!block.ok()) return false;
    std::size_t end = 0;
    for (const BulkPiece& piece : payload.bulk) {
      const std::size_t begin = Payload::padded(end);
      if (!(*block)->write(begin, piece.bytes).ok()) return false;
      end = begin + piece.bytes.size();
    }
    payload.bulk.clear();
    payload.bulk.push_back({(*block)->bytes(), *block});
    payload.block = *block;
    return true;
  }

  // Loop thread only: returns the ranges that the link's arrays have released.
  void rest_link(LinkId id) {
    MutexLock lock(mutex_);
    const auto place = links_.find(id);
    if (place == links_.end()) return;
    place->second->rest(clock_.now());
    if (place->second->has_output() && !place->second->is_flush_posted) write_on(*place->second);
  }

  void on_writable(LinkId id) {
    MutexLock lock(mutex_);
    const auto place = links_.find(id);
    if (place == links_.end()) return;
    place->second->is_flush_posted = false;
    write_on(*place->second);
  }

  // Writes, and asks to continue when the connection is writable. Loop thread only, if the link
  // writes to a socket that is not adopted.
  void write_on(WireLink& link) REVERIE_REQUIRES(mutex_) {
    if (link.flush() || link.is_out_ring()) return;
    link.is_flush_posted = true;
    if (link.adopted.id != 0) return polls_.want_write(link);
    link.connection().want_write();
  }

  void flush_dirty() REVERIE_REQUIRES(mutex_) {
    const bool is_loop = io_.loop(0).is_current();
    const bool is_lone = core_.pending_calls() + core_.pending_requests() <= kLoneCalls;
    for (const LinkId id : dirty_) {
      const auto place = links_.find(id);
      if (place == links_.end()) continue;
      WireLink& link = *place->second;
      if (link.is_flush_posted || !link.has_output()) continue;
      if (is_loop || link.is_out_ring() || (is_lone && link.adopted.id != 0)) {
        write_on(link);
        continue;
      }
      if (is_lone && link.connection().can_write_on_any_thread() && link.flush()) continue;
      link.is_flush_posted = true;
      io_.loop(0).post([this, id] { on_writable(id); });
    }
    dirty_.clear();
  }

  // A link is not silent because the thread in the seat lacks a core, or is long in a handler.
  void note_unread(TimePoint now) REVERIE_REQUIRES(mutex_) {
    for (const auto& [id, link] : links_) {
      if (link->adopted.id != 0 && link->has_unread()) core_.heard(id, now);
    }
  }

  void arm_timer() REVERIE_REQUIRES(mutex_) {
    const TimePoint next = core_.next_tick();
    if (next >= armed_for_ || is_closed_) return;
    armed_for_ = next;
    if (io_.loop(0).is_current()) return start_timer();
    io_.loop(0).post([this] {
      MutexLock lock(mutex_);
      if (!is_closed_) start_timer();
    });
  }

  void start_timer() REVERIE_REQUIRES(mutex_) {
    if (!timer_) timer_ = std::make_unique<LoopTimer>(io_.loop(0));
    timer_->start(armed_for_ - clock_.now(), [this] {
      turn([this](TimePoint now) {
        mutex_.assert_held();
        armed_for_ = TimePoint::max();
        if (!uses_shared_memory_) return;
        for (const auto& [id, link] : links_) {
          link->rest(now);
          if (link->has_output()) dirty_.push_back(id);
        }
      });
    });
  }

  const Options options_;
  const ConnectingTls tls_;
  const RunId run_;
  ForkGuard fork_guard_;
  Clock& clock_ = Clock::system();
  const std::shared_ptr<BatchMemory> memory_ = BatchMemory::make(kKeptBuffers);
  LinkPolls polls_;
  IoThreads io_{1};
  WireLink::Events events_;
  Door door_{io_, door_options(options_.tls)};
  // Loop thread only.
  std::unordered_map<LinkId, ConnectHandle> dials_;
  std::unique_ptr<LoopTimer> timer_;

  // What it listens and connects by; written under the lock, before there is a link.
  std::atomic<bool> uses_unix_{options_.uses_unix};
  std::atomic<bool> uses_tcp_{options_.uses_tcp};
  std::atomic<bool> uses_shared_memory_{options_.uses_shared_memory};
  std::atomic<bool> uses_ucx_{options_.uses_ucx};

  Mutex mutex_;
  PeerCore core_ REVERIE_GUARDED_BY(mutex_);
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  bool has_ended_ REVERIE_GUARDED_BY(mutex_) = false;  // the first call of close()
  CondVar ended_;
  bool is_begun_ REVERIE_GUARDED_BY(mutex_) = false;  // it listens or connects
  bool listens_unix_ REVERIE_GUARDED_BY(mutex_) = false;
  std::vector<std::string> addresses_ REVERIE_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Handler> handlers_ REVERIE_GUARDED_BY(mutex_);
  Withdrawn withdrawn_ REVERIE_GUARDED_BY(mutex_);
  std::vector<OwnedWithdrawn> more_withdrawn_ REVERIE_GUARDED_BY(mutex_);
  OnEvent on_event_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::pair<EventKind, std::string>> unreported_ REVERIE_GUARDED_BY(mutex_);
  std::unordered_map<CallId, Done> done_ REVERIE_GUARDED_BY(mutex_);
  Links links_ REVERIE_GUARDED_BY(mutex_);
  std::unordered_set<std::string> unshared_ REVERIE_GUARDED_BY(mutex_);  // wrote invalid data
  std::unordered_set<LinkId> dialling_ REVERIE_GUARDED_BY(mutex_);
  std::vector<LinkId> dirty_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Request> deliveries_ REVERIE_GUARDED_BY(mutex_);
  std::vector<InboundId> withdrawals_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::pair<CallId, CallResult>> completions_ REVERIE_GUARDED_BY(mutex_);
  TimePoint armed_for_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
};

Result<std::unique_ptr<Peer>> Peer::make(const Options& options) {
  if (options.name.empty() || options.name.size() > kPeerNameMax) {
    return invalid_argument("name has {} bytes; it must have 1 to {}", options.name.size(),
                            kPeerNameMax);
  }
  if (options.dead_after < std::chrono::milliseconds(100)) {
    return invalid_argument("dead_after is {} s; it must be at least 0.1",
                            to_seconds(options.dead_after));
  }
  REVERIE_RETURN_IF_ERROR(
      check_ways(options, options.uses_unix, options.uses_tcp, options.uses_ucx));
  REVERIE_ASSIGN_OR_RETURN(ConnectingTls tls, connecting_tls(options.tls));
  std::shared_ptr<Impl> impl;
  try {
    impl = std::make_shared<Impl>(options, std::move(tls));
  } catch (const std::system_error& error) {
    return no_thread(format("peer '{}'", options.name), error.what());
  }
  std::unique_ptr<Peer> made(new Peer(std::move(impl)));
  REVERIE_RETURN_IF_ERROR(made->impl_->check_door());
  return made;
}

Peer::Peer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Peer::~Peer() {
  // A forked child shares the sockets with its parent: it leaves them alone.
  if (!impl_->close()) leave_to_parent(std::move(impl_));
}

const std::string& Peer::name() const {
  return impl_->name();
}
Result<std::string> Peer::listen(const std::string& address) {
  return impl_->listen(address);
}
Status Peer::connect(const std::string& address) {
  return impl_->connect(address);
}
Status Peer::define(const std::string& function, Handler handler) {
  return impl_->define(function, std::move(handler));
}
bool Peer::undefine(const std::string& function) {
  return impl_->check_open().ok() && impl_->undefine(function);
}
void Peer::set_withdrawn(Withdrawn withdrawn) {
  impl_->set_withdrawn(std::move(withdrawn));
}

void Peer::set_on_event(OnEvent on_event) {
  impl_->set_on_event(std::move(on_event));
}
Status Peer::set_ways(bool uses_unix, bool uses_tcp, bool uses_shared_memory, bool uses_ucx) {
  return impl_->set_ways(uses_unix, uses_tcp, uses_shared_memory, uses_ucx);
}
void Peer::add_withdrawn(std::weak_ptr<const void> owner,
                         std::function<void(InboundId)> withdrawn) {
  impl_->add_withdrawn(std::move(owner), std::move(withdrawn));
}
Result<CallId> Peer::call(const std::string& peer, const std::string& function, Payload payload,
                          const CallOptions& options, Done done) {
  return impl_->call(peer, function, std::move(payload), options, std::move(done));
}
void Peer::cancel(CallId call) {
  impl_->cancel(call);
}
bool Peer::wait(const std::function<bool()>& is_done, TimePoint until, bool yields) const {
  const auto kept = impl_;
  return kept->wait(is_done, until, yields);
}
void Peer::wake() const {
  impl_->wake();
}
CallResult Peer::sync(const std::string& peer, const std::string& function, Payload payload,
                      const CallOptions& options) {
  struct Waiting {
    Mutex mutex;
    CondVar changed;
    std::atomic<bool> is_done{false};
    CallResult result REVERIE_GUARDED_BY(mutex);
  };
  const auto waiting = std::make_shared<Waiting>();
  const Result<CallId> id = call(peer, function, std::move(payload), options,
                                 [waiting, impl = impl_.get()](CallResult result) {
                                   {
                                     MutexLock lock(waiting->mutex);
                                     waiting->result = std::move(result);
                                     waiting->is_done.store(true);
                                     waiting->changed.notify_all();
                                   }
                                   impl->wake();
                                 });
  if (!id.ok()) return {CallResult::Kind::kFailed, id.status(), {}, {}, {}};
  (void)wait([&] { return waiting->is_done.load(); }, TimePoint::max());
  MutexLock lock(waiting->mutex);
  while (!waiting->is_done.load(std::memory_order_relaxed)) waiting->changed.wait(waiting->mutex);
  return std::move(waiting->result);
}
void Peer::answer(InboundId request, Payload payload, bool copies_bulk) {
  Answer one{request, std::move(payload)};
  impl_->answer({&one, 1}, copies_bulk);
}
void Peer::answer(std::vector<Answer> answers, bool copies_bulk) {
  impl_->answer(answers, copies_bulk);
}
void Peer::fail(InboundId request, const RemoteError& error) {
  impl_->fail(request, error);
}
Peer::Answerer Peer::answerer() const {
  return Answerer(impl_);
}
// On the I/O thread a share of the peer's insides is never the last one: the end of a peer waits
// for that thread first.
void Peer::Answerer::answer(InboundId request, Payload payload) const {
  const std::shared_ptr<Impl> impl = impl_.lock();
  if (!impl) return;
  Answer one{request, std::move(payload)};
  impl->answer({&one, 1}, /*copies_bulk=*/false);
}
void Peer::Answerer::fail(InboundId request, const RemoteError& error) const {
  if (const std::shared_ptr<Impl> impl = impl_.lock()) impl->fail(request, error);
}
Neighbour Peer::neighbour(const std::string& peer) const {
  return impl_->neighbour(peer);
}
Neighbour Peer::neighbour(InboundId request) const {
  return impl_->neighbour(request);
}
bool Peer::is_kept(std::uint64_t session) const {
  return impl_->is_kept(session);
}
void Peer::serve_devices(Handler handler) {
  impl_->serve_devices(std::move(handler));
}
bool Peer::is_wanted(InboundId request) const {
  return impl_->is_wanted(request);
}
std::vector<PeerInfo> Peer::peers() const {
  return impl_->peers();
}
std::vector<std::string> Peer::functions() const {
  return impl_->functions();
}
std::vector<std::string> Peer::addresses() const {
  return impl_->addresses();
}
std::size_t Peer::pending_calls() const {
  return impl_->pending_calls();
}
void Peer::close() {
  const auto kept = impl_;
  (void)kept->close();
}
Status Peer::check_open() const {
  return impl_->check_open();
}

}  // namespace reverie
