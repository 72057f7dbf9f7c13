// TLS over any connection.
#pragma once

#include <memory>
#include <string>

#include "reverie/net/connection.h"
#include "reverie/net/tls.h"

namespace reverie {

// Speaks TLS through `inner`, as the server or the client that `context` is for. A client demands a
// certificate for `server_name` (a name or an IP address).
std::unique_ptr<Connection> make_tls_connection(std::unique_ptr<Connection> inner,
                                                std::shared_ptr<const TlsContext> context,
                                                const std::string& server_name);

}  // namespace reverie
