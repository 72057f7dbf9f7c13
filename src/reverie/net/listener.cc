// Tested in connection_test.cc.
#include "reverie/net/listener.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "reverie/base/log.h"
#include "reverie/net/local_door.h"

namespace reverie {
namespace {

constexpr int kBacklog = 4096;
constexpr int kAcceptsAtOnce = 64;  // then it is the turn of other events
// Without descriptors a connection cannot be taken, and asking again at once would spin.
constexpr Duration kPauseWithoutDescriptors = std::chrono::milliseconds(100);

Status no_socket(const std::string& path) {
  return already_exists("{} is a file and no socket; choose another path", path);
}

// Removes the file of a Unix socket at which no process listens any more.
Status make_room(const SocketAddress& address, const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) return {};
  if (!S_ISSOCK(file.st_mode)) return no_socket(path);
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool is_dead =
      ::connect(probe, address.data(), address.size()) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  if (!is_dead) return already_exists("another process listens at unix:{}", path);
  ::unlink(path.c_str());
  return {};
}

// The same address at whichever port is free.
SocketAddress without_port(const SocketAddress& address) {
  sockaddr_storage storage{};
  std::memcpy(&storage, address.data(), address.size());
  if (address.family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage).sin_port = 0;
  if (address.family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = 0;
  return {reinterpret_cast<const sockaddr*>(&storage), address.size()};
}

// A socket of IPv6 gives peers that connect by IPv4 addresses such as ::ffff:10.0.0.5.
SocketAddress peer_address(const sockaddr_storage& peer, socklen_t size) {
  const auto& wide = reinterpret_cast<const sockaddr_in6&>(peer);
  if (peer.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&wide.sin6_addr)) {
    return {reinterpret_cast<const sockaddr*>(&peer), size};
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = wide.sin6_port;
  std::memcpy(&address.sin_addr, wide.sin6_addr.s6_addr + 12, sizeof(address.sin_addr));
  return {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
}

Status refuse(const SocketAddress& address, int error) {
  if (error == EADDRINUSE) {
    return already_exists("another process listens at {}; choose another port, or 0 for a free one",
                          address.to_string());
  }
  return unavailable("cannot listen at {}: {}", address.to_string(), std::strerror(error));
}

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(IoLoop& loop, int fd, const SocketAddress& address, Accept accept, Scarce when_scarce)
      : loop_(loop),
        address_(address),
        accept_(std::move(accept)),
        when_scarce_(std::move(when_scarce)),
        descriptor_(loop.context(), fd),
        pause_(loop) {
    if (address.family() != AF_UNIX) return;
    const std::string text = address.to_string();
    is_door_ = text.starts_with("unix:@reverie/");
    if (text.starts_with("unix:@")) return;
    path_ = text.substr(std::strlen("unix:"));
    ::lstat(path_.c_str(), &file_);
  }

  IoLoop& loop() { return loop_; }
  const SocketAddress& address() const { return address_; }

  void wait() {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this()](const asio::error_code& error) {
                             if (!error && self->descriptor_.is_open()) self->accept_all();
                           });
  }

  void close() {
    if (!descriptor_.is_open()) return;
    pause_.cancel();
    // Also ends the listening that a forked child may share.
    ::shutdown(descriptor_.native_handle(), SHUT_RDWR);
    asio::error_code ignored;
    descriptor_.close(ignored);
    accept_ = nullptr;
    when_scarce_ = nullptr;
    struct stat now {};
    // Still ours, and not a file that was made since.
    if (!path_.empty() && ::lstat(path_.c_str(), &now) == 0 && now.st_ino == file_.st_ino &&
        now.st_dev == file_.st_dev) {
      ::unlink(path_.c_str());
    }
  }

 private:
  void accept_all() {
    for (int i = 0; i < kAcceptsAtOnce && descriptor_.is_open(); ++i) {
      sockaddr_storage peer{};
      socklen_t size = sizeof(peer);
      const int fd = ::accept4(descriptor_.native_handle(), reinterpret_cast<sockaddr*>(&peer),
                               &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0 && is_door_ && !is_of_same_user(fd)) {
        ::close(fd);
        continue;
      }
      if (fd >= 0) {
        accept_(fd, peer_address(peer, size));
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (!std::exchange(has_warned_, true)) {
          log_warning("no connection can be accepted at {}: {}; raise the limit (ulimit -n)",
                      address_.to_string(), std::strerror(errno));
        }
        if (when_scarce_) when_scarce_();
        pause_.start(kPauseWithoutDescriptors, [weak = weak_from_this()] {
          if (const auto self = weak.lock()) self->accept_all();
        });
        return;
      }
      // Otherwise the peer disconnected before it was accepted: continue with the next one.
    }
    if (descriptor_.is_open()) wait();
  }

  IoLoop& loop_;
  const SocketAddress address_;
  Accept accept_;
  Scarce when_scarce_;
  asio::posix::stream_descriptor descriptor_;
  LoopTimer pause_;
  bool is_door_ = false;  // local_door.h
  std::string path_;
  struct stat file_ {};
  bool has_warned_ = false;
};

Result<std::unique_ptr<Listener>> Listener::open(IoLoop& loop, const SocketAddress& address,
                                                 Accept accept, Scarce when_scarce) {
  const bool is_unix = address.family() == AF_UNIX;
  const std::string text = address.to_string();
  if (is_unix && !text.starts_with("unix:@")) {
    REVERIE_RETURN_IF_ERROR(make_room(address, text.substr(std::strlen("unix:"))));
  }
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return refuse(address, errno);
  if (is_unix) {
    ::fchmod(fd, S_IRUSR | S_IWUSR);  // of the file that bind creates
  } else {
    const int on = 1;
    // A port whose last connections are still closing is free; one that is listened at is not.
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const int off = 0;
    if (address.family() == AF_INET6) {
      ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
  }
  if (::bind(fd, address.data(), address.size()) != 0 || ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    return refuse(address, error);
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  auto impl = std::make_shared<Impl>(loop, fd,
                                     SocketAddress(reinterpret_cast<const sockaddr*>(&bound), size),
                                     std::move(accept), std::move(when_scarce));
  if (!loop.run_and_wait([&impl] { impl->wait(); })) {
    return failed_precondition("the I/O threads were stopped; make new ones");
  }
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Status Listener::check(const SocketAddress& address) {
  const std::string text = address.to_string();
  if (address.family() == AF_UNIX) {
    if (text.starts_with("unix:@")) return {};
    const std::filesystem::path path(text.substr(std::strlen("unix:")));
    struct stat file {};
    if (::lstat(path.c_str(), &file) == 0 && !S_ISSOCK(file.st_mode)) return no_socket(path);
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    if (::access(folder.c_str(), W_OK | X_OK) != 0) return refuse(address, errno);
    return {};
  }
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return refuse(address, errno);
  const SocketAddress any_port = without_port(address);
  const int error = ::bind(fd, any_port.data(), any_port.size()) == 0 ? 0 : errno;
  ::close(fd);
  return error == 0 ? Status() : refuse(address, error);
}

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Listener::~Listener() {
  close();
  // A forked child shares the socket with its parent: it leaves it alone.
  if (!fork_guard_.check("listener").ok()) leave_to_parent(std::move(impl_));
}

const SocketAddress& Listener::address() const {
  return impl_->address();
}

void Listener::close() {
  if (!fork_guard_.check("listener").ok()) return;
  // A loop whose thread has ended uses nothing any more: close here.
  if (!impl_->loop().run_and_wait([this] { impl_->close(); })) impl_->close();
}

}  // namespace reverie
