// ServedCheckpoints: what the doors of a server offer its clients of the store's checkpoints.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "reverie/base/status.h"
#include "reverie/record/store_origin.h"

namespace reverie {

// The payload that a user may store with a checkpoint.
inline constexpr std::size_t kUserPayloadBytesMax = std::size_t{16} << 20;

struct ServedCheckpoints {
  // Writes a checkpoint that holds `payload` and reports its path, at any time, from any thread.
  // Null: the server has no checkpointer.
  std::function<void(std::string_view payload, std::function<void(Result<std::string>)> done)>
      write = {};
  // From any thread. Null: as if the store began empty.
  std::function<StoreOrigin()> origin = {};
};

// INVALID_ARGUMENT for a payload of more bytes than a user may store. A store checks it; clients of
// a server do so too, before they send it.
Status check_user_payload(std::size_t size_bytes);

// RESOURCE_EXHAUSTED for a larger payload, such as a training stores.
Result<StoreOrigin> served_origin(const ServedCheckpoints& checkpoints);

}  // namespace reverie
