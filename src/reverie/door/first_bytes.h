// FirstBytes: tells the protocol of a connection by its first bytes.
//
//     "PRI * HTTP/2.0..."  gRPC      "P"    not known yet: "PUT " may follow
//     "GET / HTTP/1.1"     a page    "PRX"  none of them
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reverie {

// Immutable.
class FirstBytes {
 public:
  // The first bytes of each protocol; none may be a prefix of another protocol's. A protocol is
  // identified by its index in the outer vector.
  explicit FirstBytes(std::vector<std::vector<std::string>> protocols)
      : protocols_(std::move(protocols)) {}

  struct Found {
    std::optional<std::size_t> protocol;
    bool is_known = false;  // final; without a protocol: it is none of these
  };
  Found find(std::string_view received) const {
    bool may_match = false;
    for (std::size_t p = 0; p < protocols_.size(); ++p) {
      for (const std::string& beginning : protocols_[p]) {
        if (received.starts_with(beginning)) return {p, true};
        may_match |= std::string_view(beginning).starts_with(received);
      }
    }
    return {std::nullopt, !may_match};
  }

 private:
  const std::vector<std::vector<std::string>> protocols_;
};

}  // namespace reverie
