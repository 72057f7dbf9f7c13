#include "reverie/net/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "reverie/net/shared_socket.h"
#include "reverie/net/tls_connection.h"

namespace reverie {
namespace {

constexpr std::size_t kPiecesMax = 256;     // per system call, which takes up to 1024
constexpr std::size_t kDescriptorsMax = 2;  // kept if a peer sends them

// The socket and its waits: the waits hold it too, so that a connection may be destroyed in an
// event.
struct Socket {
  Socket(IoLoop& io_loop, int socket)
      : loop(io_loop), fd(socket), descriptor(io_loop.context(), socket) {}

  IoLoop& loop;
  const int fd;
  asio::posix::stream_descriptor descriptor;
  ConnectionEvents* events = nullptr;
  bool is_waiting_to_read = false;
  bool is_waiting_to_write = false;
};

class SocketConnection final : public Connection {
 public:
  SocketConnection(IoLoop& loop, int fd, const SocketAddress& peer)
      : socket_(std::make_shared<Socket>(loop, fd)), peer_(peer) {}

  ~SocketConnection() override {
    socket_->events = nullptr;
    for (const int descriptor : descriptors_) ::close(descriptor);
    // Unread bytes would turn the close into a reset, which discards what was sent.
    std::byte rest[4096];
    for (int i = 0; i < 64 && ::recv(fd(), rest, sizeof(rest), MSG_DONTWAIT) > 0; ++i) {
    }
    // Reaches the peer even when a forked child holds the socket too.
    ::shutdown(fd(), SHUT_RDWR);
    if (!socket_->descriptor.is_open()) {
      ::close(fd());
      return;
    }
    asio::error_code ignored;
    socket_->descriptor.close(ignored);
  }

  IoLoop& loop() override { return socket_->loop; }
  void set_events(ConnectionEvents* events) override { socket_->events = events; }

  IoResult read(std::span<std::byte> into) override {
    while (true) {
      const ssize_t got = takes_descriptors_ ? receive_with_descriptors(into)
                                             : ::recv(fd(), into.data(), into.size(), 0);
      if (got >= 0 || errno != EINTR) return received(got);
    }
  }

  IoResult read_both(std::span<std::byte> first, std::span<std::byte> second) override {
    if (takes_descriptors_) return read(first);
    iovec parts[2] = {{first.data(), first.size()}, {second.data(), second.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    while (true) {
      const ssize_t got = ::recvmsg(fd(), &message, 0);
      if (got >= 0 || errno != EINTR) return received(got);
    }
  }

  IoResult write(std::span<const std::span<const std::byte>> pieces) override {
    iovec parts[kPiecesMax];
    const std::size_t count = std::min(pieces.size(), kPiecesMax);
    for (std::size_t i = 0; i < count; ++i) {
      parts[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    return send(message);
  }

  bool can_write_on_any_thread() const override { return true; }

  bool can_read_on_any_thread() const override { return true; }

  int fd() const { return socket_->fd; }
  void leave_loop() {
    if (socket_->descriptor.is_open()) socket_->descriptor.release();
  }

  bool accept_descriptors() override {
    takes_descriptors_ = peer_.family() == AF_UNIX;
    return takes_descriptors_;
  }

  bool accepts_descriptors() const override { return takes_descriptors_; }
  bool is_unix() const override { return peer_.family() == AF_UNIX; }
  void shut_down() override { ::shutdown(fd(), SHUT_RDWR); }

  int take_descriptor() override {
    if (descriptors_.empty()) return -1;
    const int first = descriptors_.front();
    descriptors_.erase(descriptors_.begin());
    return first;
  }

  IoResult write_with_descriptor(std::span<const std::byte> piece, int descriptor) override {
    if (peer_.family() != AF_UNIX) return Connection::write_with_descriptor(piece, descriptor);
    iovec part{const_cast<std::byte*>(piece.data()), piece.size()};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    return send(message);
  }

  void want_read() override {
    if (!socket_->descriptor.is_open() || std::exchange(socket_->is_waiting_to_read, true)) return;
    socket_->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                   [socket = socket_](const asio::error_code&) {
                                     socket->is_waiting_to_read = false;
                                     if (socket->events) socket->events->on_readable();
                                   });
  }
  void want_write() override {
    if (!socket_->descriptor.is_open() || std::exchange(socket_->is_waiting_to_write, true)) return;
    socket_->descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                                   [socket = socket_](const asio::error_code&) {
                                     socket->is_waiting_to_write = false;
                                     if (socket->events) socket->events->on_writable();
                                   });
  }

  bool is_peer_local() const override { return peer_.is_loopback(); }
  std::string peer() const override { return peer_.to_string(); }

 private:
  IoResult send(const msghdr& message) {
    while (true) {
      const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL);
      if (sent >= 0) return {.size_bytes = static_cast<std::size_t>(sent)};
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return lost(errno);
    }
  }

  // The result of a system call that reads.
  IoResult received(ssize_t got) const {
    if (got > 0) return {.size_bytes = static_cast<std::size_t>(got)};
    if (got == 0) return {.is_end = true};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    return lost(errno);
  }

  ssize_t receive_with_descriptors(std::span<std::byte> into) {
    iovec part{into.data(), into.size()};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = ::recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        if (descriptors_.size() < kDescriptorsMax) {
          descriptors_.push_back(descriptor);
        } else {
          ::close(descriptor);
        }
      }
    }
    return got;
  }

  IoResult lost(int error) const {
    return {.status =
                unavailable("the connection to {} was lost: {}", peer(), std::strerror(error))};
  }

  std::shared_ptr<Socket> socket_;
  SocketAddress peer_;
  bool takes_descriptors_ = false;
  std::vector<int> descriptors_;
};

// Small messages are sent at once, and the loss of a peer's machine is noticed within a minute.
void tune_tcp(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

}  // namespace

IoResult Connection::write_with_descriptor(std::span<const std::byte>, int) {
  return {.status = unavailable("the connection to {} carries no descriptors", peer())};
}

Result<ConnectionPair> make_connection_pair(IoLoop& first, IoLoop& second) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return resource_exhausted("no pair of sockets could be made: {}", std::strerror(errno));
  }
  sockaddr unnamed{};
  unnamed.sa_family = AF_UNIX;
  const SocketAddress peer(&unnamed, sizeof(unnamed.sa_family));
  return ConnectionPair{make_connection(first, ends[0], peer),
                        make_connection(second, ends[1], peer)};
}

// No other class can be read on any thread.
int socket_of(Connection& connection) {
  if (!connection.can_read_on_any_thread()) return -1;
  return static_cast<const SocketConnection&>(connection).fd();
}

bool has_input(Connection& connection) {
  pollfd asked{socket_of(connection), POLLIN, 0};
  return asked.fd >= 0 && ::poll(&asked, 1, 0) > 0;
}

void leave_loop(Connection& connection) {
  REVERIE_CHECK(connection.can_read_on_any_thread());
  static_cast<SocketConnection&>(connection).leave_loop();
}

std::unique_ptr<Connection> make_connection(IoLoop& loop, int socket, const SocketAddress& peer,
                                            std::shared_ptr<const TlsContext> tls,
                                            const std::string& server_name) {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  if (peer.family() != AF_UNIX) tune_tcp(socket);
  auto plain = std::make_unique<SocketConnection>(loop, socket, peer);
  if (!tls) return plain;
  return make_tls_connection(std::move(plain), std::move(tls), server_name);
}

}  // namespace reverie
