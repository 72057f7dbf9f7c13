// ChunkSender: which rows of a writer's chunks a server has, and under which keys.
//
//     chunk 7    rows 0..2   rows 3..3   rows 4..9        each row is sent once
//                key 101     key 102     key 103
//
// A writer's chunk grows while items over it are inserted already; on the wire a chunk never does.
// So what was published since the last item travels as a chunk of its own, and an item names as
// many of them as it spans. Servers of ours get them as both keep them (stored_chunk.h), others in
// Reverb's form; a chunk that came over the wire in that form goes on as it is.
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

  // The slices and columns of an item over those rows, as the wire knows them, into `item`. What of
  // the rows was not sent yet is due.
  void add(const Trajectory& trajectory, wire::WireItem& item);

  // Appends the chunks that are due as fields of an InsertStreamRequest, for a server that takes
  // stored ones or not; they count as sent from now on. A chunk that cannot be written is an error,
  // once.
  Status put_due(PayloadBuilder& message, bool takes_stored);
  // The keys of what was sent of chunks that are still held elsewhere: further items may be made of
  // them. Forgets the rest.
  std::vector<std::uint64_t> keep_keys();

  // A new stream: nothing was sent, and items that wait are to be added again.
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
