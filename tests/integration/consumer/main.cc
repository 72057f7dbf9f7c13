// A user's program against the installed library: it runs code that the library holds, not only
// its headers.
#include <cstdio>

#include "reverie/base/random.h"
#include "reverie/base/status.h"

int main() {
  reverie::Random random(7);
  const reverie::Status status =
      reverie::invalid_argument("draw is {}; it must be below 10", random.below(10) + 10);
  std::puts(status.to_string().c_str());
  return status.code() == reverie::StatusCode::kInvalidArgument ? 0 : 1;
}
