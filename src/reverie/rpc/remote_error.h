// The values of an ERROR frame: code, class, text, traceback.
#pragma once

#include "reverie/rpc/peer_core.h"
#include "reverie/tensor/payload.h"

namespace reverie {

Payload encode_error(const RemoteError& error);
// A malformed payload returns an error that says so.
RemoteError decode_error(const Payload& payload);

}  // namespace reverie
