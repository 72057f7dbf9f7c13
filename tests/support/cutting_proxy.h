// CuttingProxy: a TCP port that forwards to another port, and cuts connections at random.
//
//     client <--> proxy <--> server        each piece of up to 64 KiB, in either direction, is
//                                          forwarded whole, or cut, and then both ends are closed
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reverie/base/check.h"

namespace reverie::testing {

class CuttingProxy {
 public:
  CuttingProxy(std::uint16_t server_port, double cut_share, std::uint64_t seed)
      : server_port_(server_port), cut_share_(cut_share), rng_(seed) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    REVERIE_CHECK(::bind(listener_, as_generic(address), sizeof(address)) == 0);
    REVERIE_CHECK(::listen(listener_, 64) == 0);
    socklen_t size = sizeof(address);
    REVERIE_CHECK(::getsockname(listener_, as_generic(address), &size) == 0);
    port_ = ntohs(address.sin_port);
    REVERIE_CHECK(::pipe2(stop_.data(), O_CLOEXEC) == 0);
    thread_ = std::thread([this] { run(); });
  }
  ~CuttingProxy() {
    REVERIE_CHECK(::write(stop_[1], "x", 1) == 1);
    thread_.join();
    for (const Pair& pair : pairs_) close_pair(pair);
    ::close(listener_);
    ::close(stop_[0]);
    ::close(stop_[1]);
  }
  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  // Pieces that begin with it are not forwarded. Before the first connection.
  void withhold(std::string begin) { withheld_ = std::move(begin); }
  // Pieces are forwarded in two halves, with a pause between them. Before the first connection.
  void halve() { is_halving_ = true; }

  std::uint16_t port() const { return port_; }
  std::uint64_t pieces() const { return pieces_; }
  std::uint64_t cuts() const { return cuts_; }

 private:
  static constexpr int kPauseMs = 20;
  struct Pair {
    int client;
    int server;
  };

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  static sockaddr* as_generic(sockaddr_in& address) {
    return reinterpret_cast<sockaddr*>(&address);
  }
  static void close_pair(const Pair& pair) {
    ::close(pair.client);
    ::close(pair.server);
  }

  void run() {
    while (true) {
      std::vector<pollfd> watched = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        watched.push_back({pair.client, POLLIN, 0});
        watched.push_back({pair.server, POLLIN, 0});
      }
      if (::poll(watched.data(), watched.size(), -1) < 0) {
        REVERIE_CHECK(errno == EINTR);
        continue;
      }
      if (watched[0].revents != 0) return;
      std::vector<Pair> kept;
      for (std::size_t i = 0; i < pairs_.size(); ++i) {
        const Pair pair = pairs_[i];
        const bool is_alive =
            (watched[2 + 2 * i].revents == 0 || hand_on(pair.client, pair.server)) &&
            (watched[3 + 2 * i].revents == 0 || hand_on(pair.server, pair.client));
        if (is_alive) {
          kept.push_back(pair);
        } else {
          close_pair(pair);
        }
      }
      pairs_ = std::move(kept);
      if (watched[1].revents != 0) accept_one();
    }
  }

  void accept_one() {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(server_port_);
    if (::connect(server, as_generic(address), sizeof(address)) != 0) {
      close_pair({client, server});
      return;
    }
    const int on = 1;
    ::setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    pairs_.push_back({client, server});
  }

  // False if the pair of connections has ended.
  bool hand_on(int from, int to) {
    const ssize_t got = ::recv(from, buffer_.data(), buffer_.size(), 0);
    if (got <= 0) return false;
    auto size = static_cast<std::size_t>(got);
    ++pieces_;
    if (!withheld_.empty() && std::string_view(buffer_.data(), size).starts_with(withheld_)) {
      return true;
    }
    const bool is_cut = std::bernoulli_distribution(cut_share_)(rng_);
    if (is_cut) {
      ++cuts_;
      size = std::uniform_int_distribution<std::size_t>(0, size)(rng_);
    }
    for (std::size_t sent = 0; sent < size;) {
      pollfd stop{stop_[0], POLLIN, 0};
      if (is_halving_ && sent > 0) (void)::poll(&stop, 1, kPauseMs);
      const std::size_t part = is_halving_ && sent == 0 ? (size + 1) / 2 : size - sent;
      const ssize_t n = ::send(to, buffer_.data() + sent, part, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<std::size_t>(n);
    }
    return !is_cut;
  }

  const std::uint16_t server_port_;
  const double cut_share_;
  std::mt19937_64 rng_;
  std::string withheld_;
  bool is_halving_ = false;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::array<int, 2> stop_{};
  std::vector<Pair> pairs_;
  std::array<char, 64 << 10> buffer_{};
  std::atomic<std::uint64_t> pieces_{0};
  std::atomic<std::uint64_t> cuts_{0};
  std::thread thread_;
};

}  // namespace reverie::testing
