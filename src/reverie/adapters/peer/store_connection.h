// StoreConnection: one client of a store, on the server's side.
//
//     frames --> requests --> ReplayService --> answers
//
// A sample that was drawn is sent in parts, as far as the link has room; what is not sent waits
// with a share in its chunks, and holds back the client's next draws. A client that maps the
// arena of the server's chunks is told where those of a sample lie, and they are kept for it until
// it returns them or goes away; to one that keeps too much, rows are copied. When the client goes
// away what waits for it is taken back, and samples that were not sent are counted, or undone where
// their table has that.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reverie/adapters/peer/peer_store.h"
#include "reverie/adapters/peer/served_writer.h"
#include "reverie/adapters/peer/store_link.h"
#include "reverie/adapters/peer/store_wire.h"
#include "reverie/base/mutex.h"
#include "reverie/native_wire/packed_writer.h"
#include "reverie/rpc/handshake.h"

namespace reverie {

// Events come on the loop's thread, completions on any.
class StoreConnection final : public StoreLinkEvents,
                              public ServedWriter::Owner,
                              public std::enable_shared_from_this<StoreConnection> {
 public:
  // On the loop's thread. `place` is kept as long as the connection stands; `on_end` is called when
  // it has ended, on that thread.
  static std::shared_ptr<StoreConnection> make(std::shared_ptr<PeerStore> store,
                                               std::unique_ptr<Connection> connection,
                                               std::shared_ptr<void> place,
                                               std::function<void(const StoreConnection*)> on_end);
  ~StoreConnection() override;
  void start(std::string_view received) { link_->start(received); }

  // StoreLinkEvents
  void on_frames(std::vector<Frame> frames) override;
  void on_lost(const Status& why) override;
  void on_room() override;
  // ServedWriter::Owner
  void send_inserted(const store_wire::Inserted& inserted) override;
  void end(const Status& why) override;
  IoLoop& loop() override { return loop_; }

  // Ends it, on the loop's thread: the client is told why where that is not ok.
  void end_now(const Status& why);
  // Since when it stands without a handshake; none once it has one.
  bool is_open() const { return stage_ == Stage::kOpen; }
  bool has_requests();

 private:
  enum class Stage { kHello, kResume, kOpen, kOver };
  // A sample request that is not drawn yet.
  struct Asked {
    std::uint64_t id = 0;
    std::string table;
    store_wire::SampleAsk ask;  // but its table
    TimePoint deadline = TimePoint::max();
  };
  // A batch of which a part is to be sent.
  struct Drawn {
    std::uint64_t id = 0;
    std::string table;
    bool wants_names = false;
    Status status;
    SampleBatch batch;
    std::size_t next = 0;
  };
  // What a sample's reader reads in the server's memory.
  struct Lease {
    std::size_t size_bytes = 0;
    // In this order: the rows go first.
    std::vector<std::pair<Ref<const Chunk>, RawRows>> chunks = {};
  };
  struct Sent {
    std::uint64_t id = 0;
    std::string table;
    std::vector<DrawId> draws;
  };

  StoreConnection(std::shared_ptr<PeerStore> store, IoLoop& loop)
      : store_(std::move(store)), loop_(loop) {}

  Status shake_hands(const Frame& frame);
  Status take(Frame frame);
  Status take_note(store_wire::StoreCall kind, const Payload& payload);
  Status take_sample(std::uint64_t id, const Payload& payload);
  Status take_mutate(std::uint64_t id, const Payload& payload);
  void cancel(std::uint64_t id);
  void draw(const Asked& asked);
  void on_drawn(std::uint64_t id, std::string table, bool wants_names, SampleResult result);
  // Sends parts while there is room; true when all are sent.
  bool send_parts(Drawn& drawn);
  // Keeps what waits for room, as the next or the last to go. False where the connection is over.
  bool keep_unsent(Drawn& drawn, bool is_next);
  void drop_unsent(const std::string& table, SampleBatch batch);
  void receive_up_to(std::uint64_t id);
  void lend(std::uint64_t id, MappedChunks mapped);
  void take_back(std::span<const std::uint64_t> ids);
  void answer(std::uint64_t id, store_wire::StoreCall kind, Payload payload);
  // Counts a request; false when there are too many.
  bool begin_request();

  const std::shared_ptr<PeerStore> store_;
  IoLoop& loop_;
  std::shared_ptr<StoreLink> link_;
  std::shared_ptr<void> place_;
  std::function<void(const StoreConnection*)> on_end_;

  // Loop thread only, except a look at the stage.
  std::atomic<Stage> stage_{Stage::kHello};
  Greeting mine_;
  Greeting theirs_;
  std::map<std::uint32_t, std::shared_ptr<ServedWriter>> writers_;

  std::atomic<std::size_t> request_count_{0};
  Mutex mutex_;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, RequestId> draws_ REVERIE_GUARDED_BY(mutex_);  // that wait, by our number
  std::deque<Asked> asked_ REVERIE_GUARDED_BY(mutex_);                   // that wait for room
  std::deque<Drawn> unsent_ REVERIE_GUARDED_BY(mutex_);                  // likewise
  std::deque<Sent> sent_ REVERIE_GUARDED_BY(mutex_);  // of tables that keep receipts
  std::map<std::uint64_t, Lease> leases_ REVERIE_GUARDED_BY(mutex_);  // by our number
  std::size_t leased_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<SampleBatch> spare_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
