// SampleStream: requests for samples, served one after another.
//
//     request { table, num_samples } --> draw a batch --> responses --> draw the next ... --> done
//                                          ^ only once the previous batch is written, and the
//                                            call has room for another
// So a client that does not read delays only its own draws. Draws count towards its connection's
// bound (ConnectionBudget): the places of a batch from the request on, chunks while they are held
// for it. When a client disconnects while it waits, its request is withdrawn; samples that were
// drawn for it and not written are counted, or undone if the table does so
// (TableOptions::undoes_unsent). If the service keeps receipts, it is told which samples arrived:
// those that the client reports with its next request, and all written ones when the stream ends.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "reverie/adapters/reverb/reverb_store.h"
#include "reverie/adapters/reverb/sample_writer.h"
#include "reverie/base/fifo_queue.h"
#include "reverie/base/mutex.h"
#include "reverie/grpc/grpc_server.h"

namespace reverie {

// Events arrive on the call's I/O thread; draws complete on any thread.
class SampleStream final : public GrpcServerEvents,
                           public std::enable_shared_from_this<SampleStream> {
 public:
  SampleStream(std::shared_ptr<ReverbStore> store, std::shared_ptr<GrpcServerCall> call)
      : store_(std::move(store)), call_(std::move(call)), writer_(store_->transcoder) {}

  void on_message(Ref<GrpcMessage> message) override;
  void on_half_close() override;
  void on_room() override { pump(); }
  void on_end(const Status& why) override;

 private:
  struct Request {
    std::string table;
    std::uint64_t left = 0;  // samples to be drawn
    std::int64_t timeout_ms = 0;
    std::size_t breath = 0;            // samples to draw at once
    std::uint64_t packed_version = 0;  // 0: entries as dm-reverb's clients read them
    // A Reverie client's request has one, from its first draw on; with dm-reverb's each draw has.
    std::optional<TimePoint> deadline = {};
  };

  // Does what can be done now, unless another thread does so already: then that thread continues.
  void pump();
  // One step of pump(); false if there is nothing to do.
  bool step();
  void draw();
  void on_drawn(SampleResult result);
  // The batch, for a stream that has ended.
  SampleBatch take_batch(SampleResult result) REVERIE_REQUIRES(mutex_);
  void drop_unsent(SampleBatch batch);
  void count_lost(const SampleBatch& batch);
  // The client has received `count` samples of this stream.
  void receive_up_to(std::uint64_t count);
  void end(const Status& status);
  // Removes the items that the writer skipped as corrupt. Returns the number of their samples,
  // which are drawn again.
  std::size_t take_out_corrupt();
  void hold();
  void release() REVERIE_REQUIRES(mutex_);

  const std::shared_ptr<ReverbStore> store_;
  const std::shared_ptr<GrpcServerCall> call_;

  // Only the thread that pumps uses these.
  SampleWriter writer_;
  bool keeps_receipts_ = false;  // of the table whose samples are written
  std::size_t held_bytes_ = 0;   // of chunks of unwritten samples, while the call has no room

  Mutex mutex_;
  bool is_pumping_ REVERIE_GUARDED_BY(mutex_) = false;
  bool pump_again_ REVERIE_GUARDED_BY(mutex_) = false;
  FifoQueue<Request> requests_ REVERIE_GUARDED_BY(mutex_);
  bool is_half_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_drawing_ REVERIE_GUARDED_BY(mutex_) = false;
  RequestId draw_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t reserved_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // for the present batch
  SampleBatch drawn_ REVERIE_GUARDED_BY(mutex_);
  std::string table_ REVERIE_GUARDED_BY(mutex_);  // of the present batch
  // Samples of one response, if their table keeps receipts.
  struct Sent {
    std::string table;
    std::vector<DrawId> draws;
    std::uint64_t end = 0;  // the stream's sample count after these
  };
  std::deque<Sent> sent_ REVERIE_GUARDED_BY(mutex_);  // not received yet
  std::uint64_t sent_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  Status ending_ REVERIE_GUARDED_BY(mutex_);  // the status of the stream's end, once all is written
};

}  // namespace reverie
