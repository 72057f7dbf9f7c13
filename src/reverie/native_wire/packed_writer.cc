// Tested in packed_samples_test.cc.
#include "reverie/native_wire/packed_writer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "reverie/codec/column_codec.h"
#include "reverie/native_wire/chunk_bounds.h"
#include "reverie/reverb_wire/requests.h"

namespace reverie {
namespace {

constexpr std::uint32_t kNone = ~0u;
// Smaller encoded columns of a chunk are decoded into rows, if those are not much larger.
constexpr std::size_t kDecodedBytesMax = std::size_t{2} << 10;
constexpr std::size_t kDecodedRowBytesMax = std::size_t{16} << 10;

std::size_t encoded_bytes(const Chunk& chunk, std::span<const std::uint16_t> columns) {
  std::size_t size = 0;
  for (const std::uint16_t c : columns) size += chunk.encoded_column(c).size_bytes;
  return size;
}

std::size_t row_bytes(const ChunkSchema& schema, std::span<const std::uint16_t> columns) {
  std::size_t size = 0;
  for (const std::uint16_t c : columns) size += schema.row_bytes(c);
  return size;
}

bool has_variable(const ChunkSchema& schema, std::span<const std::uint16_t> columns) {
  return std::ranges::any_of(columns, [&](std::uint16_t c) { return schema.is_variable(c); });
}

// Whether the rows are in files that the reader has.
bool has_external(const Chunk& chunk, std::span<const std::uint16_t> columns) {
  return std::ranges::any_of(columns, [&](std::uint16_t c) {
    return chunk.encoded_column(c).codec == CodecId::kExternal;
  });
}

}  // namespace

void PackedWriter::clear() {
  size_bytes_ = 0;
  parts_.clear();
  layouts_.clear();
  layout_of_item_.clear();
  places_.clear();
  rows_.clear();
  encoded_.clear();
  encoded_by_chunk_.clear();
  mapped_chunks_.clear();
  mapped_by_chunk_.clear();
  raw_.clear();
}

std::uint32_t PackedWriter::part_of(const ChunkSchema& schema, std::vector<std::uint16_t> columns) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].schema == &schema && parts_[i].columns == columns) {
      return static_cast<std::uint32_t>(i);
    }
  }
  parts_.push_back({&schema, std::move(columns), kNone});
  return static_cast<std::uint32_t>(parts_.size() - 1);
}

// Finds the layout of an item among the known ones, or adds it.
std::uint32_t PackedWriter::layout_of(const TrajectoryView& trajectory) {
  const auto pieces = trajectory.pieces();
  const auto is_like = [&](const KnownLayout& known) {
    if (known.layout != trajectory.layout) return false;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      if (&pieces[p].chunk->schema() != known.schemas[p]) return false;
    }
    return true;
  };
  // Consecutive items of a queue often have one writer, so the last layout is tried first.
  if (!layout_of_item_.empty() && is_like(layouts_[layout_of_item_.back()])) {
    return layout_of_item_.back();
  }
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    if (is_like(layouts_[i])) return static_cast<std::uint32_t>(i);
  }
  KnownLayout& made = layouts_.emplace_back();
  made.layout = trajectory.layout;
  // The columns of each piece's chunk that are used; all, if a column would otherwise have two
  // numbers.
  std::vector<std::vector<std::uint16_t>> used(pieces.size());
  for (const LayoutColumn& column : trajectory.layout->columns()) {
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      used[p].push_back(column.chunk_column);
    }
  }
  for (auto& columns : used) {
    std::ranges::sort(columns);
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  }
  const auto number = [&](const LayoutColumn& column, std::size_t p) {
    return static_cast<std::uint16_t>(std::ranges::lower_bound(used[p], column.chunk_column) -
                                      used[p].begin());
  };
  bool is_consistent = true;
  for (const LayoutColumn& column : trajectory.layout->columns()) {
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      is_consistent = is_consistent && number(column, p) == number(column, column.piece_begin);
    }
  }
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    is_consistent = is_consistent && !is_mapped_whole(pieces[p].chunk->schema(), used[p]);
  }
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const ChunkSchema& schema = pieces[p].chunk->schema();
    if (!is_consistent) {
      used[p].resize(schema.column_count());
      for (std::size_t c = 0; c < used[p].size(); ++c) used[p][c] = static_cast<std::uint16_t>(c);
    }
    made.schemas.push_back(&schema);
  }
  for (const LayoutColumn& column : trajectory.layout->columns()) {
    made.chunk_columns.push_back(number(column, column.piece_begin));
  }
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    made.parts.push_back(part_of(*made.schemas[p], std::move(used[p])));
  }
  return static_cast<std::uint32_t>(layouts_.size() - 1);
}

PackedWriter::Rows& PackedWriter::rows_for(const Piece& piece, std::uint32_t part) {
  Part& of = parts_[part];
  if (of.rows_chunk == kNone || rows_[of.rows_chunk].row_count + piece.length > kRowsMax) {
    of.rows_chunk = static_cast<std::uint32_t>(rows_.size());
    rows_.emplace_back().part = part;
  }
  return rows_[of.rows_chunk];
}

// Encodes raw columns of varying size for this message, as Reverb's clients do.
Status PackedWriter::encode(const Piece& piece, std::uint32_t part) {
  const Chunk& chunk = *piece.chunk;
  Encoded made{part, nullptr, piece.length, {}};
  std::vector<RowSpan> rows;
  std::vector<std::byte> bytes;
  for (const std::uint16_t c : parts_[part].columns) {
    rows.clear();
    bytes.clear();
    for (std::uint32_t r = 0; r < piece.length; ++r) {
      rows.push_back(chunk.row_bytes(c, piece.offset + r));
    }
    REVERIE_RETURN_IF_ERROR(encode_column(CodecId::kReverb, chunk.schema().column(c), rows, bytes));
    made.own.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    size_bytes_ += bytes.size();
  }
  places_.push_back({Kind::kEncoded, static_cast<std::uint32_t>(encoded_.size()), 0, piece.length});
  encoded_.push_back(std::move(made));
  return {};
}

// Mapped rows are those of a whole chunk, with all of its columns, which pays if samples use most
// of them.
bool PackedWriter::is_mapped_whole(const ChunkSchema& schema,
                                   std::span<const std::uint16_t> columns) const {
  return mapped_ != nullptr && !schema.has_variable() &&
         schema.step_bytes() >= MappedChunks::kPieceBytesMin / 2 &&
         2 * row_bytes(schema, columns) >= schema.step_bytes();
}

// Whether the reader maps the piece's chunk.
bool PackedWriter::map(const Piece& piece, std::uint32_t part, RawRows& raw) {
  if (mapped_ == nullptr) return false;
  const Chunk& chunk = *piece.chunk;
  const bool is_raw = static_cast<bool>(raw);
  if ((is_raw ? chunk.capacity() : chunk.rows()) > kRowsMax) return false;
  if (piece.length * chunk.schema().step_bytes() < MappedChunks::kPieceBytesMin) return false;
  if (is_raw && parts_[part].columns.size() != chunk.schema().column_count()) return false;
  const std::uint64_t key = (reinterpret_cast<std::uintptr_t>(&chunk) << 12u) ^ part;
  const auto next = static_cast<std::uint32_t>(mapped_chunks_.size());
  const auto [found, is_new] = mapped_by_chunk_.try_emplace(key, next);
  const bool is_known = !is_new && mapped_chunks_[found->second].chunk == &chunk &&
                        mapped_chunks_[found->second].part == part &&
                        mapped_chunks_[found->second].is_raw == is_raw;
  if (is_known) {
    places_.push_back({Kind::kMapped, found->second, piece.offset, piece.length});
    return true;
  }
  storage_.clear();
  chunk.add_storage(storage_);
  const std::size_t size = chunk.size_bytes();
  std::optional<ArenaRange> range;
  if (storage_.size() == 1 && size <= mapped_->size_bytes_max - mapped_->size_bytes) {
    range = mapped_->arena->range_of(storage_.front());
  }
  if (!range) {
    if (is_new) mapped_by_chunk_.erase(found);
    return false;
  }
  found->second = next;
  mapped_chunks_.push_back({part, &chunk, *range, is_raw});
  places_.push_back({Kind::kMapped, next, piece.offset, piece.length});
  mapped_->size_bytes += size;
  mapped_->chunks.emplace_back(Ref<const Chunk>::share(&chunk), std::move(raw));
  return true;
}

// Assigns the piece's rows a place in the message.
Status PackedWriter::place(const Piece& piece, std::uint32_t part) {
  const Chunk& chunk = *piece.chunk;
  const auto gather = [&](bool is_raw) {
    Rows& rows = rows_for(piece, part);
    places_.push_back({Kind::kRows, parts_[part].rows_chunk, rows.row_count, piece.length});
    rows.segments.push_back({&chunk, piece.offset, piece.length, is_raw});
    rows.row_count += piece.length;
    size_bytes_ += piece.length * row_bytes(chunk.schema(), parts_[part].columns);
  };
  const auto too_large = [](std::uint32_t rows) {
    return failed_precondition(
        "an item uses {} rows of one chunk, or a compressed chunk of so many, and a client reads "
        "at "
        "most {}: sample it in its store's process, or insert shorter arrays",
        rows, kRowsMax);
  };
  if (piece.length > kRowsMax) return too_large(piece.length);
  const std::vector<std::uint16_t>& columns = parts_[part].columns;
  const bool varies = chunk.schema().has_variable() && has_variable(chunk.schema(), columns);
  RawRows raw(chunk);
  if (!(raw && varies) && map(piece, part, raw)) return {};
  if (raw) {
    if (!chunk.is_raw_for_good()) {
      raw_.emplace_back(Ref<const Chunk>::share(&chunk), std::move(raw));
    }
    if (varies) return encode(piece, part);
    gather(/*is_raw=*/true);
    return {};
  }
  const std::size_t size = encoded_bytes(chunk, columns);
  const bool is_large = chunk.rows() > kRowsMax;
  if (may_decode_ && !varies && !has_external(chunk, columns) &&
      (is_large || (size <= kDecodedBytesMax &&
                    chunk.rows() * row_bytes(chunk.schema(), columns) <= kDecodedRowBytesMax))) {
    gather(/*is_raw=*/false);
    return {};
  }
  if (is_large) return too_large(chunk.rows());
  const std::uint64_t key = (reinterpret_cast<std::uintptr_t>(&chunk) << 12u) ^ part;
  const auto [found, is_new] =
      encoded_by_chunk_.try_emplace(key, static_cast<std::uint32_t>(encoded_.size()));
  // The keys of two chunks may be equal by chance; then the chunk is sent again.
  const bool is_known =
      !is_new && encoded_[found->second].chunk == &chunk && encoded_[found->second].part == part;
  const auto index = is_known ? found->second : static_cast<std::uint32_t>(encoded_.size());
  if (!is_known) {
    encoded_.push_back({part, &chunk, chunk.rows(), {}});
    size_bytes_ += size;
  }
  places_.push_back({Kind::kEncoded, index, piece.offset, piece.length});
  return {};
}

void PackedWriter::put_tables(const SampleBatch& batch, std::size_t begin, std::size_t end,
                              std::string& out) {
  using packed::put;
  using packed::put_array;
  const std::size_t count = end - begin;
  packed::Header header;
  header.item_count = static_cast<std::uint32_t>(count);
  header.piece_count = static_cast<std::uint32_t>(places_.size());
  header.schema_count = static_cast<std::uint32_t>(parts_.size());
  header.layout_count = static_cast<std::uint32_t>(layouts_.size());
  header.chunk_count =
      static_cast<std::uint32_t>(rows_.size() + encoded_.size() + mapped_chunks_.size());
  const std::span<const std::uint8_t> redelivered = version_ >= packed::kRedeliveredVersion
                                                        ? batch.redelivered()
                                                        : std::span<const std::uint8_t>();
  header.flags = (batch.rate_limited() ? packed::kRateLimited : 0) |
                 (redelivered.empty() ? 0 : packed::kHasRedelivered);
  header.drawn_at_ns = batch.drawn_at_ns();
  put(out, header);
  put_array(out, batch.keys().subspan(begin, count));
  put_array(out, batch.probabilities().subspan(begin, count));
  put_array(out, batch.priorities().subspan(begin, count));
  put_array(out, batch.inserted_at_ns().subspan(begin, count));
  put_array(out, batch.table_sizes().subspan(begin, count));
  put_array(out, batch.versions().subspan(begin, count));
  put_array(out, batch.times_sampled().subspan(begin, count));
  put_array(out, std::span<const std::uint32_t>(layout_of_item_));
  if (!redelivered.empty()) put_array(out, redelivered.subspan(begin, count));
  for (const Place& place : places_) {
    const std::size_t before = place.kind == Kind::kRows      ? 0
                               : place.kind == Kind::kEncoded ? rows_.size()
                                                              : rows_.size() + encoded_.size();
    put(out, packed::WirePiece{static_cast<std::uint32_t>(before) + place.index, place.offset,
                               place.length});
  }
  for (const Part& part : parts_) {
    put(out, static_cast<std::uint16_t>(part.columns.size()));
    for (const std::uint16_t c : part.columns) {
      const TensorSpec& spec = part.schema->column(c);
      put(out, spec.dtype);
      put(out, static_cast<std::uint8_t>(spec.shape.size()));
      put_array(out, std::span<const std::int64_t>(spec.shape));
    }
  }
  for (const KnownLayout& layout : layouts_) {
    put(out, static_cast<std::uint16_t>(layout.parts.size()));
    put(out, static_cast<std::uint16_t>(layout.chunk_columns.size()));
    put_array(out, std::span<const std::uint32_t>(layout.parts));
    const auto columns = layout.layout->columns();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      put(out, layout.chunk_columns[c]);
      put(out, columns[c].piece_begin);
      put(out, columns[c].piece_end);
      const ChunkSchema& stored = *layout.schemas[columns[c].piece_begin];
      const bool is_other = stored.column(columns[c].chunk_column).dtype != columns[c].spec.dtype;
      put(out, static_cast<std::uint8_t>((columns[c].squeezed ? packed::kSqueezedFlag : 0) |
                                         (is_other ? packed::kOtherTextFlag : 0)));
    }
  }
  for (const Rows& rows : rows_) {
    put(out, rows.part);
    put(out, rows.row_count);
    put(out, packed::Form::kRows);
  }
  for (const Encoded& encoded : encoded_) {
    put(out, encoded.part);
    put(out, encoded.rows);
    put(out, packed::Form::kEncoded);
    const std::vector<std::uint16_t>& columns = parts_[encoded.part].columns;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      put(out, encoded.chunk ? encoded.chunk->encoded_column(columns[i]).codec : CodecId::kReverb);
      put(out, std::uint64_t{encoded.chunk ? encoded.chunk->encoded_column(columns[i]).size_bytes
                                           : encoded.own[i].size()});
    }
  }
  put_mapped(out);
}

void PackedWriter::put_mapped(std::string& out) const {
  using packed::put;
  for (const MappedChunk& mapped : mapped_chunks_) {
    put(out, mapped.part);
    // Rows that are not published yet follow those that samples refer to.
    put(out, mapped.is_raw ? mapped.chunk->capacity() : mapped.chunk->rows());
    put(out, mapped.is_raw ? packed::Form::kMappedRows : packed::Form::kMappedColumns);
    put(out, packed::Mapped{mapped.range.offset, mapped.range.size_bytes, mapped.range.generation});
    if (mapped.is_raw) continue;
    for (const std::uint16_t c : parts_[mapped.part].columns) {
      const Chunk::EncodedColumn& column = mapped.chunk->encoded_column(c);
      put(out, column.codec);
      put(out, std::uint64_t{column.size_bytes});
      put(out, std::uint64_t{column.offset});
    }
  }
}

Status PackedWriter::put_decoded(const Rows::Segment& segment, std::size_t column,
                                 std::string& out) {
  const Chunk& chunk = *segment.chunk;
  REVERIE_RETURN_IF_ERROR(decoder_.open(chunk.encoded_column(column).codec,
                                        chunk.schema().column(column), chunk.rows(),
                                        chunk.encoded_bytes(column)));
  for (std::uint32_t r = 0; r < segment.length; ++r) {
    REVERIE_ASSIGN_OR_RETURN(const RowSpan row, decoder_.row(segment.offset + r));
    out.append(reinterpret_cast<const char*>(row.data()), row.size());
  }
  return {};
}

// The rows column by column, in the order in which a chunk of these columns has them in memory.
Status PackedWriter::put_rows(const Rows& rows, PayloadBuilder& message) {
  const Part& part = parts_[rows.part];
  std::vector<TensorSpec> specs;
  for (const std::uint16_t c : part.columns) specs.push_back(part.schema->column(c));
  const auto sent = make_ref<ChunkSchema>(std::move(specs));
  std::vector<std::size_t> order(part.columns.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Stable: a column without bytes begins where the next one does.
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return sent->bytes_before(i); });
  for (const std::size_t i : order) {
    const std::size_t column = part.columns[i];
    const std::size_t size = part.schema->row_bytes(column);
    if (size == 0) continue;
    for (const Rows::Segment& segment : rows.segments) {
      if (segment.is_raw) {
        message.put({segment.chunk->row(column, segment.offset), segment.length * size},
                    *segment.chunk);
      } else {
        REVERIE_RETURN_IF_ERROR(put_decoded(segment, column, message.own()));
      }
    }
  }
  return {};
}

Result<PayloadBuilder> PackedWriter::try_write(const SampleBatch& batch, std::size_t* next) {
  clear();
  if (mapped_ != nullptr) {
    mapped_->chunks.clear();
    mapped_->size_bytes = 0;
  }
  const std::size_t begin = *next;
  std::size_t end = begin;
  const auto trajectories = batch.trajectories();
  while (end < batch.size() && end - begin < kItemsMax && size_bytes_ <= kMessageBytes) {
    layout_of_item_.push_back(layout_of(trajectories[end]));
    const auto pieces = trajectories[end].pieces();
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      REVERIE_RETURN_IF_ERROR(place(pieces[p], layouts_[layout_of_item_.back()].parts[p]));
    }
    size_bytes_ += packed::kItemBytes;
    ++end;
  }
  PayloadBuilder message;
  message.own().reserve(std::min(size_bytes_, kMessageBytes) + std::size_t{4} * 1024);
  put_tables(batch, begin, end, message.own());
  for (const Rows& rows : rows_) REVERIE_RETURN_IF_ERROR(put_rows(rows, message));
  for (const Encoded& encoded : encoded_) {
    const std::vector<std::uint16_t>& columns = parts_[encoded.part].columns;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (encoded.chunk) {
        message.put(encoded.chunk->encoded_bytes(columns[i]), *encoded.chunk);
      } else {
        message.put(wire::bytes_of(encoded.own[i]));
      }
    }
  }
  for (KeptRows& rows : raw_) message.keep_rows(*rows.first, std::move(rows.second));
  message.keep(std::make_shared<const std::vector<Encoded>>(std::move(encoded_)));
  *next = end;
  return message;
}

Result<GrpcPayload> PackedWriter::write(const SampleBatch& batch, std::size_t* next,
                                        std::uint64_t version) {
  version_ = version;
  Result<PayloadBuilder> bare = write_bare(batch, next);
  version_ = packed::kVersion;
  REVERIE_ASSIGN_OR_RETURN(PayloadBuilder message, std::move(bare));
  const std::string head = wire::packed_response_head(message.message().size_bytes());
  wire::put_packed_response_tail(message.own(), batch.sampler_mass());
  return message.build(head);
}

Result<PayloadBuilder> PackedWriter::write_bare(const SampleBatch& batch, std::size_t* next,
                                                MappedChunks* mapped) {
  mapped_ = mapped;
  Result<PayloadBuilder> written = try_write(batch, next);
  if (!written.ok() && written.status().code() == StatusCode::kDataLoss) {
    // A column is damaged: it is sent as it is, and its reader reports the damage.
    may_decode_ = false;
    written = try_write(batch, next);
    may_decode_ = true;
  }
  clear();
  mapped_ = nullptr;
  return written;
}

}  // namespace reverie
