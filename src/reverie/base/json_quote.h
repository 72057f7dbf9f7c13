// A text as a string of JSON.
#pragma once

#include <string>
#include <string_view>

namespace reverie {

// In quotes, with quotes, backslashes and control characters escaped; other bytes are kept.
std::string json_quote(std::string_view text);

}  // namespace reverie
