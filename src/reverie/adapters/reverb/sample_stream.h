// SampleStream: requests for samples, served one after another.
//
//     request { table, num_samples } --> draw a batch --> responses --> draw the next ... --> done
//                                          ^ only when what was drawn before is written, and the
//                                            call has room to draw
//
// So a client that does not read holds back its own draws; and what is drawn counts for its
// connection (ConnectionBudget): places of a batch from when they are asked for, chunks from when
// they are held for it. One that goes away while it waits leaves
// nothing behind; samples that were drawn for it and not written are counted, or undone where their
// table has that (TableOptions::undoes_unsent).
//
// Where the service keeps receipts, it is told which samples arrived: those that the client says it
// has, with its next request, and all that were written once the stream is over.
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

// Events come on the call's I/O thread, draws complete on any.
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
    std::size_t breath = 0;  // samples to draw at once
    bool is_packed = false;
  };

  // Does what can be done now, unless another thread is at it: then that one does.
  void pump();
  // One step of it; false when there is nothing to do.
  bool step();
  void draw();
  void on_drawn(SampleResult result);
  // The batch, where the stream is over.
  SampleBatch take_batch(SampleResult result) REVERIE_REQUIRES(mutex_);
  void drop_unsent(SampleBatch batch);
  void count_lost(const SampleBatch& batch);
  // The client has so many samples of this stream.
  void receive_up_to(std::uint64_t count);
  void end(const Status& status);
  // Removes the items that the writer left out as corrupt. Returns how many samples that is; they
  // are drawn again.
  std::size_t take_out_corrupt();
  void hold();
  void let_go() REVERIE_REQUIRES(mutex_);

  const std::shared_ptr<ReverbStore> store_;
  const std::shared_ptr<GrpcServerCall> call_;

  // Only the thread that pumps uses these.
  SampleWriter writer_;
  bool keeps_receipts_ = false;  // the table of what is written
  std::size_t held_bytes_ = 0;   // chunks of what is left, while the call has no room

  Mutex mutex_;
  bool is_pumping_ REVERIE_GUARDED_BY(mutex_) = false;
  bool pump_again_ REVERIE_GUARDED_BY(mutex_) = false;
  FifoQueue<Request> requests_ REVERIE_GUARDED_BY(mutex_);
  bool is_half_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_drawing_ REVERIE_GUARDED_BY(mutex_) = false;
  RequestId draw_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t reserved_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;  // of the batch that is drawn, or was
  SampleBatch drawn_ REVERIE_GUARDED_BY(mutex_);
  std::string table_ REVERIE_GUARDED_BY(mutex_);  // of what is drawn, or was
  // Samples of one response, if their table keeps receipts.
  struct Sent {
    std::string table;
    std::vector<DrawId> draws;
    std::uint64_t end = 0;  // how many samples the stream had with these
  };
  std::deque<Sent> sent_ REVERIE_GUARDED_BY(mutex_);  // not received yet
  std::uint64_t sent_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  Status ending_ REVERIE_GUARDED_BY(mutex_);  // what the stream ends with once all is written
};

}  // namespace reverie
