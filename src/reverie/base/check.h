// Invariants of our own code. On in release builds too: a broken invariant stops the process
// with file and line, before it can damage anything. What a caller or the world can get wrong
// is a Status, never a check.
#pragma once

namespace reverie {

[[noreturn, gnu::cold]] void check_failed(const char* condition, const char* file, int line);

}  // namespace reverie

#define REVERIE_CHECK(condition)                \
  (__builtin_expect(!!(condition), 1) ? (void)0 \
                                      : ::reverie::check_failed(#condition, __FILE__, __LINE__))
