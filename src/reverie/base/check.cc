#include "reverie/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace reverie {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "reverie: invariant broken: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace reverie
