#include "reverie/grpc/grpc_server.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "reverie/base/fork.h"
#include "reverie/base/log.h"
#include "reverie/grpc/grpc_hub.h"
#include "reverie/grpc/grpc_server_stream.h"
#include "reverie/grpc/grpc_session.h"
#include "reverie/grpc/token.h"
#include "reverie/net/listener.h"
#include "reverie/os/memory_size.h"

namespace reverie {
namespace {

constexpr int kPortTries = 16;
// Free memory that is kept for the next messages; beyond it, stored chunks may have it.
constexpr std::size_t kPooledBytesMax = std::size_t{8} << 20;
// Descriptors that connections leave to everything else in the process, and to those that are
// accepted before others have gone.
constexpr std::size_t kReservedDescriptors = 96;
// How long a peer may take to take note of a goodbye.
constexpr Duration kGoodbyeTime = std::chrono::seconds(5);

constexpr std::size_t kNotScarce = std::numeric_limits<std::size_t>::max();
constexpr int kClosedAtOnce = 16;
// Calls of one connection at once: more than programs have, short of an attack.
constexpr std::size_t kManyCalls = 256;

// From this number on a new descriptor says that they run out: the lowest free one is given out.
std::size_t scarce_descriptor() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::size_t>::max();
  }
  const auto count = static_cast<std::size_t>(limit.rlim_cur);
  return count - std::min(count / 2, kReservedDescriptors);
}

// Since when a connection has had no call. Written on its loop's thread, read on the listener's.
struct IdleTime {
  static constexpr std::int64_t kBusy = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> since_ns{kBusy};
};

// A method with one request, as one with streams.
class UnaryReceiver final : public GrpcServerEvents {
 public:
  UnaryReceiver(const GrpcUnaryMethod& method, std::shared_ptr<GrpcServerCall> call)
      : method_(method), call_(std::move(call)) {}

  void on_message(Ref<GrpcMessage> message) override {
    if (request_) {
      is_refused_ = true;
      call_->finish(internal_error("a second message came for a method that takes one"));
    }
    request_ = std::move(message);
  }

  void on_half_close() override {
    if (is_refused_) return;
    if (!request_) {
      call_->finish(internal_error("no message came for a method that takes one"));
      return;
    }
    method_(call_, std::move(request_), [call = call_](Result<GrpcPayload> response) {
      const Status status = response.status();
      if (status.ok()) call->write(std::move(response).value());
      call->finish(status);
    });
  }

  void on_end(const Status&) override {}

 private:
  const GrpcUnaryMethod& method_;
  const std::shared_ptr<GrpcServerCall> call_;
  Ref<GrpcMessage> request_;
  bool is_refused_ = false;
};

}  // namespace

class GrpcServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(IoThreads& io_threads, GrpcServerOptions options)
      : io_threads_(io_threads),
        options_(std::move(options)),
        pool_(make_ref<MessagePool>(kPooledBytesMax)) {
    shared_.limits = options_.limits;
    shared_.token = options_.token;
    shared_.begin = [this](const auto& stream) { return begin(stream); };
    shared_.on_over = [this] { note_call_over(); };
    for (std::size_t i = 0; i < io_threads.count(); ++i) {
      parts_.push_back(std::make_unique<Part>());
      parts_.back()->hub = std::make_shared<GrpcHub>(io_threads.loop(i));
    }
  }

  void add_method(std::string path, GrpcMethod method) {
    methods_.insert_or_assign(std::move(path), std::move(method));
  }
  void add_unary(std::string path, GrpcUnaryMethod method) {
    const GrpcUnaryMethod& kept =
        unary_methods_.insert_or_assign(path, std::move(method)).first->second;
    add_method(std::move(path), [&kept](std::shared_ptr<GrpcServerCall> call) {
      return std::make_shared<UnaryReceiver>(kept, std::move(call));
    });
  }

  Result<std::vector<std::string>> listen(const std::vector<std::string>& addresses);
  Status check(const std::vector<std::string>& addresses);
  void serve(std::unique_ptr<Connection> connection, std::string received);
  void begin_stop();
  void stop(Duration grace);
  GrpcServerFigures figures();
  // A forked child shares sockets and loops with its parent: it takes none of them apart.
  static void leave_to_parent(std::shared_ptr<Impl> impl) {
    (void)new std::shared_ptr<Impl>(std::move(impl));
  }
  Status check_fork() const { return fork_guard_.check("server"); }

 private:
  class Session;
  // What lives on one loop, and is touched on its thread alone.
  struct Part {
    std::shared_ptr<GrpcHub> hub;
    std::unordered_set<std::shared_ptr<Session>> sessions;
    bool is_stopping = false;
  };

  Result<std::vector<SocketAddress>> prepare(const std::vector<std::string>& addresses);
  void accept(int socket, const SocketAddress& peer);
  bool make_room(int socket);
  bool is_scarce(int socket);
  // The connection that has been without a call for longest is closed; false when there is none.
  bool close_longest_idle();
  void on_scarce();
  void add_session(Part& part, std::unique_ptr<Connection> connection, std::string_view received);
  Part& part_of(const IoLoop& loop);
  Result<std::shared_ptr<GrpcCallEvents>> begin(const std::shared_ptr<GrpcServerStream>& stream);
  void note_call_over();

  IoThreads& io_threads_;
  const GrpcServerOptions options_;
  ForkGuard fork_guard_;
  Ref<MessagePool> pool_;
  GrpcServerStream::Shared shared_;
  std::shared_ptr<const TlsContext> tls_;
  std::map<std::string, GrpcMethod, std::less<>> methods_;
  std::map<std::string, GrpcUnaryMethod, std::less<>> unary_methods_;
  std::vector<std::unique_ptr<Part>> parts_;  // one for each loop
  std::atomic<bool> has_warned_{false};
  std::atomic<std::size_t> scarce_count_{kNotScarce};  // listeners may be several

  Mutex idle_mutex_;
  std::map<const Session*, std::weak_ptr<Session>> open_ REVERIE_GUARDED_BY(idle_mutex_);
  Mutex mutex_;
  CondVar calls_changed_;
  std::vector<std::unique_ptr<Listener>> listeners_ REVERIE_GUARDED_BY(mutex_);
  bool is_stopping_ REVERIE_GUARDED_BY(mutex_) = false;
  std::atomic<std::size_t> connection_count_{0};
  std::atomic<std::size_t> call_count_{0};
  std::atomic<std::uint64_t> calls_begun_{0};
  std::atomic<std::uint64_t> bytes_received_{0};  // of connections that are closed
  std::atomic<std::uint64_t> bytes_sent_{0};
};

// One connection of the server's.
class GrpcServer::Impl::Session final : public GrpcSession {
 public:
  Session(std::shared_ptr<Impl> server, Part& part, std::unique_ptr<Connection> connection)
      : GrpcSession(Role::kServer, part.hub, std::move(connection), server->shared_.limits,
                    server->pool_, server->options_.in_flight),
        server_(std::move(server)),
        part_(part),
        timer_(hub_->loop()) {}

  void expect_hello() {
    on_idle();
    after(server_->options_.hello_timeout,
          [](Session& session) { session.close(deadline_exceeded("no hello came in time")); });
  }

  // Any thread. IdleTime::kBusy while there is a call.
  std::int64_t idle_since_ns() const { return idle_.since_ns.load(std::memory_order_relaxed); }
  // Any thread: the connection is to go, unless a call begins before it is told.
  void make_way() {
    idle_.since_ns.store(IdleTime::kBusy);
    hub_->loop().post([weak = weak_from_this()] {
      const auto self = std::static_pointer_cast<Session>(weak.lock());
      if (self && self->is_open()) self->hub_->run([&self] { self->leave_if_idle(); });
    });
  }

 private:
  std::shared_ptr<GrpcStream> on_call() override {
    return std::make_shared<GrpcServerStream>(hub_, server_->shared_);
  }
  void on_ready() override {
    after(server_->options_.first_call_timeout,
          [](Session& session) { session.say_farewell("its first call has not come in time"); });
  }
  void on_call_begun() override {
    idle_.since_ns.store(IdleTime::kBusy, std::memory_order_relaxed);
    if (!std::exchange(had_call_, true)) watch(server_->options_.idle_timeout);
    had_many_calls_ = had_many_calls_ || stream_count() >= kManyCalls;
  }
  void on_idle() override {
    idle_.since_ns.store(Clock::system().now().ns, std::memory_order_relaxed);
  }
  // Looks whether it is idle for too long when it may be, not at each call.
  void watch(Duration time) {
    after(time, [](Session& session) {
      const std::int64_t since = session.idle_since_ns();
      const Duration bound = session.server_->options_.idle_timeout;
      if (since == IdleTime::kBusy) return session.watch(bound);
      const Duration idle = Clock::system().now() - TimePoint{since};
      if (idle < bound) return session.watch(bound - idle);
      session.say_farewell("it has had no call for too long");
    });
  }
  // With a goodbye that lets no call be lost; without it when the peer takes no note.
  void say_farewell(std::string_view why) {
    say_goodbye();
    after(kGoodbyeTime, [text = std::string(why)](Session& session) {
      if (!session.has_call()) session.close(unavailable("{}", text));
    });
  }
  void leave_if_idle() {
    if (has_call()) return;  // it says when it is idle again
    say_goodbye();
    flush();
    close(unavailable("the server has no descriptors left; connect again"));
  }
  bool has_call() const {
    const auto all = streams();
    return std::ranges::any_of(all, [](const auto& stream) { return stream->is_live(); });
  }
  template <typename Event>
  void after(Duration time, Event event) {
    timer_.start(time, [weak = weak_from_this(), event = std::move(event)] {
      const auto self = std::static_pointer_cast<Session>(weak.lock());
      if (self && self->is_open()) self->hub_->run([&] { event(*self); });
    });
  }
  void on_close(const Status&) override {
    timer_.cancel();
    {
      MutexLock lock(server_->idle_mutex_);
      server_->open_.erase(this);
    }
    server_->bytes_received_ += received_bytes();
    server_->bytes_sent_ += sent_bytes();
    --server_->connection_count_;
    part_.sessions.erase(std::static_pointer_cast<Session>(shared_from_this()));
    // What the calls had in small pieces stays with the C heap otherwise. Once they are gone.
    if (had_many_calls_) hub_->loop().post(give_back_free_memory);
  }

  const std::shared_ptr<Impl> server_;
  Part& part_;
  LoopTimer timer_;  // of what must come next
  IdleTime idle_;
  bool had_call_ = false;
  bool had_many_calls_ = false;
};

// All that comes before listening: makes tls_, and looks addresses up.
Result<std::vector<SocketAddress>> GrpcServer::Impl::prepare(
    const std::vector<std::string>& addresses) {
  REVERIE_RETURN_IF_ERROR(check_fork());
  REVERIE_RETURN_IF_ERROR(check_token(options_.token));
  if (options_.tls && !tls_) {
    REVERIE_ASSIGN_OR_RETURN(tls_, TlsContext::server(*options_.tls, {"h2"}));
  }
  const DoorGuard guard{.has_token = !options_.token.empty(),
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

Status GrpcServer::Impl::check(const std::vector<std::string>& addresses) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> resolved, prepare(addresses));
  for (const SocketAddress& address : resolved) {
    REVERIE_RETURN_IF_ERROR(Listener::check(address));
  }
  return {};
}

Result<std::vector<std::string>> GrpcServer::Impl::listen(
    const std::vector<std::string>& addresses) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> resolved, prepare(addresses));
  std::vector<std::unique_ptr<Listener>> opened;
  std::vector<std::string> chosen;
  for (const SocketAddress& address : resolved) {
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
    if (!listener.ok()) return listener.status();
    chosen.push_back((*listener)->address().to_string());
    opened.push_back(std::move(listener).value());
  }
  MutexLock lock(mutex_);
  if (is_stopping_) return failed_precondition("the server was stopped; make a new one");
  for (auto& listener : opened) listeners_.push_back(std::move(listener));
  return chosen;
}

void GrpcServer::Impl::accept(int socket, const SocketAddress& peer) {
  if (connection_count_.load() >= options_.connection_count_max) {
    ::close(socket);
    return;
  }
  if (!make_room(socket)) {
    ::close(socket);
    return;
  }
  IoLoop& loop = io_threads_.next();
  serve(make_connection(loop, socket, peer, tls_), {});
}

// A high number is a sign, a low one is not: connections that made way, the oldest, leave low
// numbers free. So as many connections as there were at the last sign are the bound, until there
// are half as many. On the listener's thread.
bool GrpcServer::Impl::is_scarce(int socket) {
  const std::size_t count = connection_count_.load();
  if (static_cast<std::size_t>(socket) >= scarce_descriptor()) {
    scarce_count_ = std::min(scarce_count_.load(), std::max<std::size_t>(count, 1));
    return true;
  }
  if (count < scarce_count_ / 2) scarce_count_ = kNotScarce;
  return count >= scarce_count_;
}

// When descriptors run out, one connection goes for each that comes.
bool GrpcServer::Impl::make_room(int socket) {
  if (!is_scarce(socket)) return true;
  if (!has_warned_.exchange(true)) {
    log_warning(
        "descriptors run out at {} connections: each new one takes the place of the one that has "
        "been without a call for longest; raise the limit (ulimit -n)",
        connection_count_.load());
  }
  return close_longest_idle();
}

// No descriptor is left: the program has taken what was kept for new connections.
void GrpcServer::Impl::on_scarce() {
  for (int i = 0; i < kClosedAtOnce && close_longest_idle(); ++i) {
  }
}

bool GrpcServer::Impl::close_longest_idle() {
  std::shared_ptr<Session> longest;
  {
    MutexLock lock(idle_mutex_);
    std::int64_t since = IdleTime::kBusy;
    for (const auto& [address, weak] : open_) {
      const auto session = weak.lock();
      if (!session || session->idle_since_ns() >= since) continue;
      since = session->idle_since_ns();
      longest = session;
    }
  }
  if (longest) longest->make_way();
  return longest != nullptr;
}

void GrpcServer::Impl::serve(std::unique_ptr<Connection> connection, std::string received) {
  ++connection_count_;
  IoLoop& loop = connection->loop();
  Part& part = part_of(loop);
  if (loop.is_current()) {
    add_session(part, std::move(connection), received);
    return;
  }
  // A connection is its loop's, also when no service is left.
  auto held = std::make_shared<std::unique_ptr<Connection>>(std::move(connection));
  loop.post([self = shared_from_this(), &part, held, received = std::move(received)] {
    self->add_session(part, std::move(*held), received);
  });
}

void GrpcServer::Impl::add_session(Part& part, std::unique_ptr<Connection> connection,
                                   std::string_view received) {
  if (part.is_stopping) {
    --connection_count_;
    return;
  }
  const auto session = std::make_shared<Session>(shared_from_this(), part, std::move(connection));
  part.sessions.insert(session);
  {
    MutexLock lock(idle_mutex_);
    open_.emplace(session.get(), session);
  }
  session->expect_hello();
  session->start(received);
}

GrpcServer::Impl::Part& GrpcServer::Impl::part_of(const IoLoop& loop) {
  for (const auto& part : parts_) {
    if (&part->hub->loop() == &loop) return *part;
  }
  REVERIE_CHECK(false);  // a connection on a loop of other I/O threads
}

Result<std::shared_ptr<GrpcCallEvents>> GrpcServer::Impl::begin(
    const std::shared_ptr<GrpcServerStream>& stream) {
  ++calls_begun_;
  ++call_count_;
  const auto method = methods_.find(stream->info().path);
  if (method == methods_.end()) {
    return unimplemented("method '{}' is not served here", stream->info().path.substr(0, 200));
  }
  auto events = method->second(stream);
  if (!events) return internal_error("method '{}' refused the call", stream->info().path);
  stream->set_apart(events->apart_field());
  return std::static_pointer_cast<GrpcCallEvents>(std::move(events));
}

void GrpcServer::Impl::note_call_over() {
  if (call_count_.fetch_sub(1) != 1) return;
  MutexLock lock(mutex_);
  calls_changed_.notify_all();
}

void GrpcServer::Impl::begin_stop() {
  if (!check_fork().ok()) return;
  std::vector<std::unique_ptr<Listener>> listeners;
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
    listeners.swap(listeners_);
  }
  listeners.clear();  // no connection is accepted from here on
  for (const auto& part : parts_) {
    part->hub->loop().post([self = shared_from_this(), &part = *part] {
      part.is_stopping = true;
      part.hub->run([&part] {
        for (const auto& session : part.sessions) session->say_goodbye();
      });
    });
  }
}

void GrpcServer::Impl::stop(Duration grace) {
  if (!check_fork().ok()) return;
  begin_stop();
  Clock& clock = Clock::system();
  const TimePoint until = clock.now() + grace;
  {
    MutexLock lock(mutex_);
    while (call_count_.load() > 0 && clock.wait_until(calls_changed_, mutex_, until)) {
    }
  }
  const Status why = unavailable("the server stops; call again when it is back");
  for (const auto& part : parts_) {
    part->hub->loop().run_and_wait([&why, &part = *part] {
      part.hub->run([&part, &why] {
        const auto sessions = part.sessions;
        for (const auto& session : sessions) {
          for (const auto& stream : session->streams()) {
            static_cast<GrpcServerStream&>(*stream).abort_here(why);
          }
        }
      });
      part.hub->run([&part, &why] {
        const auto sessions = part.sessions;
        for (const auto& session : sessions) session->close(why);
      });
    });
  }
}

GrpcServerFigures GrpcServer::Impl::figures() {
  GrpcServerFigures figures;
  figures.connection_count = connection_count_.load();
  figures.call_count = call_count_.load();
  figures.calls_begun = calls_begun_.load();
  figures.bytes_received = bytes_received_.load();
  figures.bytes_sent = bytes_sent_.load();
  for (const auto& part : parts_) {
    part->hub->loop().run_and_wait([&figures, &part = *part] {
      for (const auto& session : part.sessions) {
        figures.bytes_received += session->received_bytes();
        figures.bytes_sent += session->sent_bytes();
        figures.held_bytes += session->budget()->in_bytes() + session->budget()->out_bytes();
      }
    });
  }
  return figures;
}

GrpcServer::GrpcServer(IoThreads& io_threads, GrpcServerOptions options)
    : impl_(std::make_shared<Impl>(io_threads, std::move(options))) {}

GrpcServer::~GrpcServer() {
  stop();
  if (!impl_->check_fork().ok()) Impl::leave_to_parent(std::move(impl_));
}

void GrpcServer::add_method(std::string path, GrpcMethod method) {
  impl_->add_method(std::move(path), std::move(method));
}

void GrpcServer::add_unary(std::string path, GrpcUnaryMethod method) {
  impl_->add_unary(std::move(path), std::move(method));
}

Result<std::vector<std::string>> GrpcServer::listen(const std::vector<std::string>& addresses) {
  return impl_->listen(addresses);
}

Status GrpcServer::check(const std::vector<std::string>& addresses) {
  return impl_->check(addresses);
}

void GrpcServer::serve(std::unique_ptr<Connection> connection, std::string received) {
  impl_->serve(std::move(connection), std::move(received));
}

void GrpcServer::begin_stop() {
  impl_->begin_stop();
}

void GrpcServer::stop(Duration grace) {
  impl_->stop(grace);
}

GrpcServerFigures GrpcServer::figures() const {
  return impl_->figures();
}

}  // namespace reverie
