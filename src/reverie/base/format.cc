// Tested in status_test.cc.
#define FMT_HEADER_ONLY
#include "reverie/base/format.h"

#include <fmt/format.h>

namespace reverie {

std::string format_text(fmt::string_view pattern, fmt::format_args args) {
  return fmt::vformat(pattern, args);
}

}  // namespace reverie
