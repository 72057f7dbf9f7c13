// Text from a pattern and values, in the syntax of fmt.
//
// fmt's headers come in here and nowhere else; its implementation is compiled once, in
// format.cc, so that the library links against no shared libfmt.
#pragma once

#include <string>

#include <fmt/core.h>

namespace reverie {

std::string format_text(fmt::string_view pattern, fmt::format_args args);

// format(pattern, values...). The pattern is checked against the types at compile time. An object,
// not a function: for arguments of the standard library a call would also find std::format, which
// g++ 13 and newer have, and be ambiguous.
struct Format {
  template <typename... Args>
  std::string operator()(fmt::format_string<Args...> pattern, Args&&... args) const {
    return format_text(pattern, fmt::make_format_args(args...));
  }
};
inline constexpr Format format{};  // NOLINT(readability-identifier-naming): it is called

}  // namespace reverie
