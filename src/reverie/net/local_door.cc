// Tested in tests/python/local_door_test.py.
#include "reverie/net/local_door.h"

#include <cstring>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace reverie {
namespace {

constexpr const char* kPrefix = "unix:@reverie/";

SocketAddress named_socket(const std::string& text) {
  return resolve(parse_endpoint(text).value()).value().front();
}

// The same address with the wildcard address, or without its port.
SocketAddress changed(const SocketAddress& address, bool is_any, bool has_port) {
  sockaddr_storage storage{};
  std::memcpy(&storage, address.data(), address.size());
  if (address.family() == AF_INET) {
    auto& number = reinterpret_cast<sockaddr_in&>(storage);
    if (is_any) number.sin_addr.s_addr = htonl(INADDR_ANY);
    if (!has_port) number.sin_port = 0;
  } else {
    auto& number = reinterpret_cast<sockaddr_in6&>(storage);
    if (is_any) number.sin6_addr = in6addr_any;
    if (!has_port) number.sin6_port = 0;
    number.sin6_scope_id = is_any ? 0 : number.sin6_scope_id;
  }
  return {reinterpret_cast<const sockaddr*>(&storage), address.size()};
}

// A machine can bind a socket only to its own addresses.
bool is_of_this_machine(const SocketAddress& address) {
  if (address.is_loopback()) return true;
  const int fd = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const SocketAddress any_port = changed(address, /*is_any=*/false, /*has_port=*/false);
  const bool is_own = ::bind(fd, any_port.data(), any_port.size()) == 0;
  ::close(fd);
  return is_own;
}

}  // namespace

SocketAddress local_door(const SocketAddress& address) {
  return named_socket(kPrefix + address.to_string());
}

std::vector<SocketAddress> local_doors_to(const SocketAddress& address) {
  if (address.family() != AF_INET && address.family() != AF_INET6) return {};
  if (address.port() == 0 || !is_of_this_machine(address)) return {};
  return {local_door(address), local_door(changed(address, /*is_any=*/true, /*has_port=*/true))};
}

bool is_of_same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace reverie
