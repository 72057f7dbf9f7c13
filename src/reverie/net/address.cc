#include "reverie/net/address.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace reverie {
namespace {

constexpr std::string_view kSpellings =
    "write host:port, [v6 address]:port, unix:/path, dns:///name:port or ipv4:a:1,b:2";

// "host:port" or "[v6]:port".
Result<Endpoint> parse_host_and_port(std::string_view text) {
  Endpoint endpoint;
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find("]:");
    if (end == std::string_view::npos) {
      return invalid_argument("address '{}' has no ']:port'; {}", text, kSpellings);
    }
    endpoint.host = text.substr(1, end - 1);
    port = text.substr(end + 2);
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) {
      return invalid_argument("address '{}' has no port; {}", text, kSpellings);
    }
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (endpoint.host.find(':') != std::string::npos) {
      return invalid_argument("address '{}' has several colons; write [{}]:{} for IPv6", text,
                              endpoint.host, port);
    }
  }
  if (endpoint.host.empty())
    return invalid_argument("address '{}' has no host; {}", text, kSpellings);
  const char* const end = port.data() + port.size();
  const auto [stop, error] = std::from_chars(port.data(), end, endpoint.port);
  if (error != std::errc() || stop != end || port.empty()) {
    return invalid_argument("port '{}' of address '{}' is not a number from 0 to 65535", port,
                            text);
  }
  return endpoint;
}

Result<Endpoint> parse_unix(std::string_view path) {
  if (path.starts_with("//")) path.remove_prefix(2);  // unix:///absolute
  // The system's bound, with the zero that ends a name.
  if (path.empty() || path == "@" || path.size() >= sizeof(sockaddr_un::sun_path)) {
    return invalid_argument("the path '{}' of a Unix socket has {} bytes; 1 to {} are possible",
                            path, path.size(), sizeof(sockaddr_un::sun_path) - 1);
  }
  return Endpoint{Endpoint::Kind::kUnix, std::string(path), 0};
}

// A list of numeric addresses, all of one family.
Result<std::vector<Endpoint>> parse_numbers(std::string_view list, int family) {
  std::vector<Endpoint> endpoints;
  while (true) {
    const std::size_t comma = list.find(',');
    REVERIE_ASSIGN_OR_RETURN(Endpoint endpoint, parse_host_and_port(list.substr(0, comma)));
    in6_addr number{};
    if (inet_pton(family, endpoint.host.c_str(), &number) != 1) {
      return invalid_argument("'{}' is no {} address; use dns:///name:port for names",
                              endpoint.host, family == AF_INET ? "IPv4" : "IPv6");
    }
    endpoints.push_back(std::move(endpoint));
    if (comma == std::string_view::npos) return endpoints;
    list.remove_prefix(comma + 1);
  }
}

SocketAddress unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (path[0] == '@') {
    address.sun_path[0] = '\0';  // abstract: a name without a file
  } else {
    ++size;
  }
  return {reinterpret_cast<const sockaddr*>(&address), size};
}

SocketAddress loopback(int family, std::uint16_t port) {
  if (family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  return {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
}

}  // namespace

std::string Endpoint::to_string() const {
  if (kind == Kind::kUnix) return format("unix:{}", host);
  if (host.find(':') != std::string::npos) return format("[{}]:{}", host, port);
  return format("{}:{}", host, port);
}

Result<std::vector<Endpoint>> parse_target(std::string_view target) {
  if (target.find('\0') != std::string_view::npos) {
    return invalid_argument("an address may hold no zero byte; {}", kSpellings);
  }
  if (target.starts_with("ipv4:")) return parse_numbers(target.substr(5), AF_INET);
  if (target.starts_with("ipv6:")) return parse_numbers(target.substr(5), AF_INET6);
  REVERIE_ASSIGN_OR_RETURN(Endpoint endpoint, parse_endpoint(target));
  return std::vector{std::move(endpoint)};
}

Result<Endpoint> parse_endpoint(std::string_view address) {
  if (address.find('\0') != std::string_view::npos) {
    return invalid_argument("an address may hold no zero byte; {}", kSpellings);
  }
  if (address.starts_with("unix:")) return parse_unix(address.substr(5));
  if (address.starts_with("dns:")) {
    std::string_view name = address.substr(4);
    if (name.starts_with("///")) {
      name.remove_prefix(3);
    } else if (name.starts_with("//")) {
      return invalid_argument(
          "'{}' names a DNS server, which is not supported; write dns:///name:port", address);
    }
    return parse_host_and_port(name);
  }
  return parse_host_and_port(address);
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size)
    : size_(size < sizeof(storage_) ? size : static_cast<socklen_t>(sizeof(storage_))) {
  std::memcpy(&storage_, address, size_);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_UNIX) return true;
  if (family() == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage_);
    return (ntohl(address.sin_addr.s_addr) >> 24) == 127;
  }
  if (family() == AF_INET6) {
    const in6_addr& number = reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&number) ||
           (IN6_IS_ADDR_V4MAPPED(&number) && number.s6_addr[12] == 127);
  }
  return false;
}

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port);
  return 0;
}

std::string SocketAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(storage_);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    return format("{}:{}", static_cast<const char*>(text), port());
  }
  if (family() == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage_);
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    return format("[{}]:{}", static_cast<const char*>(text), port());
  }
  const auto& address = reinterpret_cast<const sockaddr_un&>(storage_);
  if (size_ <= offsetof(sockaddr_un, sun_path)) return "unix:";
  std::string path(address.sun_path, size_ - offsetof(sockaddr_un, sun_path));
  if (path[0] == '\0') {
    path[0] = '@';
  } else {
    path.resize(std::strlen(path.c_str()));
  }
  return "unix:" + path;
}

Result<std::vector<SocketAddress>> resolve(const Endpoint& endpoint, bool is_name_allowed) {
  if (endpoint.kind == Endpoint::Kind::kUnix) return std::vector{unix_address(endpoint.host)};
  if (endpoint.host == "localhost") {
    return std::vector{loopback(AF_INET, endpoint.port), loopback(AF_INET6, endpoint.port)};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (is_name_allowed ? 0 : AI_NUMERICHOST);
  addrinfo* found = nullptr;
  const std::string port = format("{}", endpoint.port);
  const int error = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    if (!is_name_allowed) return unimplemented("'{}' is a name to look up", endpoint.host);
    return unavailable("the name '{}' cannot be looked up: {}; check the spelling and the network",
                       endpoint.host, gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    addresses.emplace_back(at->ai_addr, at->ai_addrlen);
  }
  freeaddrinfo(found);
  return addresses;
}

Result<std::vector<std::string>> single_targets(std::string_view target) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, parse_target(target));
  std::vector<std::string> targets;
  const auto add = [&targets](std::string text) {
    if (std::find(targets.begin(), targets.end(), text) == targets.end()) {
      targets.push_back(std::move(text));
    }
  };
  for (const Endpoint& endpoint : endpoints) {
    in6_addr number{};
    const char* const host = endpoint.host.c_str();
    if (endpoint.kind == Endpoint::Kind::kUnix || endpoint.host == "localhost" ||
        inet_pton(AF_INET, host, &number) == 1 || inet_pton(AF_INET6, host, &number) == 1) {
      add(endpoint.to_string());
      continue;
    }
    REVERIE_ASSIGN_OR_RETURN(const std::vector<SocketAddress> found, resolve(endpoint));
    const bool has_v4 = std::any_of(found.begin(), found.end(), [](const SocketAddress& address) {
      return address.family() == AF_INET;
    });
    for (const SocketAddress& address : found) {
      if (!has_v4 || address.family() == AF_INET) add(address.to_string());
    }
  }
  return targets;
}

std::string without_wildcard(const std::string& address, const std::string& remote) {
  const Result<Endpoint> endpoint = parse_endpoint(address);
  if (!endpoint.ok() || endpoint->kind != Endpoint::Kind::kTcp) return address;
  if (endpoint->host != "0.0.0.0" && endpoint->host != "::") return address;
  return Endpoint{Endpoint::Kind::kTcp, remote, endpoint->port}.to_string();
}

bool is_of_one_host(const std::string& address) {
  const Result<Endpoint> endpoint = parse_endpoint(address);
  if (!endpoint.ok()) return false;
  const auto resolved = resolve(*endpoint, /*is_name_allowed=*/false);
  return resolved.ok() && !resolved->empty() && resolved->front().is_loopback();
}

Status check_bind(const SocketAddress& address, const DoorGuard& guard) {
  if (address.is_loopback()) return {};
  if (guard.has_token && !guard.has_tls) {
    return failed_precondition(
        "a token would be sent unencrypted at {}; give the server a certificate "
        "(TLS), or listen at localhost",
        address.to_string());
  }
  if (guard.has_token || guard.has_client_certificates || guard.is_insecure_allowed) return {};
  return failed_precondition(
      "{} can be reached from other machines and nothing restricts access; give a token and a "
      "certificate, or client certificates, or allow it to be insecure, or listen at localhost",
      address.to_string());
}

}  // namespace reverie
