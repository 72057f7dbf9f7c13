// Tested in tests/python/waiting_test.py.
#include "reverie/record/table_info.h"

#include "reverie/base/format.h"

namespace reverie {
namespace {

std::string side_text(const char* kind, const BlockedReport::Side& side) {
  if (side.waiting == 0) {
    if (side.reason.empty()) return format("no {} waits, and the next would go through", kind);
    return format("no {} waits, but the next would: {}", kind, side.reason);
  }
  return format("{} {}(s) wait, the longest for {:.1f} s ({}): {}", side.waiting, kind,
                side.longest_wait_s, side.longest_request, side.reason);
}

}  // namespace

std::string BlockedReport::text(const std::string& table) const {
  return format("table '{}': {}; {}", table, side_text("insert", inserts),
                side_text("sample", samples));
}

}  // namespace reverie
