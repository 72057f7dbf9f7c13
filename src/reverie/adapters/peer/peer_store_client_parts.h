// What a PeerStoreClient is made of besides its requests: one connection, and one sample that
// arrives. For its sources alone.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/native_wire/packed_reader.h"

namespace reverie {

// One connection, from when it stands.
class PeerStoreClient::Session final : public StoreLinkEvents,
                                       public std::enable_shared_from_this<Session> {
 public:
  enum class Stage { kWelcome, kResumed, kOpen };
  explicit Session(std::weak_ptr<PeerStoreClient> owner) : owner_(std::move(owner)) {}

  void on_frames(std::vector<Frame> frames) override {
    if (const auto owner = owner_.lock()) owner->on_frames(shared_from_this(), std::move(frames));
  }
  void on_lost(const Status& why) override {
    if (const auto owner = owner_.lock()) owner->on_lost(shared_from_this(), why);
  }
  void on_room() override {
    if (const auto owner = owner_.lock()) owner->on_room(shared_from_this());
  }

  std::shared_ptr<StoreLink> link;
  // One thread at a time has an event, and sets it.
  std::atomic<Stage> stage{Stage::kWelcome};
  Greeting mine;

 private:
  const std::weak_ptr<PeerStoreClient> owner_;
};

struct PeerStoreClient::Sampling {
  // What the trajectories of a batch lie in, which its pin holds.
  class Held final : public PinOwner {
   public:
    void unpin(std::uint64_t) noexcept override {}
    std::vector<PackedSamples> packed;
    std::vector<std::shared_ptr<const void>> bytes;
  };

  std::string table;
  std::size_t count = 0;
  std::shared_ptr<const wire::ColumnNames> names;
  SampleBatch batch;
  std::shared_ptr<Held> held = std::make_shared<Held>();
  Done<SampleResult> done;
};

}  // namespace reverie
