// Tested in grpc_test.cc.
#include "reverie/grpc/grpc_client.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nghttp2/nghttp2.h>

#include "reverie/base/fork.h"
#include "reverie/base/log.h"
#include "reverie/base/random.h"
#include "reverie/door/token.h"
#include "reverie/grpc/grpc_client_stream.h"
#include "reverie/grpc/grpc_hub.h"
#include "reverie/grpc/grpc_session.h"

namespace reverie {
namespace {

// Whether another attempt would fail in the same way.
bool is_lasting(const Status& failure) {
  return failure.code() == StatusCode::kUnauthenticated ||
         failure.code() == StatusCode::kFailedPrecondition;
}

// A call with one message each way, as one with streams.
class AnswerReceiver final : public GrpcClientEvents {
 public:
  explicit AnswerReceiver(GrpcClient::UnaryDone done) : done_(std::move(done)) {}

  void on_message(Ref<GrpcMessage> message) override {
    has_extra_message_ = static_cast<bool>(response_);
    response_ = std::move(message);
  }
  void on_end(const Status& status) override {
    if (!status.ok()) {
      done_(status);
    } else if (!response_ || has_extra_message_) {
      done_(internal_error("the server sent {} for a call with one response",
                           has_extra_message_ ? "several messages" : "no message"));
    } else {
      done_(std::move(response_));
    }
  }

 private:
  const GrpcClient::UnaryDone done_;
  Ref<GrpcMessage> response_;
  bool has_extra_message_ = false;
};

}  // namespace

// Lives on one loop, and is used on its thread only, except where marked.
class GrpcClient::Impl : public GrpcClientStream::Owner, public std::enable_shared_from_this<Impl> {
 public:
  Impl(IoLoop& loop, std::string_view target, std::vector<Endpoint> endpoints,
       GrpcClientOptions options, std::shared_ptr<const TlsContext> tls)
      : target_(target),
        options_(std::move(options)),
        tls_(std::move(tls)),
        hub_(std::make_shared<GrpcHub>(loop)),
        pool_(make_ref<MessagePool>()),
        random_(options_.seed) {
    for (Endpoint& endpoint : endpoints) {
      channels_.push_back(std::make_unique<Channel>());
      channels_.back()->endpoint = std::move(endpoint);
      channels_.back()->pause = options_.backoff_min;
    }
  }

  // From any thread.
  std::shared_ptr<GrpcClientStream> start(std::string_view path, GrpcCallOptions options,
                                          std::shared_ptr<GrpcCallEvents> events);
  void adopt(std::unique_ptr<Connection> connection);
  void close();
  IoLoop& loop() { return hub_->loop(); }
  std::size_t address_count() const { return channels_.size(); }
  Status check_fork() const { return fork_guard_.check("client"); }

  // GrpcClientStream::Owner
  void begin(const std::shared_ptr<GrpcClientStream>& stream) override;
  void note_over(GrpcClientStream& stream) override { live_.erase(&stream); }
  std::string why_waiting() const override;

 private:
  class Session;
  // The connection to one address.
  struct Channel {
    enum class State { kIdle, kConnecting, kReady, kPausing };
    Endpoint endpoint;
    State state = State::kIdle;
    std::shared_ptr<Session> session;  // for new calls, or about to be ready
    ConnectHandle attempt;
    std::unique_ptr<LoopTimer> timer;  // of the pause, or of the peer's hello
    Duration pause;
    Status failure;  // of the last attempt
    bool is_adopted = false;
  };

  void dispatch(const std::shared_ptr<GrpcClientStream>& stream);
  void dispatch_waiting();
  void connect(Channel& channel);
  void take_connection(Channel& channel, std::unique_ptr<Connection> connection);
  void note_ready(Channel& channel);
  void note_failure(Channel& channel, const Status& why);
  void close_here();
  void watch_waiting();
  void tell_waiting();

  const std::string target_;
  const GrpcClientOptions options_;
  const std::shared_ptr<const TlsContext> tls_;
  const ForkGuard fork_guard_;
  const std::shared_ptr<GrpcHub> hub_;
  const Ref<MessagePool> pool_;
  Random random_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::size_t turn_ = 0;
  std::vector<std::shared_ptr<GrpcClientStream>> waiting_;  // for a connection
  std::unique_ptr<LoopTimer> notice_timer_;  // from the first waiting call until a server answers
  std::unordered_map<GrpcClientStream*, std::shared_ptr<GrpcClientStream>> live_;
  std::vector<std::weak_ptr<Session>> sessions_;  // including those that take no new calls
  bool is_closed_ = false;
};

class GrpcClient::Impl::Session final : public GrpcSession {
 public:
  Session(std::weak_ptr<Impl> client, Channel& channel, std::unique_ptr<Connection> connection,
          const std::shared_ptr<GrpcHub>& hub, const GrpcLimits& limits, Ref<MessagePool> pool)
      : GrpcSession(Role::kClient, hub, std::move(connection), limits, std::move(pool)),
        client_(std::move(client)),
        channel_(channel) {}

  // No further call begins.
  void on_goaway() override {
    kept_ = std::static_pointer_cast<Session>(shared_from_this());  // until its calls have ended
    leave(unavailable("{} takes no calls", connection().peer()));
  }

 private:
  void on_ready() override {
    const auto client = client_.lock();
    if (client && channel_.session.get() == this) client->note_ready(channel_);
  }
  void on_close(const Status& why) override {
    const auto kept = std::move(kept_);
    leave(why);
  }
  void leave(const Status& why) {
    const auto client = client_.lock();
    if (!client || channel_.session.get() != this) return;
    const auto self = std::exchange(channel_.session, nullptr);
    if (channel_.state != Channel::State::kReady) return client->note_failure(channel_, why);
    channel_.state = Channel::State::kIdle;
    channel_.failure = why;
  }

  const std::weak_ptr<Impl> client_;
  Channel& channel_;  // of the client, when there is one
  std::shared_ptr<Session> kept_;
};

std::shared_ptr<GrpcClientStream> GrpcClient::Impl::start(std::string_view path,
                                                          GrpcCallOptions options,
                                                          std::shared_ptr<GrpcCallEvents> events) {
  const Status forked = check_fork();
  if (!forked.ok()) {
    events->on_end(forked);  // here: there is no I/O thread
    events = nullptr;
  }
  auto stream = std::make_shared<GrpcClientStream>(hub_, options_.limits, weak_from_this(), path,
                                                   std::move(options), std::move(events));
  stream->request(GrpcRequest::Kind::kStart);
  return stream;
}

void GrpcClient::Impl::begin(const std::shared_ptr<GrpcClientStream>& stream) {
  if (is_closed_) {
    stream->fail(cancelled("the client is closed"));
    return;
  }
  live_.emplace(stream.get(), stream);
  dispatch(stream);
}

void GrpcClient::Impl::dispatch(const std::shared_ptr<GrpcClientStream>& stream) {
  const std::size_t count = channels_.size();
  bool is_connecting = false;
  const Status* failure = nullptr;
  const Status* lasting = nullptr;
  bool may_heal = false;
  for (std::size_t i = 0; i < count; ++i) {
    Channel& channel = *channels_[(turn_ + i) % count];
    // A connection has 2^30 numbers for calls.
    if (channel.state == Channel::State::kReady &&
        nghttp2_session_get_next_stream_id(channel.session->http2()) > INT32_MAX) {
      channel.session->say_goodbye();
      channel.session->on_goaway();
    }
    if (channel.state == Channel::State::kIdle) connect(channel);
    if (channel.state == Channel::State::kReady) {
      turn_ = (turn_ + i + 1) % count;
      stream->begin_on(*channel.session,
                       channel.endpoint.kind == Endpoint::Kind::kUnix
                           ? std::string("localhost")
                           : channel.endpoint.to_string(),
                       options_.token);
      return;
    }
    is_connecting |= channel.state == Channel::State::kConnecting;
    if (channel.state != Channel::State::kPausing) continue;
    failure = &channel.failure;
    may_heal |= !is_lasting(channel.failure);
    if (is_lasting(channel.failure)) lasting = &channel.failure;
  }
  if (!is_connecting && !may_heal && lasting != nullptr) {
    stream->fail(*lasting);
  } else if (is_connecting || stream->is_waiting_for_ready()) {
    waiting_.push_back(stream);
    stream->wait_for_connection();
    if (stream->is_waiting_for_ready()) watch_waiting();
  } else {
    stream->fail(unavailable("{}", failure ? failure->message() : "no address is left"));
  }
}

std::string GrpcClient::Impl::why_waiting() const {
  for (const auto& channel : channels_) {
    if (!channel->failure.ok()) return channel->failure.message();
  }
  return "no server said hello";
}

void GrpcClient::Impl::watch_waiting() {
  if (notice_timer_) return;
  notice_timer_ = std::make_unique<LoopTimer>(hub_->loop());
  notice_timer_->start(kSilentRetries, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && !self->is_closed_) self->tell_waiting();
  });
}

void GrpcClient::Impl::tell_waiting() {
  const auto count = std::ranges::count_if(waiting_, [](const auto& stream) {
    return !stream->has_ended() && stream->is_waiting_for_ready();
  });
  if (count == 0) {
    notice_timer_.reset();  // for those to come
    return;
  }
  log_warning(
      "no server has answered at {} for {:.3g} s, and {} calls wait for one: {}; still trying",
      target_, to_seconds(kSilentRetries), count, why_waiting());
}

void GrpcClient::Impl::dispatch_waiting() {
  std::vector<std::shared_ptr<GrpcClientStream>> waiting;
  waiting.swap(waiting_);
  for (const auto& stream : waiting) {
    if (!stream->has_ended()) dispatch(stream);
  }
}

void GrpcClient::Impl::connect(Channel& channel) {
  if (channel.is_adopted) {  // it cannot be opened again
    channel.state = Channel::State::kPausing;
    return;
  }
  channel.state = Channel::State::kConnecting;
  channel.attempt = reverie::connect(
      hub_->loop(), channel.endpoint, tls_, {}, options_.connect_timeout,
      [this, &channel](Result<std::unique_ptr<Connection>> connection) {
        hub_->run([&] {
          const ConnectHandle attempt = std::move(channel.attempt);
          if (connection.ok()) {
            take_connection(channel, std::move(connection).value());
          } else {
            note_failure(channel, connection.status());
          }
        });
      },
      options_.uses_local_door && tls_ == nullptr);
}

void GrpcClient::Impl::take_connection(Channel& channel, std::unique_ptr<Connection> connection) {
  channel.session = std::make_shared<Session>(weak_from_this(), channel, std::move(connection),
                                              hub_, options_.limits, pool_);
  nghttp2_session_set_next_stream_id(channel.session->http2(), options_.first_call_number);
  std::erase_if(sessions_, [](const auto& session) { return session.expired(); });
  sessions_.push_back(channel.session);
  // It takes calls once the server has sent its hello: not everything that accepts is a gRPC
  // server.
  channel.timer = std::make_unique<LoopTimer>(hub_->loop());
  channel.timer->start(options_.connect_timeout, [this, &channel] {
    hub_->run([&] {
      const auto session = channel.session;
      if (session) session->close(deadline_exceeded("no hello came in time"));
    });
  });
  const auto session = channel.session;
  session->start({});
}

void GrpcClient::Impl::note_ready(Channel& channel) {
  channel.timer.reset();
  notice_timer_.reset();
  channel.state = Channel::State::kReady;
  channel.pause = options_.backoff_min;
  dispatch_waiting();
}

void GrpcClient::Impl::note_failure(Channel& channel, const Status& why) {
  channel.failure = why;
  channel.state = Channel::State::kPausing;
  if (is_closed_) return;
  if (!channel.is_adopted) {
    // Between 0.8 and 1.2 of the pause, so that clients do not all reconnect at once.
    const auto pause =
        std::chrono::duration_cast<Duration>(channel.pause * (0.8 + 0.4 * random_.uniform()));
    channel.pause = std::min(channel.pause * 2, options_.backoff_max);
    channel.timer = std::make_unique<LoopTimer>(hub_->loop());
    channel.timer->start(pause, [this, &channel] {
      hub_->run([&] {
        channel.state = Channel::State::kIdle;
        dispatch_waiting();  // opens it again, if calls wait
      });
    });
  }
  dispatch_waiting();
}

void GrpcClient::Impl::adopt(std::unique_ptr<Connection> connection) {
  auto held = std::make_shared<std::unique_ptr<Connection>>(std::move(connection));
  hub_->loop().run_and_wait([this, &held] {
    hub_->run([this, &held] {
      Channel& channel = *channels_.front();
      channel.is_adopted = true;
      channel.state = Channel::State::kConnecting;
      take_connection(channel, std::move(*held));
    });
  });
}

void GrpcClient::Impl::close() {
  if (!check_fork().ok()) return;
  const auto close = [self = shared_from_this()] {
    self->hub_->run([&self] { self->close_here(); });
  };
  // Within an event the sessions are in use: afterwards.
  if (hub_->loop().is_current()) {
    hub_->loop().post(close);
  } else {
    hub_->loop().run_and_wait(close);
  }
}

void GrpcClient::Impl::close_here() {
  if (std::exchange(is_closed_, true)) return;
  const Status why = cancelled("the client was closed");
  const auto live = live_;
  for (const auto& [key, stream] : live) stream->fail(why);
  live_.clear();
  waiting_.clear();
  notice_timer_.reset();
  for (const auto& channel : channels_) {
    channel->attempt.reset();
    channel->timer.reset();
  }
  const auto sessions = sessions_;
  for (const auto& weak : sessions) {
    if (const auto session = weak.lock()) session->close(why);
  }
}

Result<std::unique_ptr<GrpcClient>> GrpcClient::open(IoThreads& io_threads, std::string_view target,
                                                     GrpcClientOptions options) {
  REVERIE_RETURN_IF_ERROR(io_threads.check_fork());
  REVERIE_ASSIGN_OR_RETURN(std::vector<Endpoint> endpoints, parse_target(target));
  REVERIE_RETURN_IF_ERROR(check_token(options.token));
  std::shared_ptr<const TlsContext> tls;
  if (options.tls) {
    REVERIE_ASSIGN_OR_RETURN(tls, TlsContext::client(*options.tls, {"h2"}));
  }
  return std::unique_ptr<GrpcClient>(new GrpcClient(std::make_shared<Impl>(
      io_threads.next(), target, std::move(endpoints), std::move(options), std::move(tls))));
}

GrpcClient::GrpcClient(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcClient::~GrpcClient() {
  close();
  // A forked child shares sockets and loops with its parent, so it must not destroy them.
  if (!impl_->check_fork().ok()) leave_to_parent(std::move(impl_));
}

std::shared_ptr<GrpcClientCall> GrpcClient::start(std::string_view path, GrpcCallOptions options,
                                                  std::shared_ptr<GrpcClientEvents> events) {
  return impl_->start(path, std::move(options), std::move(events));
}

std::shared_ptr<GrpcClientCall> GrpcClient::unary(std::string_view path, GrpcPayload request,
                                                  GrpcCallOptions options, UnaryDone done) {
  auto call =
      impl_->start(path, std::move(options), std::make_shared<AnswerReceiver>(std::move(done)));
  call->write(std::move(request));
  call->half_close();
  return call;
}

std::size_t GrpcClient::address_count() const {
  return impl_->address_count();
}

IoLoop& GrpcClient::loop() {
  return impl_->loop();
}

void GrpcClient::adopt(std::unique_ptr<Connection> connection) {
  impl_->adopt(std::move(connection));
}

void GrpcClient::close() {
  impl_->close();
}

}  // namespace reverie
