#include "reverie/adapters/reverb/chunk_sender.h"

#include <algorithm>
#include <utility>

#include "reverie/native_wire/stored_chunk.h"

namespace reverie {
namespace {

bool is_enveloped(const Chunk& chunk) {
  return !chunk.enveloped(Chunk::Envelope::kWireMessage).empty();
}

}  // namespace

ChunkKey ChunkSender::next_key() {
  ChunkKey key = keys_.next();
  while (key == ~ChunkKey{0}) key = keys_.next();  // never drawn by Reverb's clients
  return key;
}

ChunkSender::Sent& ChunkSender::find(const Chunk& chunk) {
  Sent& sent = chunks_[&chunk];
  if (!sent.chunk) sent.chunk = Ref<const Chunk>::share(&chunk);
  return sent;
}

// Makes segments for the rows of [begin, end) that have none. The last segment takes all published
// rows, for later items.
void ChunkSender::cover(Sent& sent, std::uint32_t begin, std::uint32_t end) {
  const Chunk& chunk = *sent.chunk;
  std::vector<Segment>& segments = sent.segments;
  if (is_enveloped(chunk)) {
    if (segments.empty()) segments.push_back({0, chunk.rows(), chunk.key(), false, false});
  } else if (segments.empty() || segments.back().end <= begin) {  // the writer continues
    segments.push_back({begin, std::max(end, chunk.rows()), next_key(), false, false});
  } else if (segments.back().begin > begin || segments.back().end < end) {
    fill_gaps(chunk, segments, begin, end);
  }
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (segment->end <= begin) break;
    if (segment->begin < end && !segment->is_sent) segment->is_due = has_due_ = true;
  }
}

void ChunkSender::fill_gaps(const Chunk& chunk, std::vector<Segment>& segments, std::uint32_t begin,
                            std::uint32_t end) {
  std::vector<Segment> made;
  std::uint32_t at = begin;
  for (const Segment& segment : segments) {
    if (at >= end) break;
    if (segment.begin > at) {
      made.push_back({at, std::min(segment.begin, end), next_key(), false, false});
    }
    at = std::max(at, segment.end);
  }
  if (at < end) made.push_back({at, std::max(end, chunk.rows()), next_key(), false, false});
  for (Segment& segment : made) {
    const auto place = std::ranges::lower_bound(segments, segment.begin, {}, &Segment::begin);
    segments.insert(place, segment);
  }
}

void ChunkSender::add(const Trajectory& trajectory, wire::WireItem& item) {
  item.slices.clear();
  item.columns.clear();
  const auto pieces = trajectory.pieces();
  for (const Piece& piece : pieces) {
    cover(find(*piece.chunk), piece.offset, piece.offset + piece.length);
  }
  for (const LayoutColumn& column : trajectory.layout().columns()) {
    wire::WireItem::Column& written = item.columns.emplace_back();
    written.slice_begin = static_cast<std::uint32_t>(item.slices.size());
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      add_slices(pieces[p], column.chunk_column, item);
    }
    written.slice_end = static_cast<std::uint32_t>(item.slices.size());
    written.squeeze = column.squeezed;
  }
}

void ChunkSender::add_slices(const Piece& piece, std::int32_t index, wire::WireItem& item) {
  const std::vector<Segment>& segments = chunks_.at(piece.chunk).segments;
  const std::uint32_t end = piece.offset + piece.length;
  // The first segment that reaches the piece; usually it is the last one.
  auto segment = segments.end();
  while (segment != segments.begin() && std::prev(segment)->end > piece.offset) --segment;
  for (; segment != segments.end(); ++segment) {
    const std::uint32_t from = std::max(segment->begin, piece.offset);
    const std::uint32_t to = std::min(segment->end, end);
    if (from >= to) break;
    item.slices.push_back({segment->key, static_cast<std::int32_t>(from - segment->begin),
                           static_cast<std::int32_t>(to - from), index});
  }
}

Status ChunkSender::put(PayloadBuilder& message, const Chunk& chunk, const Segment& segment,
                        bool takes_stored) {
  if (is_enveloped(chunk)) {
    const wire::Bytes bytes = chunk.enveloped(Chunk::Envelope::kWireMessage);
    wire::put_head(message.own(), wire::kChunksField, bytes.size());
    message.put(bytes, chunk);
    return {};
  }
  // Other servers do not know the field, and then refuse the items over the chunk.
  const bool is_stored = takes_stored || has_external_columns(chunk);
  if (is_stored && has_stored_form(chunk)) {
    return put_stored_chunk(message, chunk, segment.begin, segment.end, segment.key);
  }
  REVERIE_ASSIGN_OR_RETURN(wire::WrittenChunk written,
                           wire::encode_chunk(chunk, segment.begin, segment.end, segment.key));
  const auto owner = std::make_shared<const wire::WrittenChunk>(std::move(written));
  wire::put_head(message.own(), wire::kChunksField, owner->bytes().size());
  message.put(owner->bytes());
  message.keep(owner);
  return {};
}

Status ChunkSender::put_due(PayloadBuilder& message, bool takes_stored) {
  if (!std::exchange(has_due_, false)) return {};
  std::vector<std::pair<const Chunk*, Segment*>> due;
  for (auto& [address, sent] : chunks_) {
    for (Segment& segment : sent.segments) {
      if (segment.is_due) due.emplace_back(sent.chunk.get(), &segment);
    }
  }
  // Sorted by key: addresses differ from run to run, and a seed must give the same run.
  std::ranges::sort(due, {}, [](const auto& one) { return one.second->key; });
  for (const auto& [chunk, segment] : due) {
    segment->is_due = false;
    segment->is_sent = true;
    REVERIE_RETURN_IF_ERROR(put(message, *chunk, *segment, takes_stored));
  }
  return {};
}

std::vector<std::uint64_t> ChunkSender::keep_keys() {
  std::vector<std::uint64_t> keys;
  for (auto entry = chunks_.begin(); entry != chunks_.end();) {
    const Sent& sent = entry->second;
    if (sent.chunk->ref_count() == 1) {  // ours
      entry = chunks_.erase(entry);
      continue;
    }
    for (const Segment& segment : sent.segments) {
      if (segment.is_sent) keys.push_back(segment.key);
    }
    ++entry;
  }
  // Chunks that were received twice have the same key.
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

void ChunkSender::restart() {
  has_due_ = false;
  for (auto& [address, sent] : chunks_) {
    for (Segment& segment : sent.segments) segment.is_sent = segment.is_due = false;
  }
}

}  // namespace reverie
