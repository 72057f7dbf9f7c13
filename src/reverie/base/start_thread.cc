#include "reverie/base/start_thread.h"

namespace reverie {

Status no_thread(std::string_view whose, std::string_view why) {
  return resource_exhausted(
      "no thread can be started for {}: {}; end other threads, or raise the limits of processes "
      "(ulimit -u) and of the container",
      whose, why);
}

}  // namespace reverie
