// ChunkSender: records which rows of a writer's chunks a server has, and under which keys.
//
//     chunk 7    rows 0..2   rows 3..3   rows 4..9        each row is sent once
//                key 101     key 102     key 103
// A writer's chunk grows while items over it are being inserted; on the wire chunks never grow. So
// the rows published since the last item are sent as a separate chunk, and an item names all the
// chunks that it spans. Reverie's servers get chunks in the stored form (stored_chunk.h), others in
// Reverb's; a chunk that was received in Reverb's form is forwarded unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/native_wire/payload_builder.h"
#include "reverie/record/item.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/item.h"

namespace reverie {

// For one stream. Not thread-safe.
class ChunkSender {
 public:
  explicit ChunkSender(std::uint64_t seed) : keys_(seed) {}

  // Writes the slices and columns of an item over those rows into `item`. Rows that were not sent
  // yet become due.
  void add(const Trajectory& trajectory, wire::WireItem& item);

  // Appends the chunks that are due as fields of an InsertStreamRequest, in the stored form if
  // `takes_stored`; they count as sent from now on. A chunk that cannot be written is reported
  // once.
  Status put_due(PayloadBuilder& message, bool takes_stored);
  // The keys of sent chunks that are still referenced elsewhere, since further items may use them.
  // Forgets the others.
  std::vector<std::uint64_t> keep_keys();

  // A new stream: nothing was sent, and waiting items must be added again.
  void restart();

 private:
  struct Segment {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    ChunkKey key = 0;
    bool is_sent = false;
    bool is_due = false;
  };
  struct Sent {
    Ref<const Chunk> chunk;
    std::vector<Segment> segments;  // in order of their rows, disjoint
  };

  Sent& find(const Chunk& chunk);
  void cover(Sent& sent, std::uint32_t begin, std::uint32_t end);
  void fill_gaps(const Chunk& chunk, std::vector<Segment>& segments, std::uint32_t begin,
                 std::uint32_t end);
  void add_slices(const Piece& piece, std::int32_t index, wire::WireItem& item);
  ChunkKey next_key();
  static Status put(PayloadBuilder& message, const Chunk& chunk, const Segment& segment,
                    bool takes_stored);

  Random keys_;
  std::unordered_map<const Chunk*, Sent> chunks_;
  bool has_due_ = false;
};

}  // namespace reverie
