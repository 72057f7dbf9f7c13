// Tested in tests/integration/reverb_streams_test.cc.
#include "reverie/adapters/reverb/chunk_transcoder.h"

#include <utility>

namespace reverie {

Result<TranscodedChunk> ChunkTranscoder::transcode(const Chunk& chunk, std::uint32_t begin,
                                                   std::uint32_t end) {
  const wire::Bytes as_sent = chunk.enveloped(Chunk::Envelope::kWireMessage);
  if (!as_sent.empty()) return TranscodedChunk{as_sent, 0, nullptr};
  REVERIE_CHECK(begin < end);
  REVERIE_RETURN_IF_ERROR(chunk.check_published(end));
  const std::uint32_t rows = chunk.rows();
  const bool is_small = std::size_t{rows} * chunk.schema().step_bytes() <= kWholeBytesMax;
  const bool is_mostly_used = 2 * std::uint64_t{end - begin} >= rows;
  if (is_small || is_mostly_used) {
    begin = 0;
    end = rows;
  }
  const Key key(chunk.key(), chunk.episode(), begin, end);
  std::shared_ptr<const std::string> bytes = find(key);
  if (!bytes) {
    REVERIE_ASSIGN_OR_RETURN(std::string written,
                             wire::write_chunk(chunk, begin, end, chunk.key()));
    bytes = std::make_shared<const std::string>(std::move(written));
    keep(key, bytes);
  }
  return TranscodedChunk{wire::bytes_of(*bytes), begin, bytes};
}

std::shared_ptr<const std::string> ChunkTranscoder::find(const Key& key) {
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->bytes;
}

void ChunkTranscoder::keep(const Key& key, std::shared_ptr<const std::string> bytes) {
  if (bytes->size() > cache_bytes_max_ / 4) return;
  std::list<Entry> dropped;
  MutexLock lock(mutex_);
  if (by_key_.contains(key)) return;  // another thread was faster
  cached_bytes_ += bytes->size();
  entries_.push_front({key, std::move(bytes)});
  by_key_[key] = entries_.begin();
  while (cached_bytes_ > cache_bytes_max_) {
    const auto last = std::prev(entries_.end());
    cached_bytes_ -= last->bytes->size();
    by_key_.erase(last->key);
    dropped.splice(dropped.end(), entries_, last);
  }
}

std::size_t ChunkTranscoder::cached_bytes() const {
  MutexLock lock(mutex_);
  return cached_bytes_;
}

}  // namespace reverie
