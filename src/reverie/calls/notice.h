// Notice: a function of a peer that only notes that it was called.
//
//     REVERIE_ASSIGN_OR_RETURN(const auto end, Notice::open(peer, "over"));
//     while (!end->is_given()) work();
//
// It is answered at once, whatever the peer's program does; so its caller may wait for that.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "reverie/base/status.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Thread-safe.
class Notice {
 public:
  // ALREADY_EXISTS if the peer has a function of that name.
  static Result<std::shared_ptr<Notice>> open(std::shared_ptr<Peer> peer, std::string function);
  // Undefines the function.
  ~Notice();
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  // Whether the function was called.
  bool is_given() const { return *is_given_; }

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;
  Notice(std::shared_ptr<Peer> peer, std::string function, Flag is_given)
      : peer_(std::move(peer)), function_(std::move(function)), is_given_(std::move(is_given)) {}
  const std::shared_ptr<Peer> peer_;
  const std::string function_;
  const Flag is_given_;  // shared with the function, which may run once more after undefine()
};

}  // namespace reverie
