// StoreConnection: the server's side of one client of a store.
//
//     frames --> requests --> ReplayService --> answers
// A drawn sample is sent in parts, as far as the link has room; unsent parts wait, hold references
// to their chunks, and delay the client's next draws. A client that maps the arena of the server's
// chunks is told where a sample's chunks are, and they are kept for it until it returns them or
// disconnects; for a client that keeps too many, rows are copied. When the client disconnects, its
// waiting requests are withdrawn, and samples that were not sent are counted, or undone if their
// table does so.
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
#include "reverie/base/mutex.h"
#include "reverie/native_wire/packed_writer.h"
#include "reverie/rpc/handshake.h"
#include "reverie/store_messages/store_wire.h"

namespace reverie {

// Events arrive on the loop thread, completions on any thread.
class StoreConnection final : public StoreLinkEvents,
                              public ServedWriter::Owner,
                              public std::enable_shared_from_this<StoreConnection> {
 public:
  // Makes the link with these events and limits.
  using MakeLink =
      std::function<std::shared_ptr<StoreLink>(std::weak_ptr<StoreLinkEvents>, const FrameLimits&)>;
  // Loop thread only. `place` is kept until the connection ends; then `on_end` is called, on that
  // thread.
  static std::shared_ptr<StoreConnection> make(std::shared_ptr<PeerStore> store,
                                               const MakeLink& make_link,
                                               std::shared_ptr<void> place,
                                               std::function<void(const StoreConnection*)> on_end);
  ~StoreConnection() override;
  void start(std::string_view received) { link_->start(received); }

  // StoreLinkEvents
  void on_frames(std::vector<Frame> frames) override;
  void on_lost(const Status& why) override;
  std::shared_ptr<const Message> refusal(const Status& why) override;
  void on_room() override;
  // ServedWriter::Owner
  void send_inserted(const store_wire::Inserted& inserted) override;
  bool ends_writers_alone() const override { return ends_writers_alone_; }
  void end(const Status& why) override;
  void post(std::function<void()> work) override { link_->post(std::move(work)); }

  // Loop thread only. Ends the connection; an error is sent to the client first.
  void end_now(const Status& why);
  // Any thread. Whether the handshake is complete.
  bool is_open() const { return stage_ == Stage::kOpen; }
  // Loop thread only. Whether there has been a request.
  bool had_request() const { return had_request_; }
  // Any thread. Since when no request has been in progress, no item waits for its table, and no
  // sample is read in the server's memory. TimePoint::max() otherwise, and after mark_in_use().
  TimePoint idle_since() const { return {idle_since_ns_.load(std::memory_order_relaxed)}; }
  // Any thread. A connection that was asked to leave is not asked again before it has been in use.
  void mark_in_use() { idle_since_ns_.store(kBusy, std::memory_order_relaxed); }
  // Loop thread only. Ends the connection and notifies its client, unless it is in use. The client
  // may repeat all requests that are not answered: none of them has begun.
  void leave_if_idle(const Status& why);

 private:
  static constexpr std::int64_t kBusy = TimePoint::max().ns;

  enum class Stage { kHello, kResume, kOpen, kOver };
  // A sample request that is not drawn yet.
  struct WaitingDraw {
    std::uint64_t id = 0;
    std::string table;
    store_wire::SampleMessage ask;  // except its table
    TimePoint deadline = TimePoint::max();
  };
  // A batch that is not completely sent.
  struct Drawn {
    std::uint64_t id = 0;
    std::string table;
    bool wants_names = false;
    Status status;
    SampleBatch batch;
    std::size_t next = 0;
  };
  // The chunks that a sample's reader reads in the server's memory.
  struct Lease {
    std::size_t size_bytes = 0;
    // Destroyed in this order: rows before chunks.
    std::vector<std::pair<Ref<const Chunk>, RawRows>> chunks = {};
  };
  struct Sent {
    std::string table;
    std::vector<DrawId> draws;
  };

  explicit StoreConnection(std::shared_ptr<PeerStore> store) : store_(std::move(store)) {}

  // Ends all that it does for the client, which may still read the arena unless it is gone.
  void release(bool is_client_gone);
  Status handle_handshake(const Frame& frame);
  Status take(Frame frame);
  Status take_note(store_wire::StoreCall kind, const Payload& payload);
  Status take_sample(std::uint64_t id, const Payload& payload);
  Status take_mutate(std::uint64_t id, const Payload& payload);
  void cancel(std::uint64_t id);
  void draw(const WaitingDraw& asked);
  void on_drawn(std::uint64_t id, std::string table, bool wants_names, SampleResult result);
  // Sends parts while there is room; true if all are sent.
  bool send_parts(Drawn& drawn);
  // Keeps a batch that waits for room, as the first or the last to send. False if the connection
  // has ended.
  bool keep_unsent(Drawn& drawn, bool is_next);
  void drop_unsent(const std::string& table, SampleBatch batch);
  // Keeps the draws of a batch until the client has received them.
  void keep_sent(const Drawn& drawn);
  // The samples of these requests have arrived.
  void receive(std::span<const std::uint64_t> ids);
  void lend(std::uint64_t id, MappedChunks mapped);
  void take_back(std::span<const std::uint64_t> ids);
  void answer(std::uint64_t id, store_wire::StoreCall kind, Payload payload);
  // Counts a request; false if there are too many.
  bool begin_request();
  // The answer has been sent.
  void end_request();
  void note_idle();
  bool is_in_use();

  const std::shared_ptr<PeerStore> store_;
  std::shared_ptr<StoreLink> link_;
  std::shared_ptr<void> place_;
  std::function<void(const StoreConnection*)> on_end_;

  // Written by the loop thread only.
  std::atomic<Stage> stage_{Stage::kHello};
  Greeting own_greeting_;
  Greeting peer_greeting_;
  bool ends_writers_alone_ = false;
  // Null: ended by the server, until the client opens it again or ends it too.
  std::map<std::uint32_t, std::shared_ptr<ServedWriter>> writers_;
  bool had_request_ = false;

  std::atomic<std::size_t> request_count_{0};     // except those whose answer is being sent
  std::atomic<std::size_t> unanswered_count_{0};  // with those
  std::atomic<std::int64_t> idle_since_ns_{Clock::system().now().ns};
  Mutex mutex_;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, RequestId> draws_ REVERIE_GUARDED_BY(mutex_);  // by our number
  std::deque<WaitingDraw> waiting_draws_ REVERIE_GUARDED_BY(mutex_);  // requests that wait for room
  std::deque<Drawn> unsent_ REVERIE_GUARDED_BY(mutex_);               // batches that wait for room
  // By our number, of tables that keep receipts.
  std::multimap<std::uint64_t, Sent> sent_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Lease> leases_ REVERIE_GUARDED_BY(mutex_);  // by our number
  std::size_t leased_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<SampleBatch> spare_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
