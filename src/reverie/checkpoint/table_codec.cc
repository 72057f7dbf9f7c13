// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_test.py.
#include "reverie/checkpoint/table_codec.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "reverie/base/options.h"
#include "reverie/codec/column_codec.h"
#include "reverie/codec/crc32c.h"
#include "reverie/tensor/shape.h"

namespace reverie::checkpoint {
namespace {

// An OptionValue is written with its index in the variant.
void write_component(const ComponentSpec& spec, ByteWriter& out) {
  out.text(spec.name).u32(static_cast<std::uint32_t>(spec.options.size()));
  for (const auto& [name, value] : spec.options) {
    out.text(name).u8(static_cast<std::uint8_t>(value.index()));
    switch (value.index()) {
      case 0:
        out.u8(std::get<bool>(value) ? 1 : 0);
        break;
      case 1:
        out.i64(std::get<std::int64_t>(value));
        break;
      case 2:
        out.f64(std::get<double>(value));
        break;
      default:
        out.text(std::get<std::string>(value));
    }
  }
}

ComponentSpec read_component(ByteReader& in) {
  ComponentSpec spec;
  spec.name = in.text();
  const std::size_t count = in.count32(6);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = in.text();
    switch (in.u8()) {
      case 0:
        spec.options[name] = in.u8() != 0;
        break;
      case 1:
        spec.options[name] = in.i64();
        break;
      case 2:
        spec.options[name] = in.f64();
        break;
      case 3:
        spec.options[name] = in.text();
        break;
      default:
        in.fail();
    }
  }
  return spec;
}

void write_spec(const TensorSpec& spec, ByteWriter& out) {
  out.text(spec.name).u8(static_cast<std::uint8_t>(spec.dtype));
  out.u32(static_cast<std::uint32_t>(spec.shape.size()));
  for (const std::int64_t extent : spec.shape) out.i64(extent);
}

TensorSpec read_spec(ByteReader& in) {
  TensorSpec spec;
  spec.name = in.text();
  const std::uint8_t dtype = in.u8();
  if (dtype < static_cast<std::uint8_t>(DType::kBool) ||
      dtype > static_cast<std::uint8_t>(DType::kString)) {
    in.fail();
  } else {
    spec.dtype = static_cast<DType>(dtype);
  }
  const std::size_t rank = in.count32(sizeof(std::int64_t));
  if (rank > kAxesMax) in.fail();
  for (std::size_t i = 0; i < rank && in.ok(); ++i) spec.shape.push_back(in.i64());
  return spec;
}

// Whether rows of this spec have a size that memory can hold.
bool is_row_spec(const TensorSpec& spec) {
  for (const std::int64_t extent : spec.shape) {
    if (extent < 0) return false;
  }
  const std::optional<std::size_t> elements = checked_element_count(spec.shape);
  if (!elements) return false;
  if (has_variable_size(spec.dtype)) return true;
  return *elements <= (std::size_t{1} << 40) / dtype_size_bytes(spec.dtype);
}

}  // namespace

void write_table(const TableImage& image, ByteWriter& out) {
  const TableOptions& options = image.options;
  out.text(options.name);
  write_component(options.sampler, out);
  write_component(options.remover, out);
  out.i64(options.max_size).i64(options.max_bytes.value_or(0)).i64(options.max_times_sampled);
  const RateLimiterSpec& limiter = options.rate_limiter;
  out.f64(limiter.samples_per_insert).i64(limiter.min_size_to_sample);
  out.f64(limiter.min_diff).f64(limiter.max_diff);
  out.u32(static_cast<std::uint32_t>(options.extensions.size()));
  for (std::size_t i = 0; i < options.extensions.size(); ++i) {
    write_component(options.extensions[i], out);
    out.text(image.extension_states[i]);
  }
  out.u8(options.signature ? 1 : 0);
  if (options.signature) {
    out.u32(static_cast<std::uint32_t>(options.signature->columns.size()));
    for (const TensorSpec& spec : options.signature->columns) write_spec(spec, out);
    out.text(options.signature->structure).text(options.signature->original);
  }
  out.u8(options.checks_items ? 1 : 0).u8(options.undoes_unsent ? 1 : 0);
  out.u8(options.is_keyed ? 1 : 0).u8(image.has_records ? 1 : 0);
  const RateLimiter::Counts& counts = image.limiter;
  out.i64(counts.inserts).i64(counts.samples).i64(counts.deletes).i64(counts.waived);
  out.f64(image.max_priority).i64(image.num_deleted_episodes).i64(image.num_unique_samples);
  out.i64(image.missing_updates).i64(image.corrupt_items);
  out.u32(image.slots.used).u32(image.slots.first_free);
  out.u32(image.slots.first_generation).u32(image.slots.newest_generation);
}

TableImage read_table(ByteReader& in) {
  TableImage image;
  TableOptions& options = image.options;
  options.name = in.text();
  options.sampler = read_component(in);
  options.remover = read_component(in);
  options.max_size = in.i64();
  const std::int64_t max_bytes = in.i64();
  if (max_bytes != 0) options.max_bytes = max_bytes;
  options.max_times_sampled = in.i64();
  RateLimiterSpec& limiter = options.rate_limiter;
  limiter.samples_per_insert = in.f64();
  limiter.min_size_to_sample = in.i64();
  limiter.min_diff = in.f64();
  limiter.max_diff = in.f64();
  const std::size_t extensions = in.count32(12);
  for (std::size_t i = 0; i < extensions; ++i) {
    options.extensions.push_back(read_component(in));
    image.extension_states.push_back(in.text());
  }
  if (in.u8() != 0) {
    Signature signature;
    const std::size_t columns = in.count32(9);
    for (std::size_t i = 0; i < columns; ++i) signature.columns.push_back(read_spec(in));
    signature.structure = in.text();
    signature.original = in.text();
    options.signature = std::move(signature);
  }
  options.checks_items = in.u8() != 0;
  options.undoes_unsent = in.u8() != 0;
  options.is_keyed = in.u8() != 0;
  image.has_records = in.u8() != 0;
  RateLimiter::Counts& counts = image.limiter;
  for (std::int64_t* const count :
       {&counts.inserts, &counts.samples, &counts.deletes, &counts.waived}) {
    *count = in.i64();
    if (*count < 0) in.fail();
  }
  image.max_priority = in.f64();
  image.num_deleted_episodes = in.i64();
  image.num_unique_samples = in.i64();
  image.missing_updates = in.i64();
  image.corrupt_items = in.i64();
  image.slots.used = in.u32();
  image.slots.first_free = in.u32();
  image.slots.first_generation = in.u32();
  image.slots.newest_generation = in.u32();
  return image;
}

void write_schema(const ChunkSchema& schema, ByteWriter& out) {
  out.u32(static_cast<std::uint32_t>(schema.column_count()));
  for (const TensorSpec& spec : schema.columns()) write_spec(spec, out);
}

Result<Ref<const ChunkSchema>> read_schema(ByteReader& in) {
  std::vector<TensorSpec> columns;
  const std::size_t count = in.count32(9);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    columns.push_back(read_spec(in));
    const TensorSpec& spec = columns.back();
    if (!in.ok()) break;
    if (!is_row_spec(spec)) return data_loss("column {} of a chunk is {}", i, spec_text(spec));
    if (!has_variable_size(spec.dtype)) {
      bytes += static_cast<std::size_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
    }
    if (bytes > std::size_t{1} << 40) return data_loss("a step of a chunk has {} bytes", bytes);
  }
  if (!in.ok()) return data_loss("a schema ends too early");
  return Ref<const ChunkSchema>(make_ref<ChunkSchema>(std::move(columns)));
}

void write_layout(const Layout& layout, ByteWriter& out) {
  out.text(layout.structure()).u64(layout.tag());
  out.u32(static_cast<std::uint32_t>(layout.columns().size()));
  for (const LayoutColumn& column : layout.columns()) {
    write_spec(column.spec, out);
    out.u32(column.chunk_column).u32(column.piece_begin).u32(column.piece_end);
    out.u8(column.squeezed ? 1 : 0).u8(column.stepwise ? 1 : 0);
  }
}

Result<Ref<const Layout>> read_layout(ByteReader& in) {
  std::string structure = in.text();
  const std::uint64_t tag = in.u64();
  std::vector<LayoutColumn> columns;
  const std::size_t count = in.count32(23);
  const auto small = [&in] {
    const std::uint32_t value = in.u32();
    if (value > std::numeric_limits<std::uint16_t>::max()) in.fail();
    return static_cast<std::uint16_t>(value);
  };
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    LayoutColumn column;
    column.spec = read_spec(in);
    if (in.ok() && !is_row_spec(column.spec)) {
      return data_loss("column {} of an item is {}", i, spec_text(column.spec));
    }
    column.chunk_column = small();
    column.piece_begin = small();
    column.piece_end = small();
    column.squeezed = in.u8() != 0;
    column.stepwise = in.u8() != 0;
    if (column.piece_begin >= column.piece_end) in.fail();
    columns.push_back(std::move(column));
  }
  if (!in.ok() || columns.empty()) return data_loss("a layout has no columns, or ends too early");
  return Ref<const Layout>(make_ref<Layout>(std::move(columns), std::move(structure), tag));
}

void write_entry(const ChunkEntry& entry, ByteWriter& out) {
  out.u64(entry.origin.key).u64(entry.origin.episode).u32(entry.origin.first_step);
  out.u32(entry.rows).u32(entry.schema).u32(entry.file);
  out.u64(entry.offset).u64(entry.size_bytes).u32(entry.crc);
}

ChunkEntry read_entry(ByteReader& in) {
  ChunkEntry entry;
  entry.origin.key = in.u64();
  entry.origin.episode = in.u64();
  entry.origin.first_step = in.u32();
  entry.rows = in.u32();
  entry.schema = in.u32();
  entry.file = in.u32();
  entry.offset = in.u64();
  entry.size_bytes = in.u64();
  entry.crc = in.u32();
  return entry;
}

std::uint64_t ChunkBytes::size_bytes() const {
  std::uint64_t size = head.size();
  for (const auto part : parts) size += part.size();
  return size;
}

std::uint32_t ChunkBytes::crc() const {
  std::uint32_t crc = crc32c(head);
  for (const auto part : parts) crc = crc32c(part, crc);
  return crc;
}

Result<ChunkBytes> chunk_bytes(const Chunk& chunk, std::uint32_t rows) {
  ChunkBytes bytes;
  const ChunkSchema& schema = chunk.schema();
  const auto count = static_cast<std::uint32_t>(schema.column_count());
  ByteWriter head(bytes.head);
  bytes.raw = RawRows(chunk);
  bytes.rows = bytes.raw ? rows : chunk.rows();
  if (!bytes.raw) {
    // Its storage may be a message, which is kept unchanged.
    const std::span<const std::byte> enveloped = chunk.enveloped(Chunk::Envelope::kWireMessage);
    const bool is_enveloped = !enveloped.empty();
    head.u8(1).u8(is_enveloped ? 1 : 0).u32(count);
    std::uint64_t offset = 0;
    for (std::uint32_t c = 0; c < count; ++c) {
      const std::span<const std::byte> column = chunk.encoded_bytes(c);
      head.u8(static_cast<std::uint8_t>(chunk.encoded_column(c).codec));
      head.u64(is_enveloped ? chunk.encoded_column(c).offset : offset).u64(column.size());
      offset += column.size();
      if (!is_enveloped) bytes.parts.push_back(column);
    }
    if (is_enveloped) bytes.parts.push_back(enveloped);
    return bytes;
  }
  head.u8(0).u8(0).u32(count);
  std::uint64_t offset = 0;
  for (std::uint32_t c = 0; c < count; ++c) {
    std::span<const std::byte> part;
    if (schema.is_variable(c)) {
      std::vector<RowSpan> spans(rows);
      for (std::uint32_t r = 0; r < rows; ++r) spans[r] = chunk.row_bytes(c, r);
      std::vector<std::byte> encoded;
      REVERIE_RETURN_IF_ERROR(encode_column(CodecId::kRaw, schema.column(c), spans, encoded));
      bytes.own.push_back(std::move(encoded));
      part = bytes.own.back();
    } else {
      part = {chunk.row(c, 0), rows * schema.row_bytes(c)};
    }
    head.u8(static_cast<std::uint8_t>(CodecId::kRaw)).u64(offset).u64(part.size());
    offset += part.size();
    bytes.parts.push_back(part);
  }
  return bytes;
}

void write_raw_rows(const Chunk& chunk, std::uint32_t rows, ByteWriter& out) {
  const ChunkSchema& schema = chunk.schema();
  out.u8(0).u8(0).u32(static_cast<std::uint32_t>(schema.column_count()));
  std::uint64_t offset = 0;
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    const std::uint64_t size = rows * schema.row_bytes(c);
    out.u8(static_cast<std::uint8_t>(CodecId::kRaw)).u64(offset).u64(size);
    offset += size;
  }
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    out.raw({chunk.row(c, 0), rows * schema.row_bytes(c)});
  }
}

Result<Ref<Chunk>> read_chunk(const ChunkEntry& entry, const Ref<const ChunkSchema>& schema,
                              std::span<const std::byte> bytes, Allocator& allocator) {
  ByteReader in(bytes);
  const std::uint8_t form = in.u8();
  const std::uint8_t envelope = in.u8();
  std::vector<Chunk::EncodedColumn> columns(in.count32(17));
  for (Chunk::EncodedColumn& column : columns) {
    column.codec = static_cast<CodecId>(in.u8());
    column.offset = in.u64();
    column.size_bytes = in.u64();
  }
  const std::span<const std::byte> data = in.raw(in.left());
  bool is_good = in.ok() && form <= 1 && envelope <= 1 && entry.rows > 0 &&
                 columns.size() == schema->column_count();
  for (const Chunk::EncodedColumn& column : columns) {
    is_good = is_good && column.offset <= data.size() &&
              column.size_bytes <= data.size() - column.offset &&
              (form == 1 || column.codec == CodecId::kRaw);
  }
  if (!is_good) return data_loss("its columns are not within its {} bytes", bytes.size());
  if (form == 1) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      REVERIE_RETURN_IF_ERROR(check_column(columns[c].codec, schema->column(c), entry.rows,
                                           data.subspan(columns[c].offset, columns[c].size_bytes)));
    }
    REVERIE_ASSIGN_OR_RETURN(Buffer storage, allocator.allocate(data.size()));
    std::copy(data.begin(), data.end(), storage.data());
    return Chunk::encoded(schema, entry.origin, entry.rows, std::move(storage), std::move(columns),
                          static_cast<Chunk::Envelope>(envelope));
  }
  std::vector<ColumnRows> decoded;
  std::size_t var_bytes = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto part = data.subspan(columns[c].offset, columns[c].size_bytes);
    REVERIE_ASSIGN_OR_RETURN(ColumnRows rows,
                             decode_column(CodecId::kRaw, schema->column(c), entry.rows, part));
    if (schema->is_variable(c)) var_bytes += part.size();
    decoded.push_back(std::move(rows));
  }
  // The bytes of all rows of fixed size are there, so the rows cannot need more memory than that;
  // cells of varying size are bounded by the sizes in the bytes.
  REVERIE_ASSIGN_OR_RETURN(Ref<Chunk> chunk,
                           Chunk::open(schema, entry.origin, entry.rows, var_bytes, allocator));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (schema->is_variable(c)) {
      for (std::uint32_t r = 0; r < entry.rows; ++r) chunk->set_row(c, r, decoded[c][r]);
    } else {
      const auto part = data.subspan(columns[c].offset, columns[c].size_bytes);
      std::copy(part.begin(), part.end(), const_cast<std::byte*>(chunk->row(c, 0)));
    }
  }
  chunk->publish(entry.rows);
  return chunk;
}

}  // namespace reverie::checkpoint
