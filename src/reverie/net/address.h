// Addresses as users write them, and who may connect to each.
//
//     "localhost:7000"  "10.0.0.5:7000"  "[::1]:7000"     one TCP address
//     "unix:/run/reverie.sock"  "unix:///run/x"            a Unix socket ("unix:@name": abstract)
//     "dns:///replay.local:7000"                           a name; its addresses are tried in turn
//     "ipv4:10.0.0.5:7000,10.0.0.6:7000"  "ipv6:[::1]:1"   several
//
// The spellings are gRPC's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "reverie/base/status.h"

namespace reverie {

// One address before names are looked up.
struct Endpoint {
  enum class Kind { kTcp, kUnix };
  Kind kind = Kind::kTcp;
  std::string host;  // name or number, without brackets; a Unix socket's path
  std::uint16_t port = 0;

  std::string to_string() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// One or more addresses. INVALID_ARGUMENT, with what is wrong, for malformed text.
Result<std::vector<Endpoint>> parse_target(std::string_view target);
// Exactly one address.
Result<Endpoint> parse_endpoint(std::string_view address);

// A socket address in the system's form. A value.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t size);

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  // True if no other machine can reach it: 127.0.0.0/8, ::1, a Unix socket.
  bool is_loopback() const;
  std::uint16_t port() const;
  // "127.0.0.1:7000", "[::1]:7000", "unix:/run/x.sock"; "unix:" for a socket without a name.
  std::string to_string() const;

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// The addresses behind an endpoint. Looking up a name may take seconds: with `is_name_allowed`
// false only addresses that need no look-up are accepted (numbers, "localhost", Unix sockets), the
// rest gives UNIMPLEMENTED. UNAVAILABLE when the name is unknown.
Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint, bool is_name_allowed = true);

// One target per address of a target: two for "ipv4:a,b", the current addresses for a name. For a
// host with IPv4 and IPv6 addresses only the kind that comes first counts, and "localhost" is one:
// they lead to the same server. May take seconds. UNAVAILABLE when a name is unknown.
Result<std::vector<std::string>> single_targets(std::string_view target);

// `address` as it is reached at `remote`, the host that announced it: "0.0.0.0:7000", heard from
// 10.0.0.5, is "10.0.0.5:7000". An address without a wildcard is returned as it is.
std::string without_wildcard(const std::string& address, const std::string& remote);

// True if only processes of its own host can reach the address: loopback, a Unix socket.
bool is_of_one_host(const std::string& address);

// What protects a door.
struct DoorGuard {
  bool has_token = false;
  bool has_tls = false;
  bool has_client_certificates = false;
  bool is_insecure_allowed = false;
};
// Whether a server with such a guard may listen at `address`. At loopback any server may; elsewhere
// it needs client certificates, a token under TLS, or the explicit statement that no secret is
// wanted. No token is ever sent in cleartext that leaves the machine.
Status check_bind(const SocketAddress& address, const DoorGuard& guard);

}  // namespace reverie
