#include "reverie/door/token.h"

#include <algorithm>

namespace reverie {
namespace {

constexpr std::string_view kRule = "a token is printable ASCII, with spaces only inside it";

}  // namespace

Status check_token(std::string_view token) {
  if (token.empty()) return {};
  if (token.size() > kTokenBytesMax) {
    return invalid_argument("the token has {} bytes; {}, and at most {} bytes long", token.size(),
                            kRule, kTokenBytesMax);
  }
  const auto odd = std::ranges::find_if(token, [](char c) { return c < ' ' || c > '~'; });
  if (odd != token.end()) {
    return invalid_argument("byte {} of the token is 0x{:02x}; {}", odd - token.begin(),
                            static_cast<unsigned>(static_cast<unsigned char>(*odd)), kRule);
  }
  if (token.front() == ' ' || token.back() == ' ') {
    return invalid_argument("the token begins or ends with a space; {}", kRule);
  }
  return {};
}

}  // namespace reverie
