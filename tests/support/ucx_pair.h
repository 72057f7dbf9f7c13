// Connections over UCX, between two loops of this process.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "reverie/net/ucx_connection.h"

namespace reverie::test {

inline std::unique_ptr<Connection> over_ucx(std::unique_ptr<Connection> socket, bool is_first,
                                            const std::string& transports) {
  IoLoop& loop = socket->loop();
  std::unique_ptr<Connection> made;
  loop.run_and_wait([&] { made = make_ucx_connection(std::move(socket), is_first, {transports}); });
  return made;
}

inline ConnectionPair make_ucx_pair(IoThreads& threads, const std::string& transports) {
  ConnectionPair pair = make_connection_pair(threads.loop(0), threads.loop(1)).value();
  pair.first = over_ucx(std::move(pair.first), /*is_first=*/true, transports);
  pair.second = over_ucx(std::move(pair.second), /*is_first=*/false, transports);
  return pair;
}

}  // namespace reverie::test
