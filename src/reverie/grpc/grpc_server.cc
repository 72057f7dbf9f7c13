// Tested in grpc_test.cc and grpc_hostile_test.cc.
#include "reverie/grpc/grpc_server.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <unordered_set>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/door/token.h"
#include "reverie/grpc/grpc_hub.h"
#include "reverie/grpc/grpc_server_stream.h"
#include "reverie/grpc/grpc_session.h"
#include "reverie/os/memory_size.h"

namespace reverie {
namespace {

// Free memory that is kept for later messages; more is left to stored chunks.
constexpr std::size_t kPooledBytesMax = std::size_t{8} << 20;
// How long a peer may take to react to a goodbye.
constexpr Duration kGoodbyeTime = std::chrono::seconds(5);

// More concurrent calls on one connection than any program makes that is not an attack.
constexpr std::size_t kManyCalls = 256;

// Since when a connection has had no call. Written on its loop's thread, read on the listener's.
struct IdleTime {
  static constexpr std::int64_t kBusy = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> since_ns{kBusy};
};

// A method with one request, as one with streams.
class RequestReceiver final : public GrpcServerEvents {
 public:
  RequestReceiver(const GrpcUnaryMethod& method, std::shared_ptr<GrpcServerCall> call)
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
      : options_(std::move(options)),
        pool_(make_ref<MessagePool>(kPooledBytesMax)),
        door_(io_threads, door_options(options_)) {
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
      return std::make_shared<RequestReceiver>(kept, std::move(call));
    });
  }

  // Registers this with the door. Called before the first listen().
  void open_door();
  void add_protocol(DoorProtocol protocol) { door_.add_protocol(std::move(protocol)); }
  Result<std::vector<std::string>> listen(const std::vector<std::string>& addresses);
  Status check(const std::vector<std::string>& addresses);
  void serve(AcceptedConnection incoming);
  void begin_stop();
  void stop(Duration grace);
  GrpcServerFigures figures();
  Status check_fork() const { return fork_guard_.check("server"); }

 private:
  class Session;
  // State of one loop, used on its thread only.
  struct Part {
    std::shared_ptr<GrpcHub> hub;
    std::unordered_set<std::shared_ptr<Session>> sessions;
    bool is_stopping = false;
  };

  static DoorOptions door_options(const GrpcServerOptions& options) {
    return {.tls = options.tls,
            .has_token = !options.token.empty(),
            .is_insecure_allowed = options.is_insecure_allowed,
            .connection_count_max = options.connection_count_max,
            .first_bytes_timeout = options.hello_timeout};
  }
  Status check_before_listening() const;
  // The connection that has been without a call for longest, or null. It does not end under the
  // lock.
  std::shared_ptr<Session> longest_idle() REVERIE_REQUIRES(open_mutex_);
  std::optional<TimePoint> idle_since();
  // Closes it; false when all have calls.
  bool close_longest_idle();
  void add_session(Part& part, AcceptedConnection incoming);
  Part& part_of(const IoLoop& loop);
  Result<std::shared_ptr<GrpcCallEvents>> begin(const std::shared_ptr<GrpcServerStream>& stream);
  void note_call_over();

  const GrpcServerOptions options_;
  ForkGuard fork_guard_;
  Ref<MessagePool> pool_;
  GrpcServerStream::Shared shared_;
  std::map<std::string, GrpcMethod, std::less<>> methods_;
  std::map<std::string, GrpcUnaryMethod, std::less<>> unary_methods_;
  std::vector<std::unique_ptr<Part>> parts_;  // one per loop
  Door door_;

  Mutex open_mutex_;
  // Each connection from its first event to its last, while it exists.
  std::map<const Session*, std::weak_ptr<Session>> open_ REVERIE_GUARDED_BY(open_mutex_);
  // The counts of connections that are closed.
  std::uint64_t bytes_received_ REVERIE_GUARDED_BY(open_mutex_) = 0;
  std::uint64_t bytes_sent_ REVERIE_GUARDED_BY(open_mutex_) = 0;
  Mutex mutex_;
  CondVar calls_changed_;
  std::atomic<std::size_t> connection_count_{0};
  std::atomic<std::size_t> call_count_{0};
  std::atomic<std::uint64_t> calls_begun_{0};
};

// One connection of the server's.
class GrpcServer::Impl::Session final : public GrpcSession {
 public:
  Session(std::shared_ptr<Impl> server, Part& part, std::unique_ptr<Connection> connection,
          std::shared_ptr<void> place)
      : GrpcSession(Role::kServer, part.hub, std::move(connection), server->shared_.limits,
                    server->pool_, server->options_.in_flight),
        server_(std::move(server)),
        part_(part),
        place_(std::move(place)),
        timer_(hub_->loop()) {}

  void expect_hello() {
    on_idle();
    after(server_->options_.hello_timeout,
          [](Session& session) { session.close(deadline_exceeded("no hello came in time")); });
  }

  // Any thread. IdleTime::kBusy while there is a call.
  std::int64_t idle_since_ns() const { return idle_.since_ns.load(std::memory_order_relaxed); }
  // Any thread: the connection will be closed, unless a call begins before it is notified.
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
    after(server_->options_.first_call_timeout, [](Session& session) {
      session.send_final_goaway("its first call has not come in time");
    });
  }
  void on_call_begun() override {
    idle_.since_ns.store(IdleTime::kBusy, std::memory_order_relaxed);
    if (!std::exchange(had_call_, true)) watch(server_->options_.idle_timeout);
    had_many_calls_ = had_many_calls_ || stream_count() >= kManyCalls;
  }
  void on_idle() override {
    idle_.since_ns.store(Clock::system().now().ns, std::memory_order_relaxed);
  }
  // Checks for too long an idle time when that is possible, not at each call.
  void watch(Duration time) {
    after(time, [](Session& session) {
      const std::int64_t since = session.idle_since_ns();
      const Duration bound = session.server_->options_.idle_timeout;
      if (since == IdleTime::kBusy) return session.watch(bound);
      const Duration idle = Clock::system().now() - TimePoint{since};
      if (idle < bound) return session.watch(bound - idle);
      session.send_final_goaway("it has had no call for too long");
    });
  }
  // With a goodbye, so that no call is lost; without one if the peer does not react.
  void send_final_goaway(std::string_view why) {
    say_goodbye();
    close_without_call(std::string(why));
  }
  // A peer that has acknowledged the goodbye closes after its last call. Another might begin calls
  // for ever.
  void close_without_call(std::string why) {
    after(kGoodbyeTime, [why = std::move(why)](Session& session) {
      if (session.has_call()) return session.close_without_call(why);
      session.close(unavailable("{}", why));
    });
  }
  void leave_if_idle() {
    if (has_call()) return;  // it reports when it is idle again
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
      MutexLock lock(server_->open_mutex_);
      server_->open_.erase(this);
      server_->bytes_received_ += received_bytes();
      server_->bytes_sent_ += sent_bytes();
    }
    --server_->connection_count_;
    place_.reset();
    part_.sessions.erase(std::static_pointer_cast<Session>(shared_from_this()));
    // After the calls have ended; otherwise their small pieces of memory stay in the C heap.
    if (had_many_calls_) hub_->loop().post(give_back_free_memory);
  }

  const std::shared_ptr<Impl> server_;
  Part& part_;
  std::shared_ptr<void> place_;  // at the door
  LoopTimer timer_;              // of what must come next
  IdleTime idle_;
  bool had_call_ = false;
  bool had_many_calls_ = false;
};

// A client that uses TLS with a door without it is answered in cleartext, and so notices at once.
void GrpcServer::Impl::open_door() {
  door_.add_protocol({.name = "h2",
                      .first_bytes = {"PRI * HTTP/2.0", "\x16\x03"},
                      .serve =
                          [weak = weak_from_this()](AcceptedConnection incoming) {
                            if (const auto self = weak.lock()) self->serve(std::move(incoming));
                          },
                      .make_way =
                          [weak = weak_from_this()] {
                            const auto self = weak.lock();
                            return self && self->close_longest_idle();
                          },
                      .idle_since = [weak = weak_from_this()]() -> std::optional<TimePoint> {
                        const auto self = weak.lock();
                        return self ? self->idle_since() : std::nullopt;
                      }});
}

Status GrpcServer::Impl::check_before_listening() const {
  REVERIE_RETURN_IF_ERROR(check_fork());
  return check_token(options_.token);
}

Status GrpcServer::Impl::check(const std::vector<std::string>& addresses) {
  REVERIE_RETURN_IF_ERROR(check_before_listening());
  return door_.check(addresses);
}

Result<std::vector<std::string>> GrpcServer::Impl::listen(
    const std::vector<std::string>& addresses) {
  REVERIE_RETURN_IF_ERROR(check_before_listening());
  return door_.listen(addresses);
}

std::shared_ptr<GrpcServer::Impl::Session> GrpcServer::Impl::longest_idle() {
  std::shared_ptr<Session> longest;
  std::int64_t since = IdleTime::kBusy;
  for (const auto& [address, weak] : open_) {
    const auto session = weak.lock();
    if (!session || session->idle_since_ns() >= since) continue;
    since = (longest = session)->idle_since_ns();
  }
  return longest;
}

std::optional<TimePoint> GrpcServer::Impl::idle_since() {
  MutexLock lock(open_mutex_);
  const std::shared_ptr<Session> longest = longest_idle();
  return longest ? std::optional(TimePoint{longest->idle_since_ns()}) : std::nullopt;
}

bool GrpcServer::Impl::close_longest_idle() {
  MutexLock lock(open_mutex_);
  const std::shared_ptr<Session> longest = longest_idle();
  if (longest) longest->make_way();
  return longest != nullptr;
}

void GrpcServer::Impl::serve(AcceptedConnection incoming) {
  ++connection_count_;
  IoLoop& loop = incoming.connection->loop();
  Part& part = part_of(loop);
  if (loop.is_current()) {
    add_session(part, std::move(incoming));
    return;
  }
  // A connection belongs to its loop, also when the server stops meanwhile.
  auto held = std::make_shared<AcceptedConnection>(std::move(incoming));
  loop.post(
      [self = shared_from_this(), &part, held] { self->add_session(part, std::move(*held)); });
}

void GrpcServer::Impl::add_session(Part& part, AcceptedConnection incoming) {
  if (part.is_stopping) {
    --connection_count_;
    return;
  }
  const auto session = std::make_shared<Session>(
      shared_from_this(), part, std::move(incoming.connection), std::move(incoming.place));
  part.sessions.insert(session);
  {
    MutexLock lock(open_mutex_);
    open_.emplace(session.get(), session);
  }
  session->expect_hello();
  session->start(incoming.received);
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
  door_.close();
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
  const Status why = unavailable("the server is stopping; call again when it is back");
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
  MutexLock lock(open_mutex_);
  figures.bytes_received = bytes_received_;
  figures.bytes_sent = bytes_sent_;
  for (const auto& [session, weak] : open_) {
    figures.bytes_received += session->received_bytes();
    figures.bytes_sent += session->sent_bytes();
    figures.held_bytes += session->budget()->in_bytes() + session->budget()->out_bytes();
  }
  return figures;
}

GrpcServer::GrpcServer(IoThreads& io_threads, GrpcServerOptions options)
    : impl_(std::make_shared<Impl>(io_threads, std::move(options))) {
  impl_->open_door();
}

GrpcServer::~GrpcServer() {
  stop();
  // A forked child shares sockets and loops with its parent, so it must not destroy them.
  if (!impl_->check_fork().ok()) leave_to_parent(std::move(impl_));
}

void GrpcServer::add_method(std::string path, GrpcMethod method) {
  impl_->add_method(std::move(path), std::move(method));
}

void GrpcServer::add_unary(std::string path, GrpcUnaryMethod method) {
  impl_->add_unary(std::move(path), std::move(method));
}

void GrpcServer::add_protocol(DoorProtocol protocol) {
  impl_->add_protocol(std::move(protocol));
}

Result<std::vector<std::string>> GrpcServer::listen(const std::vector<std::string>& addresses) {
  return impl_->listen(addresses);
}

Status GrpcServer::check(const std::vector<std::string>& addresses) {
  return impl_->check(addresses);
}

void GrpcServer::serve(std::unique_ptr<Connection> connection, std::string received) {
  impl_->serve({std::move(connection), std::move(received), nullptr});
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
