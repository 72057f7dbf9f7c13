// Tested in tests/integration/replay_state_test.cc.
#include "reverie/transitions/replay_state.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "reverie/base/check.h"
#include "reverie/codec/byte_arrays.h"
#include "reverie/codec/column_decoder.h"

namespace reverie {
namespace {

void write_specs(std::span<const TensorSpec> specs, ByteWriter& out) {
  out.u64(specs.size());
  for (const TensorSpec& spec : specs) {
    out.text(spec.name).u8(static_cast<std::uint8_t>(spec.dtype));
    write_array<std::int64_t>(spec.shape, out);
  }
}

std::vector<TensorSpec> read_specs(ByteReader& in) {
  std::vector<TensorSpec> specs;
  const std::size_t count = in.count64(13);
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    TensorSpec& spec = specs.emplace_back();
    spec.name = in.text();
    spec.dtype = static_cast<DType>(in.u8());
    spec.shape = read_array<std::int64_t>(in);
  }
  return specs;
}

Status check_spec(const TensorSpec& spec) {
  constexpr std::int64_t kElementsMax = std::int64_t{1} << 32;
  bool is_sound = spec.dtype >= DType::kBool && spec.dtype < DType::kBytes;
  std::int64_t elements = 1;
  for (const std::int64_t extent : spec.shape) {
    is_sound = is_sound && extent >= 0 && extent <= kElementsMax;
    if (is_sound) elements *= std::max<std::int64_t>(extent, 1);
    is_sound = is_sound && elements <= kElementsMax;
    if (!is_sound) break;
  }
  if (is_sound) return {};
  return data_loss("column '{}' of a replay buffer has an invalid type or shape", spec.name);
}

// The order is part of the file format.
constexpr std::array kCodecs = {CodecChoice::kRaw, CodecChoice::kLz4, CodecChoice::kZstd,
                                CodecChoice::kAuto};

// The flags that options end with have padding in bit 0, the codec above it, and this bit.
constexpr unsigned kHasHindsight = 8;

unsigned codec_number(CodecChoice codec) {
  return static_cast<unsigned>(std::ranges::find(kCodecs, codec) - kCodecs.begin());
}

void write_options(const TransitionOptions& options, ByteWriter& out) {
  out.u64(options.capacity).u32(options.env_count).u32(options.frame_stack).u32(options.n_step);
  out.f64(options.gamma).u32(options.sequence_length).u32(options.period).u32(options.burn_in);
  out.u8(static_cast<std::uint8_t>((options.pad_sequences ? 1 : 0) |
                                   codec_number(options.codec) << 1 |
                                   (options.hindsight ? kHasHindsight : 0)));
  if (!options.hindsight) return;
  out.u8(static_cast<std::uint8_t>(options.hindsight->strategy)).f64(options.hindsight->share);
  out.text(options.hindsight->achieved).text(options.hindsight->goal);
}

std::optional<HindsightOptions> read_hindsight(ByteReader& in) {
  HindsightOptions options;
  const std::uint8_t strategy = in.u8();
  if (strategy > static_cast<std::uint8_t>(HindsightStrategy::kEpisode)) in.fail();
  options.strategy = static_cast<HindsightStrategy>(strategy);
  options.share = in.f64();
  options.achieved = in.text();
  options.goal = in.text();
  return options;
}

TransitionOptions read_options(ByteReader& in) {
  TransitionOptions options;
  options.capacity = static_cast<std::size_t>(in.u64());
  options.env_count = in.u32();
  options.frame_stack = in.u32();
  options.n_step = in.u32();
  options.gamma = in.f64();
  options.sequence_length = in.u32();
  options.period = in.u32();
  options.burn_in = in.u32();
  const std::uint8_t flags = in.u8();
  options.pad_sequences = (flags & 1) != 0;
  options.codec = kCodecs[(flags >> 1) & (kCodecs.size() - 1)];
  if (flags >= 2 * kHasHindsight) in.fail();
  if ((flags & kHasHindsight) != 0) options.hindsight = read_hindsight(in);
  return options;
}

}  // namespace

// A friend of the buffers and their writers.
class ReplayState {
 public:
  explicit ReplayState(std::span<ReplayBuffer* const> buffers) : buffers_(buffers) {}

  Status write(std::vector<std::byte>& out, const std::function<Status()>& save_store) {
    return write_from(0, out, save_store);
  }
  Status restore(ByteReader& in, std::span<const std::span<Trajectory>> items);

 private:
  using Stream = TransitionWriter::Stream;

  TransitionPlan& plan() const { return buffers_.front()->plan_; }

  // While the adds of buffers before number `locked` are blocked.
  Status write_from(std::size_t locked, std::vector<std::byte>& bytes,
                    const std::function<Status()>& save_store);
  // The caller holds the add_mutex_ of all buffers.
  Status write_streams(ByteWriter& out);
  Status write_stream(TransitionWriter& writer, Stream& stream, ByteWriter& out) const;

  // An empty chunk of the plan's capacity.
  Result<Ref<Chunk>> open_chunk(const ChunkOrigin& origin) const;
  // The rows of a column; those of an encoded chunk are decoded into `room`.
  static Result<std::span<const std::byte>> rows_of(const Chunk& chunk, std::size_t column,
                                                    std::vector<std::byte>& room);
  // The same rows in the layout of the buffers' own chunks. Each chunk is made once.
  Result<const Chunk*> own(const Chunk& stored);
  Result<Ref<Chunk>> own_raw(const Chunk& stored) const;
  // A chunk that was complete when it was saved: its columns stay encoded.
  Result<Ref<Chunk>> own_encoded(const Chunk& stored) const;
  Result<Trajectory> own(const Trajectory& stored);
  Status check_item(ItemShape shape, std::span<const Piece> pieces) const;
  Status read_streams(ByteReader& in);
  Status read_goals(ReplayBuffer& buffer, ByteReader& in) const REVERIE_REQUIRES(buffer.add_mutex_);
  Result<Ref<Chunk>> read_chunk(ByteReader& in);
  // The items' chunk that a stream continues to write; null if no item has its rows. Only one
  // stream gets it, since keys of two writers may be equal.
  Ref<Chunk> take_chunk(ChunkKey key, std::uint32_t rows,
                        std::span<const std::span<const std::byte>> columns);
  Status check_stream(const Stream& stream) const;

  std::span<ReplayBuffer* const> buffers_;
  std::unordered_map<const Chunk*, Ref<Chunk>> owned_;  // by what was stored
  std::unordered_map<ChunkKey, Chunk*> by_key_;
};

// --- Writing -----------------------------------------------------------------------------------

Status ReplayState::write_from(std::size_t locked, std::vector<std::byte>& bytes,
                               const std::function<Status()>& save_store) {
  if (locked < buffers_.size()) {
    MutexLock lock(buffers_[locked]->add_mutex_);
    return write_from(locked + 1, bytes, save_store);
  }
  ByteWriter out(bytes);
  write_options(plan().options(), out);
  write_specs(plan().obs(), out);
  write_specs(plan().action(), out);
  REVERIE_RETURN_IF_ERROR(write_streams(out));
  return save_store();
}

Status ReplayState::write_streams(ByteWriter& out) {
  out.u64(buffers_.size());
  for (ReplayBuffer* const buffer : buffers_) {
    buffer->add_mutex_.assert_held();
    TransitionWriter& writer = buffer->writer_;
    const StepCounts& counts = writer.counts_;
    out.u64(writer.next_key_).i64(counts.steps).i64(counts.episodes).i64(counts.cuts);
    for (Stream& stream : writer.streams_) {
      REVERIE_RETURN_IF_ERROR(write_stream(writer, stream, out));
    }
    if (buffer->hindsight_) buffer->hindsight_->write(out);
  }
  return {};
}

Result<std::span<const std::byte>> ReplayState::rows_of(const Chunk& chunk, std::size_t column,
                                                        std::vector<std::byte>& room) {
  const std::size_t size = chunk.rows() * chunk.schema().row_bytes(column);
  if (chunk.is_raw()) return std::span(chunk.row(column, 0), size);
  room.resize(size);
  ColumnDecoder decoder;
  REVERIE_RETURN_IF_ERROR(decoder.decode_all(chunk.encoded_column(column).codec,
                                             chunk.schema().column(column), chunk.rows(),
                                             chunk.encoded_bytes(column), room));
  return std::span<const std::byte>(room);
}

Status ReplayState::write_stream(TransitionWriter& writer, Stream& stream, ByteWriter& out) const {
  out.u64(stream.row).u8(stream.is_open ? 1 : 0).u64(stream.episode_begin).u64(stream.item_begin);
  out.u64(stream.first_chunk).u64(stream.chunks.size());
  // Items refer to the open row for its observation. It counts as published from now on, so that it
  // is saved; only the stream writes its other columns, and no reader of an item reads them.
  if (stream.is_open) writer.publish(stream, stream.row + 1);
  const ChunkSchema& schema = *plan().schema();
  for (const Ref<Chunk>& chunk : stream.chunks) {
    const std::uint32_t rows = chunk->rows();
    out.u64(chunk->key()).u64(chunk->episode()).u32(rows);
    for (std::size_t i = 0; i < schema.column_count(); ++i) {
      std::vector<std::byte> room;
      REVERIE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, rows_of(*chunk, i, room));
      out.raw(bytes);
    }
  }
  return {};
}

// --- Reading -----------------------------------------------------------------------------------

Result<Ref<Chunk>> ReplayState::open_chunk(const ChunkOrigin& origin) const {
  return Chunk::open(plan().schema(), origin, plan().chunk_rows(), 0, *buffers_.front()->slabs_,
                     plan().is_packed() ? Chunk::Kind::kCompressible : Chunk::Kind::kRaw);
}

Result<const Chunk*> ReplayState::own(const Chunk& stored) {
  Ref<Chunk>& mine = owned_[&stored];
  if (mine) return mine.get();
  const ChunkSchema& schema = *plan().schema();
  if (!std::ranges::equal(stored.schema().columns(), schema.columns()) ||
      stored.rows() > plan().chunk_rows() || (!stored.is_raw() && !plan().is_packed())) {
    return data_loss("chunk {} is not one that this replay buffer has written", stored.key());
  }
  REVERIE_ASSIGN_OR_RETURN(mine, stored.is_raw() ? own_raw(stored) : own_encoded(stored));
  by_key_[stored.key()] = mine.get();
  return mine.get();
}

Result<Ref<Chunk>> ReplayState::own_raw(const Chunk& stored) const {
  const ChunkSchema& schema = *plan().schema();
  REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> mine,
                           open_chunk({stored.key(), stored.episode(), stored.first_step()}));
  for (std::size_t i = 0; i < schema.column_count(); ++i) {
    // The chunk is open, and no other thread has it yet.
    std::copy_n(stored.row(i, 0), stored.rows() * schema.row_bytes(i),
                const_cast<std::byte*>(mine->row(i, 0)));
  }
  mine->publish(stored.rows());
  return mine;
}

Result<Ref<Chunk>> ReplayState::own_encoded(const Chunk& stored) const {
  const ChunkSchema& schema = *plan().schema();
  std::vector<Chunk::EncodedColumn> columns;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < schema.column_count(); ++i) {
    std::vector<std::byte> room;
    REVERIE_RETURN_IF_ERROR(rows_of(stored, i, room).status());
    const CodecId codec = stored.encoded_column(i).codec;
    const std::span<const std::byte> encoded = stored.encoded_bytes(i);
    const bool is_achieved =
        plan().options().hindsight && i == plan().achieved_place().chunk_column;
    if ((i == 0 || is_achieved) && codec != CodecId::kRaw) {
      return data_loss("chunk {} has column {} in codec {}; it is raw", stored.key(), i,
                       static_cast<int>(codec));
    }
    columns.push_back({codec, bytes.size(), encoded.size()});
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  REVERIE_ASSIGN_OR_RETURN(Buffer storage, Allocator::heap().allocate(bytes.size()));
  std::ranges::copy(bytes, storage.data());
  return Chunk::encoded(plan().schema(), {stored.key(), stored.episode(), stored.first_step()},
                        stored.rows(), std::move(storage), std::move(columns));
}

Status ReplayState::check_item(ItemShape shape, std::span<const Piece> pieces) const {
  const TransitionOptions& options = plan().options();
  std::uint64_t rows = 0;
  bool is_inside = pieces.size() <= 2 && (pieces.size() < 2 || pieces[1].offset == 0);
  for (const Piece& piece : pieces) {
    rows += piece.length;
    is_inside = is_inside && piece.length > 0 &&
                std::uint64_t{piece.offset} + piece.length <= piece.chunk->rows();
  }
  const bool is_of_plan = shape.history < options.frame_stack && shape.burn_in <= options.burn_in &&
                          shape.steps > shape.burn_in && shape.steps <= options.steps_max();
  if (is_inside && is_of_plan && rows == shape.rows()) return {};
  return data_loss("an item of {} steps has {} rows, or rows that are not there", shape.steps,
                   rows);
}

Result<Trajectory> ReplayState::own(const Trajectory& stored) {
  const std::span<const Piece> pieces = stored.pieces();
  const ItemShape shape = ItemShape::unpack(stored.layout().tag());
  REVERIE_RETURN_IF_ERROR(check_item(shape, pieces));
  std::array<Piece, 2> mine;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    mine[i] = pieces[i];
    REVERIE_ASSIGN_OR_RETURN(mine[i].chunk, own(*pieces[i].chunk));
  }
  // Readers know an item by its schema, whichever buffer's layout it has.
  return Trajectory(plan().layout(shape, static_cast<std::uint32_t>(pieces.size())),
                    std::span(mine).first(pieces.size()));
}

Status ReplayState::check_stream(const Stream& stream) const {
  constexpr std::uint64_t kRowMax = std::uint64_t{1} << 48;
  const TransitionOptions& options = plan().options();
  const std::uint64_t shift = plan().chunk_shift();
  const std::uint64_t reach = options.frame_stack - 1 + options.burn_in;
  // The first row that the writer may read again.
  const std::uint64_t oldest =
      std::max(stream.episode_begin, stream.item_begin - std::min(stream.item_begin, reach));
  const std::uint64_t chunk_end = stream.first_chunk + stream.chunks.size();
  const bool is_ordered = stream.row < kRowMax && stream.first_chunk < kRowMax &&
                          stream.episode_begin <= stream.item_begin &&
                          stream.episode_begin <= stream.row &&
                          stream.item_begin <= stream.row + options.period;
  const bool has_rows =
      oldest >> shift >= stream.first_chunk && stream.row >> shift >= stream.first_chunk &&
      stream.row >> shift <= chunk_end && (!stream.is_open || stream.row >> shift < chunk_end);
  if (is_ordered && has_rows) return {};
  return data_loss("a stream of a replay buffer, at row {}, contradicts itself", stream.row);
}

Result<Ref<Chunk>> ReplayState::read_chunk(ByteReader& in) {
  const ChunkOrigin origin{in.u64(), in.u64(), 0};
  const std::uint32_t rows = in.u32();
  if (rows > plan().chunk_rows()) {
    return data_loss("chunk {} of a stream has {} rows; it holds {}", origin.key, rows,
                     plan().chunk_rows());
  }
  const ChunkSchema& schema = *plan().schema();
  std::vector<std::span<const std::byte>> columns;
  for (std::size_t i = 0; i < schema.column_count(); ++i) {
    columns.push_back(in.raw(rows * schema.row_bytes(i)));
  }
  if (!in.ok()) return data_loss("the rows of a stream are cut short");
  Ref<Chunk> chunk = take_chunk(origin.key, rows, columns);
  if (!chunk) {
    REVERIE_ASSIGN_OR_RETURN(chunk, open_chunk(origin));
  }
  if (!chunk->is_raw()) return chunk;  // it has these rows, and is complete
  for (std::size_t i = 0; i < schema.column_count(); ++i) {
    std::ranges::copy(columns[i], const_cast<std::byte*>(chunk->row(i, 0)));
  }
  chunk->publish(rows);
  return chunk;
}

Ref<Chunk> ReplayState::take_chunk(ChunkKey key, std::uint32_t rows,
                                   std::span<const std::span<const std::byte>> columns) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || found->second->rows() > rows) return {};
  if (!found->second->is_raw() && found->second->rows() < rows) return {};
  std::vector<std::byte> room;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto known = rows_of(*found->second, i, room);
    if (!known.ok() || !std::ranges::equal(columns[i].first(known->size()), *known)) return {};
  }
  Ref<Chunk> chunk = Ref<Chunk>::share(found->second);
  by_key_.erase(found);
  return chunk;
}

Status ReplayState::read_streams(ByteReader& in) {
  const std::uint64_t count = in.u64();
  if (in.ok() && (count == 0 || count > buffers_.size())) {
    return invalid_argument("the checkpoint has {} writers of the replay buffer; {} are there",
                            count, buffers_.size());
  }
  for (ReplayBuffer* const buffer : buffers_.first(static_cast<std::size_t>(count))) {
    MutexLock lock(buffer->add_mutex_);
    TransitionWriter& writer = buffer->writer_;
    writer.next_key_ = in.u64();
    writer.counts_.steps = in.i64();
    writer.counts_.episodes = in.i64();
    writer.counts_.cuts = in.i64();
    for (Stream& stream : writer.streams_) {
      stream.row = in.u64();
      stream.is_open = in.u8() != 0;
      stream.episode_begin = in.u64();
      stream.item_begin = in.u64();
      stream.first_chunk = in.u64();
      stream.packed_end = stream.first_chunk;
      const std::size_t chunk_count = in.count64(20);
      for (std::size_t i = 0; i < chunk_count && in.ok(); ++i) {
        REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk, read_chunk(in));
        stream.chunks.push_back(std::move(chunk));
      }
      REVERIE_RETURN_IF_ERROR(check_stream(stream));
    }
    if (buffer->hindsight_) REVERIE_RETURN_IF_ERROR(read_goals(*buffer, in));
  }
  return check_done(in, "the state of a replay buffer");
}

Status ReplayState::read_goals(ReplayBuffer& buffer, ByteReader& in) const {
  if (!in.ok()) return data_loss("the state of a replay buffer is cut short");
  std::unordered_map<ChunkKey, Ref<const Chunk>> chunks;
  for (const auto& [stored, mine] : owned_) chunks[mine->key()] = mine;  // `stored` may be gone
  std::vector<HindsightIndex::Written> written;
  for (const Stream& stream : buffer.writer_.streams_) {
    for (const Ref<Chunk>& chunk : stream.chunks) chunks[chunk->key()] = chunk;
    written.push_back({stream.first_chunk, stream.first_chunk + stream.chunks.size(),
                       stream.row + (stream.is_open ? 1 : 0)});
  }
  return buffer.hindsight_->restore(in, written, chunks);
}

Status ReplayState::restore(ByteReader& in, std::span<const std::span<Trajectory>> items) {
  for (const std::span<Trajectory> of_table : items) {
    for (Trajectory& item : of_table) {
      if (item.empty()) continue;
      REVERIE_ASSIGN_OR_RETURN(Trajectory mine, own(item));
      item = std::move(mine);
    }
  }
  return read_streams(in);
}

Status write_replay_state(std::span<ReplayBuffer* const> buffers, std::vector<std::byte>& out,
                          const std::function<Status()>& save_store) {
  REVERIE_CHECK(!buffers.empty());
  return ReplayState(buffers).write(out, save_store);
}

Result<ReplayPlan> read_replay_plan(ByteReader& in) {
  ReplayPlan plan;
  plan.options = read_options(in);
  plan.obs = read_specs(in);
  plan.action = read_specs(in);
  if (!in.ok()) return data_loss("the plan of a replay buffer is cut short");
  for (const std::vector<TensorSpec>* const specs : {&plan.obs, &plan.action}) {
    for (const TensorSpec& spec : *specs) REVERIE_RETURN_IF_ERROR(check_spec(spec));
  }
  const Status made = TransitionPlan::make(plan.options, plan.obs, plan.action).status();
  if (!made.ok()) return data_loss("the plan of a replay buffer is damaged: {}", made.message());
  return plan;
}

std::size_t saved_buffer_count(ByteReader in, const TransitionOptions& options) {
  constexpr std::size_t kBufferBytes = 32;
  constexpr std::size_t kStreamBytes = 41;  // of one without chunks
  return in.count64(kBufferBytes + kStreamBytes * options.env_count);
}

Status restore_replay(std::span<ReplayBuffer* const> buffers, ByteReader& in,
                      std::span<const std::span<Trajectory>> items) {
  REVERIE_CHECK(!buffers.empty());
  return ReplayState(buffers).restore(in, items);
}

}  // namespace reverie
