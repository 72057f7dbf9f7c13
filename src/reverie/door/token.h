// The secret that a caller sends as "authorization: Bearer <token>".
#pragma once

#include <cstddef>
#include <string_view>

#include "reverie/base/status.h"

namespace reverie {

constexpr std::size_t kTokenBytesMax = 4096;

// Whether a header can carry it: printable ASCII, no space first or last, at most kTokenBytesMax.
// Empty means no token, and is ok. INVALID_ARGUMENT does not repeat the secret.
Status check_token(std::string_view token);

}  // namespace reverie
