// Parts of PeerStoreClient besides its requests: one connection, and one arriving sample. Included
// only by its sources.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/adapters/peer/peer_store_client.h"
#include "reverie/base/ref.h"
#include "reverie/native_wire/packed_reader.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// The samples of one connection that are in the server's memory: counted while they are used, and
// returned to the server afterwards. Thread-safe.
class PeerStoreClient::Returns {
 public:
  explicit Returns(std::weak_ptr<PeerStoreClient> owner) : owner_(std::move(owner)) {}

  // False once keep() was called: the sample must not be read.
  bool begin();
  // The sample of that request, for which begin() was called, is no longer used.
  void end(std::uint64_t id);
  // Takes the ids to report to the server.
  std::vector<std::uint64_t> take() { return take_due(TimePoint::max()); }
  // The same, if they have waited long enough for a request that carries them: until due().
  std::vector<std::uint64_t> take_due(TimePoint now);
  TimePoint due();
  // The client ends the connection: keeps it until the last sample is no longer used. False: none
  // is in use.
  bool keep(const std::shared_ptr<StoreLink>& link);

 private:
  static constexpr std::size_t kCountMax = 64;  // that wait
  static constexpr Duration kRest = std::chrono::milliseconds(20);

  const std::weak_ptr<PeerStoreClient> owner_;
  const ForkGuard fork_guard_;
  Mutex mutex_;
  std::size_t held_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  std::vector<std::uint64_t> ids_ REVERIE_GUARDED_BY(mutex_);
  TimePoint due_ REVERIE_GUARDED_BY(mutex_) = TimePoint::max();
  std::shared_ptr<StoreLink> kept_ REVERIE_GUARDED_BY(mutex_);
};

// One open connection.
class PeerStoreClient::Session final : public StoreLinkEvents,
                                       public std::enable_shared_from_this<Session> {
 public:
  enum class Stage { kWelcome, kResumed, kOpen };
  explicit Session(const std::weak_ptr<PeerStoreClient>& owner)
      : returns(std::make_shared<Returns>(owner)), owner_(owner) {}

  void on_frames(std::vector<Frame> frames) override {
    if (const auto owner = owner_.lock()) owner->on_frames(shared_from_this(), frames);
  }
  void on_lost(const Status& why) override {
    if (const auto owner = owner_.lock()) owner->on_lost(shared_from_this(), why);
  }
  void on_room() override {
    if (const auto owner = owner_.lock()) owner->on_room(shared_from_this());
  }

  std::shared_ptr<StoreLink> link;
  // Set by the thread that handles an event; there is one at a time.
  std::atomic<Stage> stage{Stage::kWelcome};
  std::atomic<bool> has_answered{false};
  TimePoint opened_at = {};
  FrameLimits limits;  // of the server
  Greeting mine;
  const std::shared_ptr<Returns> returns;

 private:
  const std::weak_ptr<PeerStoreClient> owner_;
};

struct PeerStoreClient::Sampling {
  // Where the rows of a sample lie. Each chunk has a share in it, since it may outlive the batch.
  class Rows final : public RefCounted<Rows>, public BufferOwner {
   public:
    Rows() = default;
    ~Rows() override {
      if (returns) returns->end(id);
    }
    Buffer view(std::span<const std::byte> part) {
      add_ref();
      return {const_cast<std::byte*>(part.data()), part.size(), this};
    }
    void take_back(std::byte*, std::size_t) noexcept override { release(); }

    // Set for samples in the server's memory.
    std::uint64_t id = 0;
    std::shared_ptr<Returns> returns;
    std::shared_ptr<const ArenaView> map;
    std::vector<std::shared_ptr<const void>> bytes;
  };
  // What a batch's pin holds.
  class Held final : public PinOwner {
   public:
    void unpin(std::uint64_t) noexcept override {}

    const Ref<Rows> rows = Ref<Rows>::adopt(new Rows);
    std::vector<PackedSamples> packed;
  };

  std::string table;
  std::size_t count = 0;
  TimePoint deadline = TimePoint::max();
  store_wire::SampleMessage ask;  // its table is the one above
  std::shared_ptr<const wire::ColumnNames> names;
  SampleBatch batch;
  std::shared_ptr<Held> held = std::make_shared<Held>();
  Done<SampleResult> done;
};

}  // namespace reverie
