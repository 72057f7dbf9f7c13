// Sockets that several threads read, one at a time, instead of their loop's thread: for a
// SocketSet.
#pragma once

#include "reverie/net/connection.h"

namespace reverie {

// The connection's descriptor, which stays its own; -1 if only the loop's thread may read it.
int socket_of(Connection& connection);

// Whether a read would return something now, the end too. False if only the loop's thread may read.
bool has_input(Connection& connection);

// The loop no longer watches the socket: from here on there are no events, and any thread may read,
// one at a time and never while the connection is being destroyed. REQUIRES: socket_of() >= 0, on
// the loop's thread, and no on_readable() that was asked for.
void leave_loop(Connection& connection);

}  // namespace reverie
