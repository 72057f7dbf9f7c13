#include "reverie/service/served_checkpoints.h"

namespace reverie {

Status check_user_payload(std::size_t size_bytes) {
  if (size_bytes <= kUserPayloadBytesMax) return {};
  return invalid_argument("the payload has {} bytes; the bound is {}; keep large things in files",
                          size_bytes, kUserPayloadBytesMax);
}

Result<StoreOrigin> served_origin(const ServedCheckpoints& checkpoints) {
  if (!checkpoints.origin) return StoreOrigin();
  StoreOrigin origin = checkpoints.origin();
  if (origin.payload.size() <= kUserPayloadBytesMax) return origin;
  return resource_exhausted(
      "the payload of '{}' has {} bytes; a server sends {} at most: read it where the store is",
      origin.path, origin.payload.size(), kUserPayloadBytesMax);
}

}  // namespace reverie
