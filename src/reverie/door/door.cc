#include "reverie/door/door.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <utility>

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reverie/base/fork.h"
#include "reverie/base/log.h"
#include "reverie/base/mutex.h"
#include "reverie/door/first_bytes.h"
#include "reverie/net/address.h"
#include "reverie/net/listener.h"

namespace reverie {
namespace {

constexpr int kPortTries = 16;
// Descriptors that are reserved for the rest of the process, and for connections that are accepted
// before others have closed.
constexpr std::size_t kReservedDescriptors = 96;
constexpr std::size_t kNotScarce = std::numeric_limits<std::size_t>::max();
constexpr int kClosedAtOnce = 16;
// How many bytes a connection may send before its protocol is known.
constexpr std::size_t kUndecidedBytesMax = 1024;
// A client sends its first bytes at once. So when descriptors run out, at most this many
// connections without them are kept while another connection is idle.
constexpr std::size_t kUndecidedKept = 16;

// A new descriptor with this number or a higher one shows that descriptors run out, since the
// lowest free one is used.
std::size_t scarce_descriptor() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::size_t>::max();
  }
  const auto count = static_cast<std::size_t>(limit.rlim_cur);
  return count - std::min(count / 2, kReservedDescriptors);
}

}  // namespace

class Door::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(IoThreads& io_threads, DoorOptions options)
      : io_threads_(io_threads), options_(std::move(options)) {}

  void add_protocol(DoorProtocol protocol) { protocols_.push_back(std::move(protocol)); }
  Result<std::vector<std::string>> listen(const std::vector<std::string>& addresses);
  Status check(const std::vector<std::string>& addresses);
  void close();
  std::size_t connection_count() const { return places_->load(); }
  Status check_fork() const { return fork_guard_.check("server"); }

 private:
  class Detection;

  Result<std::vector<SocketAddress>> prepare(const std::vector<std::string>& addresses);
  Result<std::unique_ptr<Listener>> open(const SocketAddress& address);
  void accept(int socket, const SocketAddress& peer);
  bool is_scarce(int socket);
  bool make_room(int socket);
  bool make_way();
  bool end_oldest_detection(std::size_t kept);
  void on_scarce();
  void detect_protocol(AcceptedConnection incoming);
  // The one whose name is `alpn`, else by the first bytes.
  FirstBytes::Found protocol_of(const std::string& alpn, std::string_view received) const;

  IoThreads& io_threads_;
  const DoorOptions options_;
  ForkGuard fork_guard_;
  std::vector<DoorProtocol> protocols_;
  // Set by the first listen() or check(), before a connection comes.
  std::shared_ptr<const TlsContext> tls_;
  std::unique_ptr<const FirstBytes> first_bytes_;
  const std::shared_ptr<std::atomic<std::size_t>> places_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::atomic<bool> has_warned_{false};
  std::atomic<std::size_t> scarce_count_{kNotScarce};  // there may be several listeners

  Mutex mutex_;
  std::vector<std::unique_ptr<Listener>> listeners_ REVERIE_GUARDED_BY(mutex_);
  // By a number that grows: the oldest is the first. Those of leaving_ will end soon.
  std::map<std::uint64_t, std::shared_ptr<Detection>> detections_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::shared_ptr<Detection>> leaving_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t next_detection_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

// A connection whose protocol is not known yet. Loop thread only.
class Door::Impl::Detection final : public ConnectionEvents,
                                    public std::enable_shared_from_this<Detection> {
 public:
  Detection(std::shared_ptr<Impl> door, std::uint64_t number, AcceptedConnection incoming)
      : door_(std::move(door)),
        number_(number),
        incoming_(std::move(incoming)),
        timer_(incoming_.connection->loop()) {}

  void start() {
    if (!incoming_.connection) return;  // it has made way
    incoming_.connection->set_events(this);
    timer_.start(door_->options_.first_bytes_timeout, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->end();
    });
    on_readable();
  }
  void on_readable() override {
    const auto self = shared_from_this();
    if (!incoming_.connection) return;
    Connection& connection = *incoming_.connection;
    const IoResult got = connection.read(connection.loop().scratch());
    if (!got.status.ok() || got.is_end) return end();
    incoming_.received.append(reinterpret_cast<const char*>(connection.loop().scratch().data()),
                              got.size_bytes);
    const std::string alpn = connection.is_handshake_done() ? connection.protocol() : "";
    const FirstBytes::Found found = door_->protocol_of(alpn, incoming_.received);
    if (found.protocol) {
      AcceptedConnection incoming = std::move(incoming_);
      end();
      door_->protocols_[*found.protocol].serve(std::move(incoming));
    } else if (found.is_known || incoming_.received.size() > kUndecidedBytesMax) {
      end();
    } else {
      connection.want_read();
    }
  }
  void on_writable() override {}

  IoLoop& loop() { return loop_; }
  // Closes the connection, unless it was handed over.
  void end() {
    timer_.cancel();
    incoming_ = {};
    MutexLock lock(door_->mutex_);
    door_->detections_.erase(number_);
    door_->leaving_.erase(number_);
  }

 private:
  const std::shared_ptr<Impl> door_;
  const std::uint64_t number_;
  AcceptedConnection incoming_;
  IoLoop& loop_ = incoming_.connection->loop();
  LoopTimer timer_;
};

// Everything before listening: makes tls_, and looks up addresses.
Result<std::vector<SocketAddress>> Door::Impl::prepare(const std::vector<std::string>& addresses) {
  REVERIE_RETURN_IF_ERROR(check_fork());
  {
    MutexLock lock(mutex_);  // several threads may listen
    if (options_.tls && !tls_) {
      std::vector<std::string> names;
      for (const DoorProtocol& protocol : protocols_) names.push_back(protocol.name);
      REVERIE_ASSIGN_OR_RETURN(tls_, TlsContext::server(*options_.tls, names));
    }
    if (!first_bytes_) {
      std::vector<std::vector<std::string>> beginnings;
      for (const DoorProtocol& protocol : protocols_) beginnings.push_back(protocol.first_bytes);
      first_bytes_ = std::make_unique<const FirstBytes>(std::move(beginnings));
    }
  }
  const DoorGuard guard{.has_token = options_.has_token,
                        .has_tls = tls_ != nullptr,
                        .has_client_certificates = tls_ && tls_->requires_client_certificate(),
                        .is_insecure_allowed = options_.is_insecure_allowed};
  std::vector<SocketAddress> resolved;
  for (const std::string& address : addresses) {
    REVERIE_ASSIGN_OR_RETURN(const Endpoint endpoint, parse_endpoint(address));
    REVERIE_ASSIGN_OR_RETURN(const auto found, resolve(endpoint));
    if (found.empty()) return unavailable("'{}' has no address", address);
    REVERIE_RETURN_IF_ERROR(check_bind(found.front(), guard));
    resolved.push_back(found.front());
  }
  return resolved;
}

Status Door::Impl::check(const std::vector<std::string>& addresses) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> resolved, prepare(addresses));
  for (const SocketAddress& address : resolved) {
    REVERIE_RETURN_IF_ERROR(Listener::check(address));
  }
  return {};
}

Result<std::unique_ptr<Listener>> Door::Impl::open(const SocketAddress& address) {
  const auto accept_here = [weak = weak_from_this()](int socket, const SocketAddress& peer) {
    const auto self = weak.lock();
    self ? self->accept(socket, peer) : static_cast<void>(::close(socket));
  };
  const auto when_scarce = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->on_scarce();
  };
  auto listener = Listener::open(io_threads_.loop(0), address, accept_here, when_scarce);
  // The port that the system chose may have been taken in the moment between.
  for (int i = 0; i < kPortTries && address.port() == 0 &&
                  listener.status().code() == StatusCode::kAlreadyExists;
       ++i) {
    listener = Listener::open(io_threads_.loop(0), address, accept_here, when_scarce);
  }
  return listener;
}

Result<std::vector<std::string>> Door::Impl::listen(const std::vector<std::string>& addresses) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> resolved, prepare(addresses));
  std::vector<std::unique_ptr<Listener>> opened;
  std::vector<std::string> chosen;
  for (const SocketAddress& address : resolved) {
    REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, open(address));
    chosen.push_back(listener->address().to_string());
    opened.push_back(std::move(listener));
  }
  MutexLock lock(mutex_);
  if (is_closed_) return failed_precondition("the server was stopped; make a new one");
  for (auto& listener : opened) listeners_.push_back(std::move(listener));
  return chosen;
}

void Door::Impl::accept(int socket, const SocketAddress& peer) {
  if (connection_count() >= options_.connection_count_max || !make_room(socket)) {
    ::close(socket);
    return;
  }
  ++*places_;
  AcceptedConnection incoming;
  incoming.place = std::shared_ptr<void>(nullptr, [places = places_](void*) { --*places; });
  const bool is_encrypted = options_.encrypts_unix || peer.family() != AF_UNIX;
  incoming.connection =
      make_connection(io_threads_.next(), socket, peer, is_encrypted ? tls_ : nullptr);
  if (protocols_.size() == 1) return protocols_.front().serve(std::move(incoming));
  detect_protocol(std::move(incoming));
}

// A high number shows a shortage, but a low one does not show its absence: the oldest connections,
// which were closed, leave low numbers free. So the number of connections at the last shortage is
// the bound, until there are half as many. On the listener's thread.
bool Door::Impl::is_scarce(int socket) {
  const std::size_t count = connection_count();
  if (static_cast<std::size_t>(socket) >= scarce_descriptor()) {
    scarce_count_ = std::min(scarce_count_.load(), std::max<std::size_t>(count, 1));
    return true;
  }
  if (count < scarce_count_ / 2) scarce_count_ = kNotScarce;
  return count >= scarce_count_;
}

// When descriptors run out, one connection goes for each that comes.
bool Door::Impl::make_room(int socket) {
  if (!is_scarce(socket)) return true;
  if (!has_warned_.exchange(true)) {
    log_warning(
        "descriptors run out at {} connections: each new one takes the place of one that has sent "
        "nothing, or of the one that has been without a call for longest; raise the limit "
        "(ulimit -n)",
        connection_count());
  }
  return make_way();
}

bool Door::Impl::make_way() {
  if (end_oldest_detection(kUndecidedKept)) return true;
  std::vector<std::pair<TimePoint, const DoorProtocol*>> idle;
  for (const DoorProtocol& protocol : protocols_) {
    if (!protocol.make_way) continue;
    const std::optional<TimePoint> since =
        protocol.idle_since ? protocol.idle_since() : TimePoint::max();
    if (since) idle.emplace_back(*since, &protocol);
  }
  std::ranges::stable_sort(idle, {}, [](const auto& one) { return one.first; });
  return std::ranges::any_of(idle, [](const auto& one) { return one.second->make_way(); }) ||
         end_oldest_detection(0);
}

// Closes the oldest of the connections without their first bytes soon, if there are more than
// `kept`.
bool Door::Impl::end_oldest_detection(std::size_t kept) {
  std::shared_ptr<Detection> oldest;
  {
    MutexLock lock(mutex_);
    if (detections_.size() <= kept) return false;
    auto node = detections_.extract(detections_.begin());
    oldest = node.mapped();
    leaving_.insert(std::move(node));
  }
  IoLoop& loop = oldest->loop();
  loop.post([oldest = std::move(oldest)] { oldest->end(); });
  return true;
}

// No descriptor is left: the program has taken what was kept for new connections.
void Door::Impl::on_scarce() {
  for (int i = 0; i < kClosedAtOnce && make_way(); ++i) {
  }
}

FirstBytes::Found Door::Impl::protocol_of(const std::string& alpn,
                                          std::string_view received) const {
  const auto named = std::ranges::find(protocols_, alpn, &DoorProtocol::name);
  if (!alpn.empty() && named != protocols_.end()) {
    return {static_cast<std::size_t>(named - protocols_.begin()), true};
  }
  return first_bytes_->find(received);
}

void Door::Impl::detect_protocol(AcceptedConnection incoming) {
  std::shared_ptr<Detection> detection;
  {
    MutexLock lock(mutex_);
    const std::uint64_t number = next_detection_++;
    detection = std::make_shared<Detection>(shared_from_this(), number, std::move(incoming));
    detections_.emplace(number, detection);
  }
  // A connection belongs to its loop, and so do the last references to what has it.
  IoLoop& loop = detection->loop();
  loop.post([this, detection = std::move(detection)] {
    bool is_closed = false;
    {
      MutexLock lock(mutex_);
      is_closed = is_closed_;
    }
    is_closed ? detection->end() : detection->start();
  });
}

void Door::Impl::close() {
  if (!check_fork().ok()) return;
  std::vector<std::unique_ptr<Listener>> listeners;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    listeners.swap(listeners_);
  }
  listeners.clear();  // no connection is accepted from here on
  std::vector<std::shared_ptr<Detection>> detections;
  {
    MutexLock lock(mutex_);
    for (const auto* const some : {&detections_, &leaving_}) {
      for (const auto& [number, detection] : *some) detections.push_back(detection);
    }
  }
  for (auto& detection : detections) {
    detection->loop().run_and_wait([&detection] {
      detection->end();
      detection.reset();
    });
  }
}

Door::Door(IoThreads& io_threads, DoorOptions options)
    : impl_(std::make_shared<Impl>(io_threads, std::move(options))) {}

Door::~Door() {
  close();
  // A forked child shares sockets and loops with its parent: it takes none of them apart.
  if (!impl_->check_fork().ok()) leave_to_parent(std::move(impl_));
}

void Door::add_protocol(DoorProtocol protocol) {
  impl_->add_protocol(std::move(protocol));
}

Result<std::vector<std::string>> Door::listen(const std::vector<std::string>& addresses) {
  return impl_->listen(addresses);
}

Status Door::check(const std::vector<std::string>& addresses) {
  return impl_->check(addresses);
}

void Door::close() {
  impl_->close();
}

std::size_t Door::connection_count() const {
  return impl_->connection_count();
}

}  // namespace reverie
