// SampleWriter: writes a drawn batch as the messages of a sample stream.
//
//     response   [ sample 0 ][ sample 1 ][ sample 2: info, chunk, chunk ]      about 2 MiB
//     response   [ sample 2: chunk, end ][ sample 3 ] ...
// Every distinct chunk of a sample is sent with it, whole and once, in the order in which the
// sample refers to them. The bytes of chunks are referenced, not copied. Reverie's clients get the
// batch packed (packed_format.h).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/adapters/reverb/chunk_transcoder.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/native_wire/packed_writer.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/sample_batch.h"

namespace reverie {

// Not thread-safe.
class SampleWriter {
 public:
  // A response is closed once it is larger than this.
  static constexpr std::size_t kResponseBytes = std::size_t{2} << 20;

  explicit SampleWriter(ChunkTranscoder& transcoder) : transcoder_(transcoder) {}

  // Starts a batch that was drawn from `table`. `packed_version`: of packed samples that the client
  // reads; 0: none. `calendar_now_ns`: now, since 1970. Requires is_done().
  void begin(std::string_view table, SampleBatch batch, std::uint64_t packed_version,
             std::int64_t calendar_now_ns);
  // Takes references to the chunks of the unwritten samples, as no pin is held while a client
  // reads. Returns the bytes of those chunks, which may no longer be in any table.
  std::size_t hold();
  // The batch that was written last, so that its memory can be reused. Requires is_done().
  SampleBatch take_spent();
  const std::string& table() const { return table_; }
  bool is_done() const { return at_ == batch_.size(); }
  // The samples whose end is not written yet, in order.
  std::vector<DrawId> draws_left() const;
  // How many samples have no end written yet.
  std::size_t left() const { return batch_.size() - at_; }

  // Returns the rest: the samples whose end is not written yet, in the order in which they were
  // drawn.
  SampleBatch take_rest();

  // The next response; empty if all remaining samples are corrupt. Requires !is_done(). A caller
  // that does not call it again at once must call hold(). An error means that Reverb's clients
  // could not read an item: nothing of it was written.
  Result<std::optional<GrpcPayload>> next();
  // The items skipped since the last call, because their chunks cannot be decoded. Reverie's
  // clients get such items, and detect it themselves.
  std::vector<CorruptItem> take_corrupt() { return std::exchange(corrupt_, {}); }

 private:
  // A chunk of the sample that is being written.
  struct Part {
    const Chunk* chunk = nullptr;
    std::uint32_t begin = 0;  // of the wanted rows
    std::uint32_t end = 0;
    TranscodedChunk transcoded;
  };

  Result<GrpcPayload> next_packed();
  Result<std::optional<GrpcPayload>> next_entries();
  Status begin_sample();
  void list_chunks(const TrajectoryView& trajectory);
  wire::WireItem item_of(std::size_t index) const;

  ChunkTranscoder& transcoder_;
  std::string table_;
  SampleBatch batch_;
  std::int64_t calendar_offset_ns_ = 0;  // from the store's clock to the calendar
  std::size_t at_ = 0;
  std::uint64_t packed_version_ = 0;
  std::vector<CorruptItem> corrupt_;

  // State of the sample at_, once it has begun.
  bool has_begun_ = false;
  std::string info_;
  std::vector<Part> parts_;
  std::size_t part_at_ = 0;
};

}  // namespace reverie
