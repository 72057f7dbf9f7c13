#include "reverie/adapters/peer/insert_mirror.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "reverie/codec/column_codec.h"
#include "reverie/native_wire/chunk_bounds.h"
#include "reverie/record/compact.h"
#include "reverie/tensor/shape.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

using insert_records::Record;

namespace {

constexpr std::size_t kColumnsMax = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t kPiecesMax = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t kTablesMax = 4096;
constexpr std::size_t kVariantsMax = 16;
// The bound of a chunk's memory, however many of its rows have arrived.
constexpr std::size_t kChunkBytesMax = std::size_t{4} << 30;
// Bytes of names and schemas; beyond that, they take at most twice what was sent.
constexpr std::size_t kNamedBytesFree = std::size_t{1} << 20;
// Too small to be worth an encoder's time.
constexpr std::size_t kPackedBytesMin = 256;

bool is_dtype(std::uint8_t dtype) {
  return dtype >= static_cast<std::uint8_t>(DType::kBool) &&
         dtype <= static_cast<std::uint8_t>(DType::kString);
}

Status malformed(std::string_view what) {
  return data_loss("an insert is malformed: {}", what);
}

}  // namespace

Result<insert_records::Head> InsertMirror::head_of(const Payload& payload) {
  StoreBytesIn in(payload.head);
  const auto head = in.get<insert_records::Head>();
  if (in.is_short()) return malformed("it has no writer");
  return head;
}

Status InsertMirror::take(const Payload& payload, std::vector<Taken>& items) {
  in_ = StoreBytesIn(payload.head);
  bulk_ = payload.bulk.empty() ? std::span<const std::byte>() : payload.bulk.front().bytes;
  bulk_at_ = 0;
  received_bytes_ += payload.head.size() + bulk_.size();
  (void)in_.get<insert_records::Head>();
  while (in_.left_bytes() > 0) {
    Status status;
    switch (in_.get<Record>()) {
      case Record::kTable:
        if (tables_.size() == kTablesMax) return malformed("a writer has too many tables");
        tables_.push_back(std::make_unique<const std::string>(in_.text()));
        named_bytes_ += sizeof(std::string) + tables_.back()->size();
        break;
      case Record::kSchema:
        status = take_schema();
        break;
      case Record::kLayout:
        status = take_layout();
        break;
      case Record::kOpen:
        status = take_open();
        break;
      case Record::kRows:
        status = take_rows();
        break;
      case Record::kReplace:
        status = take_columns();
        break;
      case Record::kForget:
        status = take_forget();
        break;
      case Record::kItem:
        status = take_item(items);
        break;
      default:
        return malformed("it has a record of an unknown kind");
    }
    REVERIE_RETURN_IF_ERROR(status);
    if (named_bytes_ > kNamedBytesFree + 2 * received_bytes_) {
      return resource_exhausted(
          "a writer's items use more and more kinds of columns, which take {} bytes of {} that it "
          "sent; use the same columns for all items",
          named_bytes_, received_bytes_);
    }
  }
  if (in_.is_short()) return malformed("it ends within a record");
  return {};
}

Status InsertMirror::take_schema() {
  const auto count = in_.get<std::uint32_t>();
  if (count < 1 || count > kColumnsMax) return malformed("a chunk has too many columns, or none");
  std::vector<TensorSpec> specs;
  std::uint64_t row_bytes = 0;
  for (std::uint32_t c = 0; c < count && !in_.is_short(); ++c) {
    const auto dtype = in_.get<std::uint8_t>();
    TensorSpec spec{"", static_cast<DType>(dtype), {}};
    // As over gRPC: the table's signature says whether text is str.
    if (spec.dtype == DType::kString) spec.dtype = DType::kBytes;
    const auto shape = in_.array<std::int64_t>();
    if (!is_dtype(dtype) || shape.size() > kAxesMax) {
      return malformed("a column's type is unknown, or has too many axes");
    }
    spec.shape.assign(shape.begin(), shape.end());
    const std::optional<std::size_t> elements = checked_element_count(spec.shape);
    if (!elements || *elements > kRowBytesMax) {
      return invalid_argument("a column has rows of shape {}; a row has at most {} bytes",
                              shape_text(spec.shape), kRowBytesMax);
    }
    row_bytes += *elements * std::max<std::size_t>(8, dtype_size_bytes(spec.dtype));
    if (row_bytes > 8 * kRowBytesMax) {
      return invalid_argument("a row has {} bytes and more; the bound is {}", row_bytes,
                              kRowBytesMax);
    }
    named_bytes_ += sizeof(TensorSpec) + 8 * spec.shape.size() + 16;
    specs.push_back(std::move(spec));
  }
  if (in_.is_short()) return malformed("it ends within a schema");
  schemas_.push_back(make_ref<ChunkSchema>(std::move(specs)));
  return {};
}

Status InsertMirror::take_layout() {
  Kind kind;
  kind.piece_count = in_.get<std::uint32_t>();
  const auto count = in_.get<std::uint32_t>();
  if (count < 1 || count > kColumnsMax || kind.piece_count < 1 || kind.piece_count > kPiecesMax) {
    return malformed("an item has too many columns or pieces, or none");
  }
  std::uint32_t end = 0;
  for (std::uint32_t c = 0; c < count && !in_.is_short(); ++c) {
    const auto column = in_.get<insert_records::LayoutColumnRecord>();
    if (column.piece_begin >= column.piece_end || column.piece_end > kind.piece_count) {
      return malformed("a column has no pieces, or those of another");
    }
    end = std::max<std::uint32_t>(end, column.piece_end);
    kind.columns.push_back(column);
  }
  if (in_.is_short() || end != kind.piece_count) return malformed("a layout does not fit itself");
  named_bytes_ += sizeof(Kind) + count * (sizeof(LayoutColumn) + 32);
  kinds_.push_back(std::move(kind));
  return {};
}

Status InsertMirror::take_open() {
  const auto open = in_.get<insert_records::Open>();
  if (open.schema >= schemas_.size() || open.capacity < 1 || open.capacity > kRowsMax ||
      open.var_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return malformed("a chunk has no columns, no rows, or too many");
  }
  const std::size_t step_bytes = schemas_[open.schema]->step_bytes();
  if (step_bytes > (kChunkBytesMax - open.var_bytes) / open.capacity) {
    return resource_exhausted(
        "a chunk of {} rows of {} bytes is larger than {}; use a smaller chunk_length",
        open.capacity, step_bytes, kChunkBytesMax);
  }
  const auto [place, is_new] = chunks_.try_emplace(open.chunk);
  if (!is_new) return malformed("two chunks have one number");
  place->second.open = open;
  return {};
}

Result<InsertMirror::Mirrored*> InsertMirror::find(std::uint32_t chunk) {
  if (last_ != nullptr && last_id_ == chunk) return last_;
  const auto found = chunks_.find(chunk);
  if (found == chunks_.end()) return malformed("it refers to a chunk that is not there");
  last_id_ = chunk;
  last_ = &found->second;
  return last_;
}

Status InsertMirror::keep(Mirrored& mirrored, std::size_t size_bytes) {
  if (size_bytes <= mirrored.size_bytes) return {};
  const std::size_t more = size_bytes - mirrored.size_bytes;
  if (kept_bytes_ + more > options_.kept_bytes_max) {
    return resource_exhausted(
        "a writer keeps chunks of {} bytes for later items, and adds another of {}; the bound is "
        "{}; make shorter chunks, or keep fewer steps referable",
        kept_bytes_, size_bytes, options_.kept_bytes_max);
  }
  if (options_.in_flight) REVERIE_RETURN_IF_ERROR(options_.in_flight->take(more));
  kept_bytes_ += more;
  mirrored.size_bytes = size_bytes;
  return {};
}

std::span<const std::byte> InsertMirror::bytes(std::size_t size_bytes, bool is_in_bulk) {
  if (!is_in_bulk) return in_.raw(size_bytes);
  const std::size_t begin = Payload::padded(bulk_at_);
  if (begin > bulk_.size() || size_bytes > bulk_.size() - begin) return {};
  bulk_at_ = begin + size_bytes;
  return bulk_.subspan(begin, size_bytes);
}

Status InsertMirror::take_rows() {
  const auto rows = in_.get<insert_records::Rows>();
  REVERIE_ASSIGN_OR_RETURN(Mirrored* const mirrored, find(rows.chunk));
  const insert_records::Open& open = mirrored->open;
  const std::uint32_t begin = mirrored->chunk ? mirrored->chunk->rows() : 0;
  if (rows.begin != begin || rows.end <= begin || rows.end > open.capacity ||
      (mirrored->chunk && !mirrored->chunk->is_raw())) {
    return malformed("rows of a chunk do not follow those that are there");
  }
  const Ref<const ChunkSchema>& schema = schemas_[open.schema];
  if (!mirrored->chunk) {
    REVERIE_RETURN_IF_ERROR(
        keep(*mirrored, sizeof(Chunk) + open.capacity * schema->step_bytes() + open.var_bytes));
    const bool may_pack = options_.codec == CodecChoice::kLz4 ||
                          options_.codec == CodecChoice::kZstd || open.is_compressible != 0;
    REVERIE_ASSIGN_OR_RETURN(
        mirrored->chunk, Chunk::open(schema, {open.key, open.episode, open.first_step},
                                     open.capacity, open.var_bytes, options_.memory,
                                     may_pack ? Chunk::Kind::kCompressible : Chunk::Kind::kRaw));
  }
  Chunk& chunk = *mirrored->chunk;
  const std::uint32_t count = rows.end - rows.begin;
  for (std::size_t c = 0; c < schema->column_count(); ++c) {
    if (!schema->is_variable(c)) {
      const std::size_t size = count * schema->row_bytes(c);
      const auto column = bytes(size, rows.is_in_bulk != 0);
      if (column.size() != size) return malformed("rows of a chunk are not there");
      chunk.set_rows(c, rows.begin, column);
      continue;
    }
    const auto elements = static_cast<std::size_t>(element_count(schema->column(c).shape));
    for (std::uint32_t r = rows.begin; r < rows.end; ++r) {
      const auto size = in_.get<std::uint32_t>();
      const auto row = in_.raw(size);
      if (row.size() != size || !chunk.has_var_room(size)) {
        return malformed("rows of varying size do not fit their chunk");
      }
      // A cell that the writer left unset has no bytes.
      if (size > 0 && !are_sized_elements(row, elements)) {
        return malformed("a row of varying size is not elements that follow their lengths");
      }
      chunk.set_row(c, r, row);
    }
  }
  chunk.publish(rows.end);
  return {};
}

Status InsertMirror::take_columns() {
  const auto columns = in_.get<insert_records::Columns>();
  REVERIE_ASSIGN_OR_RETURN(Mirrored* const mirrored, find(columns.chunk));
  const insert_records::Open& open = mirrored->open;
  const Ref<const ChunkSchema>& schema = schemas_[open.schema];
  if (columns.rows < 1 || columns.rows > open.capacity ||
      (mirrored->chunk && (!mirrored->chunk->is_compressible() || !mirrored->chunk->is_raw() ||
                           columns.rows < mirrored->chunk->rows()))) {
    return malformed("encoded columns do not fit their chunk");
  }
  Chunk::EncodedColumns encoded;
  std::size_t size_bytes = 0;
  for (std::size_t c = 0; c < schema->column_count(); ++c) {
    const auto column = in_.get<insert_records::Column>();
    if (column.codec > std::numeric_limits<std::uint8_t>::max() ||
        column.size_bytes > in_.left_bytes() + bulk_.size()) {
      return malformed("an encoded column is not there");
    }
    encoded.columns.push_back({static_cast<CodecId>(column.codec), size_bytes, column.size_bytes});
    size_bytes += column.size_bytes;
  }
  const std::size_t plain_bytes = columns.rows * schema->step_bytes();
  if (!may_unfold_to(plain_bytes, size_bytes)) {
    return invalid_argument(
        "a chunk unfolds from {} bytes to {}; the bound is {}, or {} times its own; use a smaller "
        "chunk_length",
        size_bytes, plain_bytes, kUnfoldedBytesMax, kUnfoldedRatioMax);
  }
  REVERIE_RETURN_IF_ERROR(keep(*mirrored, sizeof(Chunk) + size_bytes));
  REVERIE_ASSIGN_OR_RETURN(encoded.storage,
                           options_.memory.allocate(std::max<std::size_t>(1, size_bytes)));
  for (std::size_t c = 0; c < schema->column_count(); ++c) {
    const Chunk::EncodedColumn& column = encoded.columns[c];
    const auto from = bytes(column.size_bytes, columns.is_in_bulk != 0);
    if (from.size() != column.size_bytes) return malformed("an encoded column is not there");
    if (!from.empty())
      std::memcpy(encoded.storage.data() + column.offset, from.data(), from.size());
    const Status status = check_column(column.codec, schema->column(c), columns.rows, from);
    if (!status.ok()) {
      return invalid_argument("chunk {}, column {}: {}", open.key, c, status.message());
    }
  }
  if (!mirrored->chunk) {
    mirrored->chunk =
        Chunk::encoded(schema, {open.key, open.episode, open.first_step}, columns.rows,
                       std::move(encoded.storage), std::move(encoded.columns));
    return {};
  }
  mirrored->chunk->replace_rows(std::move(encoded), columns.rows);
  return {};
}

// Compresses a chunk that is still raw, if the server is configured to.
void InsertMirror::pack(Chunk& chunk) const {
  if (options_.codec != CodecChoice::kLz4 && options_.codec != CodecChoice::kZstd) return;
  if (!chunk.is_compressible() || !chunk.is_raw() || chunk.size_bytes() < kPackedBytesMin) return;
  const CodecId codec = options_.codec == CodecChoice::kLz4 ? CodecId::kLz4 : CodecId::kZstd;
  const std::vector<ColumnTry> tries(chunk.schema().column_count(),
                                     {.codec = codec, .at_most = 1.0});
  Result<Chunk::EncodedColumns> encoded = encode_columns(chunk, tries, options_.memory);
  if (!encoded.ok() || encoded->storage.size_bytes() >= chunk.raw_bytes()) return;
  chunk.replace_rows(std::move(encoded).value());
}

Status InsertMirror::take_forget() {
  const auto id = in_.get<std::uint32_t>();
  const auto found = chunks_.find(id);
  if (found == chunks_.end()) return malformed("it lets a chunk go that is not there");
  if (found->second.chunk) pack(*found->second.chunk);
  kept_bytes_ -= found->second.size_bytes;
  released_bytes_ += found->second.size_bytes;
  if (last_ == &found->second) last_ = nullptr;
  chunks_.erase(found);
  return {};
}

Result<InsertMirror::Variant> InsertMirror::make_variant(const Kind& kind,
                                                         std::uint16_t table) const {
  const wire::ColumnNames& named = options_.names(*tables_[table]);
  const bool has_names = named.names.size() == kind.columns.size();
  const wire::ColumnNames numbered =
      has_names ? wire::ColumnNames() : wire::ColumnNames::numbered(kind.columns.size());
  const wire::ColumnNames& names = has_names ? named : numbered;
  std::vector<LayoutColumn> columns;
  for (std::size_t c = 0; c < kind.columns.size(); ++c) {
    const insert_records::LayoutColumnRecord& record = kind.columns[c];
    const ChunkSchema& schema = pieces_[record.piece_begin].chunk->schema();
    if (record.chunk_column >= schema.column_count()) {
      return malformed("an item has a column that its chunk lacks");
    }
    LayoutColumn& column = columns.emplace_back();
    column.spec = schema.column(record.chunk_column);
    column.spec.name = names.names[c];
    if ((record.flags & insert_records::kOtherTextFlag) != 0) {
      if (!has_variable_size(column.spec.dtype)) return malformed("numbers are to be text");
      column.spec.dtype = column.spec.dtype == DType::kBytes ? DType::kString : DType::kBytes;
    }
    column.chunk_column = record.chunk_column;
    column.piece_begin = record.piece_begin;
    column.piece_end = record.piece_end;
    column.squeezed = (record.flags & insert_records::kSqueezedFlag) != 0;
    column.stepwise = (record.flags & insert_records::kStepwiseFlag) != 0;
  }
  Variant made{table, {}, make_ref<Layout>(std::move(columns), names.structure)};
  for (const Piece& piece : pieces_) made.schemas.push_back(&piece.chunk->schema());
  const Trajectory trajectory(made.layout, pieces_);
  REVERIE_RETURN_IF_ERROR(check_trajectory(trajectory.view()));
  return made;
}

// The layout of the item whose pieces are in pieces_.
Result<Ref<const Layout>> InsertMirror::layout_for(Kind& kind, std::uint16_t table) {
  const auto fits = [&](const Variant& variant) {
    return variant.table == table &&
           std::ranges::equal(variant.schemas, pieces_, {}, {},
                              [](const Piece& piece) { return &piece.chunk->schema(); });
  };
  const auto found = std::ranges::find_if(kind.variants, fits);
  if (found != kind.variants.end()) {
    if (found != kind.variants.begin()) std::iter_swap(found, kind.variants.begin());
    return kind.variants.front().layout;
  }
  REVERIE_ASSIGN_OR_RETURN(Variant made, make_variant(kind, table));
  if (kind.variants.size() == kVariantsMax) kind.variants.pop_back();
  kind.variants.insert(kind.variants.begin(), std::move(made));
  return kind.variants.front().layout;
}

Status InsertMirror::take_item(std::vector<Taken>& items) {
  const auto head = in_.get<insert_records::ItemHead>();
  if (head.table >= tables_.size() || head.layout >= kinds_.size()) {
    return malformed("an item is of no table, or has no layout");
  }
  Taken taken;
  taken.table = tables_[head.table].get();
  taken.begins = (head.flags & insert_records::kBeginsFlag) != 0;
  if ((head.flags & insert_records::kTimeoutFlag) != 0) {
    taken.timeout = Duration(in_.get<std::int64_t>());
  }
  Kind& kind = kinds_[head.layout];
  pieces_.clear();
  std::uint64_t rows = 0;
  for (std::uint32_t p = 0; p < kind.piece_count; ++p) {
    const auto piece = in_.get<insert_records::ItemPiece>();
    REVERIE_ASSIGN_OR_RETURN(Mirrored* const mirrored, find(piece.chunk));
    if (!mirrored->chunk || piece.length < 1 ||
        std::uint64_t{piece.offset} + piece.length > mirrored->chunk->rows()) {
      return malformed("an item has rows that its chunk lacks");
    }
    pieces_.push_back({mirrored->chunk.get(), piece.offset, piece.length});
    rows += piece.length;
  }
  if (rows > std::numeric_limits<std::int32_t>::max())
    return malformed("an item has too many rows");
  REVERIE_ASSIGN_OR_RETURN(Ref<const Layout> layout, layout_for(kind, head.table));
  for (const LayoutColumn& column : layout->columns()) {
    if (column.squeezed &&
        (column.piece_end - column.piece_begin != 1 || pieces_[column.piece_begin].length != 1)) {
      return malformed("a column of several rows is squeezed");
    }
  }
  taken.item.key = head.key;
  taken.item.version = head.version;
  if ((head.flags & insert_records::kPriorityFlag) != 0) taken.item.priority = head.priority;
  taken.item.trajectory = Trajectory(std::move(layout), pieces_);
  items.push_back(std::move(taken));
  return {};
}

}  // namespace reverie
