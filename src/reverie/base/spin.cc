#include "reverie/base/spin.h"

#include "reverie/base/cores.h"

namespace reverie {
namespace {

// Two threads that look for each other need a core each.
constexpr unsigned kCoresMin = 2;

}  // namespace

bool Spinner::has_cores() {
  return available_cores() >= kCoresMin;
}

}  // namespace reverie
