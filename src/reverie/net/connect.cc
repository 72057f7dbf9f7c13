// Tested in connection_test.cc.
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "reverie/base/format.h"
#include "reverie/base/start_thread.h"
#include "reverie/net/connection.h"
#include "reverie/net/local_door.h"

namespace reverie {

// Tries one address after the other. Pending waits hold it weakly: once it is dropped, there are no
// further events.
class ConnectAttempt : public std::enable_shared_from_this<ConnectAttempt> {
 public:
  using Done = std::function<void(Result<std::unique_ptr<Connection>>)>;

  ConnectAttempt(IoLoop& loop, Endpoint endpoint, std::shared_ptr<const TlsContext> tls,
                 std::string server_name, bool uses_local_door, Done done)
      : loop_(loop),
        endpoint_(std::move(endpoint)),
        tls_(std::move(tls)),
        server_name_(std::move(server_name)),
        uses_local_door_(uses_local_door),
        done_(std::move(done)),
        deadline_(loop),
        turn_(loop) {}

  void start(Duration timeout) {
    end_ = Clock::system().now() + timeout;
    deadline_.start(timeout, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->give_up();
    });
    // Later, so that `done` never runs before connect() returned.
    loop_.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->look_up();
    });
  }

  // Lives until its handle is dropped and none of its code runs.
  void hold() { self_ = shared_from_this(); }
  static void drop(ConnectAttempt* attempt) {
    const auto last = std::move(attempt->self_);
    last->done_ = nullptr;
  }

 private:
  void look_up() {
    auto addresses = resolve(endpoint_, /*is_name_allowed=*/false);
    if (addresses.status().code() != StatusCode::kUnimplemented) {
      begin(std::move(addresses));
      return;
    }
    // The system's look-up cannot be cancelled, so no call waits for its thread: it finds that the
    // attempt has ended, or the loop has stopped.
    struct Resolution {
      Mutex mutex;
      IoLoop* loop REVERIE_GUARDED_BY(mutex);
    };
    const auto look_up = std::make_shared<Resolution>();
    {
      MutexLock lock(look_up->mutex);
      look_up->loop = &loop_;
    }
    look_up_ = std::shared_ptr<void>(nullptr, [look_up](void*) {
      MutexLock lock(look_up->mutex);
      look_up->loop = nullptr;
    });
    auto thread = start_thread(
        format("the look-up of '{}'", endpoint_.host),
        [look_up, endpoint = endpoint_, weak = weak_from_this()] {
          auto found = std::make_shared<Result<std::vector<SocketAddress>>>(resolve(endpoint));
          MutexLock lock(look_up->mutex);
          if (look_up->loop == nullptr) return;
          look_up->loop->post([weak, found] {
            if (const auto self = weak.lock()) self->begin(std::move(*found));
          });
        });
    if (!thread.ok()) return finish(thread.status());
    thread->detach();
  }

  void begin(Result<std::vector<SocketAddress>> addresses) {
    if (!addresses.ok()) {
      finish(addresses.status());
      return;
    }
    addresses_ = std::move(*addresses);
    try_next();
  }

  void try_next() {
    descriptor_.reset();
    while (next_ < addresses_.size()) {
      const SocketAddress& address = addresses_[next_++];
      if (uses_local_door_ && try_doors(address)) return;
      const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (fd < 0) {
        note_failure(address, errno);
        continue;
      }
      if (::connect(fd, address.data(), address.size()) == 0) {
        connected(fd, address);
        return;
      }
      // A full queue of a Unix socket's listener gives EAGAIN; the caller retries it.
      if (errno != EINPROGRESS) {
        note_failure(address, errno);
        ::close(fd);
        continue;
      }
      wait_for(fd);
      return;
    }
    if (is_socket_unbound_)
      return finish(not_found("no process listens at {}", endpoint_.to_string()));
    finish(failures_.empty()
               ? unavailable("'{}' has no address", endpoint_.to_string())
               : unavailable("no connection to {}: {}", endpoint_.to_string(), failures_));
  }

  // Immediate: a Unix socket connects or fails at once.
  bool try_doors(const SocketAddress& address) {
    for (const SocketAddress& door : local_doors_to(address)) {
      const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (fd < 0) return false;
      if (::connect(fd, door.data(), door.size()) == 0 && is_of_same_user(fd)) {
        connected(fd, door);
        return true;
      }
      ::close(fd);
    }
    return false;
  }

  void wait_for(int fd) {
    descriptor_ = std::make_unique<asio::posix::stream_descriptor>(loop_.context(), fd);
    const std::uint64_t round = ++round_;
    descriptor_->async_wait(asio::posix::stream_descriptor::wait_write,
                            [weak = weak_from_this(), round](const asio::error_code& error) {
                              const auto self = weak.lock();
                              if (self && !error && self->round_ == round) self->answered();
                            });
    // The remaining addresses share the remaining time.
    const auto left = static_cast<std::int64_t>(addresses_.size() - next_ + 1);
    turn_.start((end_ - Clock::system().now()) / left, [weak = weak_from_this(), round] {
      const auto self = weak.lock();
      if (!self || self->round_ != round || self->next_ == self->addresses_.size()) return;
      self->note_failure(self->addresses_[self->next_ - 1], ETIMEDOUT);
      ++self->round_;
      self->try_next();
    });
  }

  void answered() {
    turn_.cancel();
    const SocketAddress& address = addresses_[next_ - 1];
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(descriptor_->native_handle(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      note_failure(address, error);
      try_next();
      return;
    }
    connected(descriptor_->release(), address);
  }

  void connected(int fd, const SocketAddress& address) {
    finish(make_connection(loop_, fd, address, tls_,
                           server_name_.empty() ? endpoint_.host : server_name_));
  }

  void note_failure(const SocketAddress& address, int error) {
    is_socket_unbound_ = error == ECONNREFUSED && endpoint_.to_string().starts_with("unix:@");
    if (!failures_.empty()) failures_ += "; ";
    failures_ += format("{}: {}", address.to_string(), std::strerror(error));
  }

  void give_up() {
    ++round_;
    finish(deadline_exceeded("no connection to {} in time{}{}", endpoint_.to_string(),
                             failures_.empty() ? "" : "; ", failures_));
  }

  void finish(Result<std::unique_ptr<Connection>> result) {
    deadline_.cancel();
    turn_.cancel();
    descriptor_.reset();
    look_up_.reset();
    if (done_) std::exchange(done_, nullptr)(std::move(result));
  }

  IoLoop& loop_;
  const Endpoint endpoint_;
  const std::shared_ptr<const TlsContext> tls_;
  const std::string server_name_;
  const bool uses_local_door_;
  Done done_;
  TimePoint end_;
  LoopTimer deadline_;
  LoopTimer turn_;  // of the address that is tried
  std::shared_ptr<void> look_up_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_ = 0;
  std::uint64_t round_ = 0;
  std::unique_ptr<asio::posix::stream_descriptor> descriptor_;
  std::string failures_;
  bool is_socket_unbound_ = false;
  std::shared_ptr<ConnectAttempt> self_;
};

void ConnectAttemptDeleter::operator()(ConnectAttempt* attempt) const {
  ConnectAttempt::drop(attempt);
}

ConnectHandle connect(IoLoop& loop, const Endpoint& endpoint, std::shared_ptr<const TlsContext> tls,
                      std::string server_name, Duration timeout,
                      std::function<void(Result<std::unique_ptr<Connection>>)> done,
                      bool uses_local_door) {
  auto attempt = std::make_shared<ConnectAttempt>(
      loop, endpoint, std::move(tls), std::move(server_name), uses_local_door, std::move(done));
  attempt->hold();
  attempt->start(timeout);
  return ConnectHandle(attempt.get());
}

}  // namespace reverie
