// SampleWriter: a drawn batch as the messages of a sample stream.
//
//     response   [ sample 0 ][ sample 1 ][ sample 2: info, chunk, chunk ]      about 2 MiB
//     response   [ sample 2: chunk, end ][ sample 3 ] ...
//
// Every distinct chunk of a sample goes with it, whole and once, in the order in which the sample
// refers to them. The bytes of chunks are referred to, not copied. A client of ours gets the batch
// packed (packed_format.h).
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
  // A response that has more is closed.
  static constexpr std::size_t kResponseBytes = std::size_t{2} << 20;

  explicit SampleWriter(ChunkTranscoder& transcoder) : transcoder_(transcoder) {}

  // Takes a batch up, which was drawn from `table`. `calendar_now_ns`: now, since 1970. Requires
  // is_done().
  void begin(std::string_view table, SampleBatch batch, bool is_packed,
             std::int64_t calendar_now_ns);
  // Takes a share in the chunks of what is left, as no pin is held while a client reads. Returns
  // the bytes of those chunks: they may be in no table any more.
  std::size_t hold();
  // The batch that was written last, for its memory. Requires is_done().
  SampleBatch take_spent();
  const std::string& table() const { return table_; }
  bool is_done() const { return at_ == batch_.size(); }
  // The samples of which the end is not written, the first of them first.
  std::vector<DrawId> draws_left() const;
  // Samples of which the end is not written.
  std::size_t left() const { return batch_.size() - at_; }

  // Hands the rest over: the samples of which the end is not written, in the order in which they
  // were drawn.
  SampleBatch take_rest();

  // The next response; none where all that was left is corrupt. Requires !is_done(). A caller that
  // does not call it again at once holds what is left. An error is one of an item that Reverb's
  // clients could not read: nothing of it was written.
  Result<std::optional<GrpcPayload>> next();
  // The items since the last call that were left out, as their chunks cannot be decoded. Clients of
  // ours get such an item, and find out themselves.
  std::vector<CorruptItem> take_corrupt() { return std::exchange(corrupt_, {}); }

 private:
  // A chunk of the sample that is being written.
  struct Part {
    const Chunk* chunk = nullptr;
    std::uint32_t begin = 0;  // of the rows that are wanted
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
  bool is_packed_ = false;
  std::vector<CorruptItem> corrupt_;

  // The sample at_, once it was begun.
  bool has_begun_ = false;
  std::string info_;
  std::vector<Part> parts_;
  std::size_t part_at_ = 0;
};

}  // namespace reverie
