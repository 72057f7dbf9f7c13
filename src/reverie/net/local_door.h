// The Unix socket beside a TCP address, for clients on the same machine.
//
//     server   listens at 127.0.0.1:7000, and at unix:@reverie/127.0.0.1:7000
//     client   for "localhost:7000" tries the second first: half the time of a round trip
//
// The name lies in the abstract namespace of Unix sockets: it has no file, disappears with its
// listener, and is visible only within the server's network namespace. Any process there may take
// such a name, so each side checks that the other belongs to its own user, and uses TCP if not.
#pragma once

#include <vector>

#include "reverie/net/address.h"

namespace reverie {

// Where a server that listens at `address` has its local door. Requires a TCP address with a port.
SocketAddress local_door(const SocketAddress& address);

// Where the local door of a server at `address` may be: at that address, and at all addresses of
// the machine if it is one of this machine's. Empty for a Unix socket.
std::vector<SocketAddress> local_doors_to(const SocketAddress& address);

// Whether the process at the other end of a Unix socket belongs to this one's user, or to root.
bool is_of_same_user(int socket);

}  // namespace reverie
