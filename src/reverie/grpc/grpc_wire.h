// The text that gRPC writes into HTTP/2 headers: statuses, timeouts, binary metadata.
//
// Source: the gRPC project's description of gRPC over HTTP/2. Pure functions; input from a peer is
// refused or repaired, never trusted.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"

namespace reverie {

// A status message as a header value: bytes outside ' ' to '~', and '%', become %XX. A result
// longer than `size_bytes_max` is cut, at a whole character.
std::string percent_encode(std::string_view text, std::size_t size_bytes_max);
// The reverse. Malformed escapes stay as they are.
std::string percent_decode(std::string_view text);

// A status from a peer's grpc-status and grpc-message. A code that we do not have (UNKNOWN,
// ABORTED, above 16) becomes INTERNAL, with its name before the text; UNKNOWN "Stream removed",
// which gRPC reports for a lost connection, becomes UNAVAILABLE.
Status status_from_wire(std::string_view number, std::string_view message);

// "250m" and the like: at most 8 digits and a unit of HMSmun. None if it is malformed.
std::optional<Duration> parse_timeout(std::string_view text);
// Rounded up to 8 digits of the finest unit that can hold it; at least "1n".
std::string format_timeout(Duration timeout);

// Base64 as in "-bin" metadata: padding may be missing. None if it is malformed.
std::optional<std::string> base64_decode(std::string_view text);
// Without padding.
std::string base64_encode(std::string_view bytes);

}  // namespace reverie
