// Tested in tests/integration/reverb_streams_test.cc.
#include "reverie/adapters/reverb/sample_writer.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "reverie/native_wire/payload_builder.h"

namespace reverie {

void SampleWriter::begin(std::string_view table, SampleBatch batch, std::uint64_t packed_version,
                         std::int64_t calendar_now_ns) {
  REVERIE_CHECK(is_done());
  table_ = table;
  batch_ = std::move(batch);
  packed_version_ = packed_version;
  calendar_offset_ns_ = calendar_now_ns - batch_.drawn_at_ns();
  at_ = 0;
  has_begun_ = false;
}

std::vector<DrawId> SampleWriter::draws_left() const {
  std::vector<DrawId> draws;
  draws.reserve(left());
  for (std::size_t i = at_; i < batch_.size(); ++i) {
    draws.push_back({batch_.tickets()[i], batch_.times_sampled()[i]});
  }
  return draws;
}

SampleBatch SampleWriter::take_spent() {
  REVERIE_CHECK(is_done());
  return std::exchange(batch_, SampleBatch());
}

SampleBatch SampleWriter::take_rest() {
  std::vector<std::size_t> written(at_);
  std::iota(written.begin(), written.end(), std::size_t{0});
  SampleBatch rest = std::exchange(batch_, SampleBatch());
  rest.remove(written);
  parts_.clear();
  at_ = 0;
  has_begun_ = false;
  return rest;
}

std::size_t SampleWriter::hold() {
  batch_.retain();
  std::vector<const Chunk*> chunks;
  for (const TrajectoryView& trajectory : batch_.trajectories().subspan(at_)) {
    for (const Piece& piece : trajectory.pieces()) {
      if (chunks.empty() || chunks.back() != piece.chunk) chunks.push_back(piece.chunk);
    }
  }
  std::ranges::sort(chunks);
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  std::size_t size_bytes = 0;
  for (const Chunk* const chunk : chunks) size_bytes += chunk->size_bytes();
  return size_bytes;
}

void SampleWriter::list_chunks(const TrajectoryView& trajectory) {
  parts_.clear();
  for (const Piece& piece : trajectory.pieces()) {
    const auto found = std::ranges::find(parts_, piece.chunk, &Part::chunk);
    const std::uint32_t end = piece.offset + piece.length;
    if (found == parts_.end()) {
      parts_.push_back({piece.chunk, piece.offset, end, {}});
    } else {
      found->begin = std::min(found->begin, piece.offset);
      found->end = std::max(found->end, end);
    }
  }
}

wire::WireItem SampleWriter::item_of(std::size_t index) const {
  const TrajectoryView& trajectory = batch_.trajectories()[index];
  wire::WireItem item;
  item.key = batch_.keys()[index];
  item.table = table_;
  item.priority = batch_.priorities()[index];
  item.times_sampled = batch_.times_sampled()[index];
  item.inserted_at_ns = batch_.inserted_at_ns()[index] + calendar_offset_ns_;
  const auto pieces = trajectory.pieces();
  for (const LayoutColumn& column : trajectory.layout->columns()) {
    wire::WireItem::Column& written = item.columns.emplace_back();
    written.slice_begin = static_cast<std::uint32_t>(item.slices.size());
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      const auto part = std::ranges::find(parts_, pieces[p].chunk, &Part::chunk);
      item.slices.push_back(
          {pieces[p].chunk->key(),
           static_cast<std::int32_t>(pieces[p].offset - part->transcoded.first_row),
           static_cast<std::int32_t>(pieces[p].length), column.chunk_column});
    }
    written.slice_end = static_cast<std::uint32_t>(item.slices.size());
    written.squeeze = column.squeezed;
  }
  return item;
}

Status SampleWriter::begin_sample() {
  list_chunks(batch_.trajectories()[at_]);
  for (Part& part : parts_) {
    part_at_ = static_cast<std::size_t>(&part - parts_.data());
    REVERIE_ASSIGN_OR_RETURN(part.transcoded,
                             transcoder_.transcode(*part.chunk, part.begin, part.end));
  }
  wire::WireSampleInfo info;
  info.item = item_of(at_);
  info.probability = batch_.probabilities()[at_];
  info.table_size = batch_.table_sizes()[at_];
  info.rate_limited = batch_.rate_limited();
  info_ = wire::write_sample_info(info);
  part_at_ = 0;
  has_begun_ = true;
  return {};
}

Result<std::optional<GrpcPayload>> SampleWriter::next() {
  Result<std::optional<GrpcPayload>> written = std::optional<GrpcPayload>();
  if (packed_version_ == 0) {
    written = next_entries();
  } else if (Result<GrpcPayload> packed = next_packed(); packed.ok()) {
    written = std::optional(std::move(packed).value());
  } else {
    written = packed.status();
  }
  if (is_done()) {
    batch_.clear();  // its pins, or its references to the chunks
    at_ = 0;
  }
  return written;
}

// One writer for each thread: there are many streams, and it keeps nothing but memory between
// messages.
Result<GrpcPayload> SampleWriter::next_packed() {
  thread_local PackedWriter writer;
  return writer.write(batch_, &at_, packed_version_);
}

Result<std::optional<GrpcPayload>> SampleWriter::next_entries() {
  PayloadBuilder builder;
  std::vector<wire::Bytes> chunks;
  std::size_t size_bytes = 0;
  while (!is_done() && size_bytes <= kResponseBytes) {
    if (!has_begun_) {
      Status status = begin_sample();
      if (status.code() == StatusCode::kDataLoss) {
        corrupt_.push_back({batch_.keys()[at_], parts_[part_at_].chunk->key(), status.message()});
        ++at_;
        continue;
      }
      if (!status.ok()) {
        // The samples before it are sent first; the next call returns the error.
        if (size_bytes > 0) break;
        return status.with_context(format("item {} of table '{}'", batch_.keys()[at_], table_));
      }
    }
    chunks.clear();
    const std::string_view info = part_at_ == 0 ? std::string_view(info_) : std::string_view();
    size_bytes += info.size();
    do {
      const Part& part = parts_[part_at_++];
      chunks.push_back(part.transcoded.bytes);
      if (!part.transcoded.owner) {
        builder.keep_chunk(part.transcoded.bytes, *part.chunk);
      } else if (wire::PiecedMessage::refers_to(part.transcoded.bytes)) {
        builder.keep(part.transcoded.owner);
      }
      size_bytes += part.transcoded.bytes.size();
    } while (part_at_ < parts_.size() && size_bytes <= kResponseBytes);
    const bool is_end = part_at_ == parts_.size();
    wire::put_sample_entry(builder.message(), info, chunks, is_end);
    if (is_end) {
      ++at_;
      has_begun_ = false;
    }
  }
  if (size_bytes == 0) return std::optional<GrpcPayload>();
  return std::optional(builder.build());
}

}  // namespace reverie
