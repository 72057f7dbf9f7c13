// Which host, and which network namespace of it, a process is on.
#pragma once

#include <string>

namespace reverie {

// Equal for processes that reach the same abstract Unix sockets: one start of one machine, and one
// network namespace. Empty if it cannot be found out.
std::string host_id();

}  // namespace reverie
