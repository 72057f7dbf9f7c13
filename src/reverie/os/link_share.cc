// Tested in src/reverie/rpc/peer_test.cc.
#include "reverie/os/link_share.h"

#include <utility>

namespace reverie {
namespace {

constexpr std::size_t kBytes = kRingPageBytes + kShareRingBytes;

}  // namespace

Result<std::unique_ptr<LinkShare>> LinkShare::make(const ShareNonce& nonce) {
  REVERIE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create("reverie-link", kBytes));
  auto* const page = reinterpret_cast<RingPage*>(memory.bytes().data());
  page->nonce[0] = nonce[0];
  page->nonce[1] = nonce[1];
  page->reader_sleeps.store(1);  // until it polls
  return std::unique_ptr<LinkShare>(new LinkShare(std::move(memory), nonce));
}

LinkShare::LinkShare(SharedMemory mine, const ShareNonce& nonce)
    : nonce_(nonce), own_memory_(std::move(mine)), out_(own_memory_.bytes().first(kBytes)) {}

Result<ShareNonce> LinkShare::open(int fd) {
  REVERIE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::open(fd));
  if (memory.bytes().size() < kBytes) {
    return invalid_argument("the other side's shared memory has {} bytes; it must have {}",
                            memory.bytes().size(), kBytes);
  }
  memory.close_fd();  // a listener would otherwise keep one descriptor for each peer
  peer_memory_ = std::move(memory);
  const auto* const page = reinterpret_cast<const RingPage*>(peer_memory_->bytes().data());
  in_.emplace(peer_memory_->bytes().first(kBytes));
  return ShareNonce{page->nonce[0], page->nonce[1]};
}

void LinkShare::end() {
  reinterpret_cast<RingPage*>(own_memory_.bytes().data())->has_ended.store(1);
}

bool LinkShare::has_peer_ended() const {
  if (!peer_memory_) return true;
  return reinterpret_cast<const RingPage*>(peer_memory_->bytes().data())->has_ended.load() != 0;
}

}  // namespace reverie
