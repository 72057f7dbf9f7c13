// Lets callbacks use a peer, and its owner wait until no callback does.
//
//     callback   begin() -> peer, or null once closed   ...   end()
//     owner      undefine(), close()                    waits for the ends
//
// A peer must not end on its own I/O thread, so callbacks there hold no share of it.
#pragma once

#include <string>

#include "reverie/base/mutex.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Thread-safe.
class PeerTurns {
 public:
  explicit PeerTurns(Peer* peer) : peer_(peer) {}

  Peer* begin() {
    MutexLock lock(mutex_);
    if (peer_ != nullptr) ++running_;
    return peer_;
  }
  void end() {
    MutexLock lock(mutex_);
    if (--running_ == 0) changed_.notify_all();
  }
  // Undefines a function that the owner has defined. Does nothing after close(): a successor of the
  // owner may have defined it again.
  void undefine(const std::string& function) {
    Peer* const peer = begin();
    if (peer == nullptr) return;
    (void)peer->undefine(function);
    end();
  }
  // Must not be called within a turn.
  void close() {
    MutexLock lock(mutex_);
    peer_ = nullptr;
    while (running_ > 0) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  Peer* peer_ REVERIE_GUARDED_BY(mutex_);
  int running_ REVERIE_GUARDED_BY(mutex_) = 0;
};

// One turn, which lasts for a scope.
class PeerTurn {
 public:
  explicit PeerTurn(PeerTurns& turns) : turns_(turns), peer_(turns.begin()) {}
  ~PeerTurn() {
    if (peer_ != nullptr) turns_.end();
  }
  PeerTurn(const PeerTurn&) = delete;
  PeerTurn& operator=(const PeerTurn&) = delete;

  explicit operator bool() const { return peer_ != nullptr; }
  Peer* operator->() const { return peer_; }

 private:
  PeerTurns& turns_;
  Peer* const peer_;
};

}  // namespace reverie
