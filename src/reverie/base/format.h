// Text from a pattern and values, in the syntax of fmt.
//
// fmt's headers come in here and nowhere else; its implementation is compiled once, in
// format.cc, so that the library links against no shared libfmt.
#pragma once

#include <string>

#include <fmt/core.h>

namespace reverie {

std::string format_text(fmt::string_view pattern, fmt::format_args args);

// The pattern is checked against the types at compile time.
template <typename... Args>
std::string format(fmt::format_string<Args...> pattern, Args&&... args) {
  return format_text(pattern, fmt::make_format_args(args...));
}

}  // namespace reverie
