// The library without UCX (REVERIE_UCX is off).
//
// Tested in src/reverie/rpc/peer_test.cc.
#include "reverie/base/check.h"
#include "reverie/net/ucx_connection.h"

namespace reverie {

Status check_ucx() {
  return unimplemented(
      "this library was built without UCX; configure it with -DREVERIE_UCX=ON (needs libucx-dev), "
      "or leave UCX out of the transports");
}

std::unique_ptr<Connection> make_ucx_connection(std::unique_ptr<Connection> inner, bool,
                                                const UcxOptions&) {
  REVERIE_CHECK(check_ucx().ok());
  return inner;
}

}  // namespace reverie
