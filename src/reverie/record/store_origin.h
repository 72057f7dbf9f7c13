// StoreOrigin: the checkpoint that a store was loaded from.
#pragma once

#include <string>

namespace reverie {

// An empty path: the store began empty.
struct StoreOrigin {
  std::string path;     // of the checkpoint, on the disk of the store's process
  std::string payload;  // any bytes that were stored with it

  friend bool operator==(const StoreOrigin&, const StoreOrigin&) = default;
};

}  // namespace reverie
