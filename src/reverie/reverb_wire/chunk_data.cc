#include "reverie/reverb_wire/chunk_data.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "reverie/codec/column_codec.h"
#include "reverie/codec/reverb_column.h"
#include "reverie/reverb_wire/string_values.h"
#include "reverie/reverb_wire/tensor_type.h"
#include "reverie/tensor/block_heap.h"

namespace reverie::wire {
namespace {

constexpr std::size_t kColumnsMax = std::numeric_limits<std::uint16_t>::max();
// The bytes of one row of a chunk, at most. Products of it with a number of rows cannot overflow.
constexpr std::size_t kRowBytesMax = std::size_t{1} << 32;
// Rows may have no bytes: announcing them costs nothing, but iterating over them takes time.
constexpr std::int64_t kRowsMax = 1 << 24;

// The bytes of a schema, apart from its shape.
constexpr std::size_t kColumnBytes = 128;
constexpr std::size_t kColumnBytesFree = std::size_t{1} << 20;

// Key, sequence_range and the head of the data: four numbers, and tags.
constexpr std::size_t kHeadBytesMax = 64;

struct Tensor {
  TensorSpec spec;  // of one row
  std::int64_t rows = 0;
  Bytes content;
  bool has_strings = false;  // in separate fields, not in the content
};

// Columns without bytes cost a peer almost nothing to send, but their schemas take memory here.
bool may_have_columns(std::size_t count, std::size_t sent_bytes) {
  return count * kColumnBytes <= kColumnBytesFree + 2 * sent_bytes;
}

struct Parts {
  ChunkOrigin origin;
  bool delta_encoded = false;
  std::vector<Tensor> tensors;
};

Status read_tensor(Bytes message, Tensor& tensor) {
  std::int64_t number = 0;
  Shape shape;
  bool has_values = false;
  std::size_t strings = 0;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case varint_field(1):
        number = reader.get_enum();
        return Status();
      case bytes_field(2):
        return read_shape(get_bytes(reader), shape);
      case bytes_field(4):
        tensor.content = get_bytes(reader);
        return Status();
      case bytes_field(8):
        ++strings;
        reader.skip();
        return Status();
      default:
        has_values = has_values || (reader.tag() >= 5 && reader.tag() <= 18);
        reader.skip();
        return Status();
    }
  }));
  const std::optional<DType> dtype = dtype_from_wire(number);
  if (!dtype) {
    return invalid_argument("a tensor of a chunk has the data type {}, which cannot be kept",
                            number);
  }
  if (has_values && tensor.content.empty()) {
    return unimplemented(
        "a tensor of a chunk has its values in fields of their own; send them as tensor_content");
  }
  if (shape.empty()) {
    return invalid_argument("a tensor of a chunk is a scalar; it needs a leading axis of rows");
  }
  tensor.rows = shape.front();
  shape.erase(shape.begin());
  const std::optional<std::size_t> elements = checked_element_count(shape);
  if (!elements || *elements > kRowBytesMax) {
    return invalid_argument("a tensor of a chunk has rows of shape {}; a row has at most {} bytes",
                            shape_text(shape), kRowBytesMax);
  }
  if (strings > 0 && tensor.content.empty()) {
    std::size_t wanted = 0;
    if (*dtype != DType::kBytes || tensor.rows < 0 ||
        __builtin_mul_overflow(*elements, static_cast<std::size_t>(tensor.rows), &wanted) ||
        wanted != strings) {
      return invalid_argument(
          "a tensor of a chunk has {} rows of shape {} and {} strings; it must have one for each "
          "element",
          tensor.rows, shape_text(shape), strings);
    }
    tensor.has_strings = true;
  }
  tensor.spec = {"", *dtype, std::move(shape)};
  return {};
}

Status read_data(Bytes message, std::vector<Tensor>& tensors) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag != bytes_field(1)) {
      reader.skip();
      return Status();
    }
    if (tensors.size() == kColumnsMax) {
      return invalid_argument("a chunk has more than {} tensors", kColumnsMax);
    }
    if (!may_have_columns(tensors.size() + 1, message.size())) {
      return invalid_argument(
          "a chunk of {} bytes has more than {} tensors, which hold next to nothing; give it fewer "
          "columns",
          message.size(), tensors.size());
    }
    return read_tensor(get_bytes(reader), tensors.emplace_back());
  });
}

Status read_range(Bytes message, ChunkOrigin& origin) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case varint_field(1):
        origin.episode = reader.get_uint64();
        break;
      case varint_field(2):
        origin.first_step = static_cast<std::uint32_t>(reader.get_int32());
        break;
      default:
        reader.skip();
    }
    return Status();
  });
}

Status read_parts(Bytes message, Parts& parts) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case varint_field(1):
        parts.origin.key = reader.get_uint64();
        return Status();
      case bytes_field(2):
        return read_range(get_bytes(reader), parts.origin);
      case bytes_field(3):
        return unimplemented(
            "chunk {} has its tensors where clients before 2021 put them; use dm-reverb 0.14",
            parts.origin.key);
      case varint_field(4):
        parts.delta_encoded = get_flag(reader);
        return Status();
      case bytes_field(5):
        return read_data(get_bytes(reader), parts.tensors);
      default:
        reader.skip();
        return Status();
    }
  });
}

Status check(const Parts& parts) {
  if (parts.tensors.empty()) {
    return invalid_argument("chunk {} has no tensors; it needs at least one", parts.origin.key);
  }
  std::size_t row_bytes = 0;
  std::size_t content_bytes = 0;
  for (const Tensor& tensor : parts.tensors) {
    content_bytes += tensor.content.size();
    if (tensor.rows < 1 || tensor.rows > kRowsMax) {
      return invalid_argument("chunk {} has {} rows; it must have between 1 and {}",
                              parts.origin.key, tensor.rows, kRowsMax);
    }
    if (tensor.rows != parts.tensors.front().rows) {
      return invalid_argument("the tensors of chunk {} have {} and {} rows; all must have the same",
                              parts.origin.key, parts.tensors.front().rows, tensor.rows);
    }
    row_bytes += static_cast<std::size_t>(element_count(tensor.spec.shape)) *
                 std::max<std::size_t>(1, dtype_size_bytes(tensor.spec.dtype));
    if (row_bytes > kRowBytesMax) {
      return invalid_argument("a row of chunk {} has {} bytes and more; the bound is {}",
                              parts.origin.key, row_bytes, kRowBytesMax);
    }
  }
  const std::size_t plain_bytes = row_bytes * static_cast<std::size_t>(parts.tensors.front().rows);
  if (may_unfold_to(plain_bytes, content_bytes)) return {};
  return invalid_argument(
      "chunk {} unfolds from {} bytes to {}; the bound is {}, or {} times its own; use a smaller "
      "chunk_length",
      parts.origin.key, content_bytes, plain_bytes, kUnfoldedBytesMax, kUnfoldedRatioMax);
}

// The start of a tensor, up to its content, as a field of ChunkData.Data.
std::string tensor_head(std::int64_t number, const Shape& shape, std::size_t content_bytes) {
  std::string fields;
  put_int(fields, 1, number);
  put_message(fields, 2, write_shape(shape));
  put_head(fields, 4, content_bytes);
  std::string head;
  put_head(head, 1, fields.size() + content_bytes);
  return head + fields;
}

// Snappy's own bound.
std::size_t snappy_bytes_max(std::size_t plain_bytes) {
  return 32 + plain_bytes + plain_bytes / 6;
}

// The message with the strings of its tensors moved to where they are stored.
Result<Buffer> move_strings(Bytes message) {
  REVERIE_ASSIGN_OR_RETURN(const std::string moved,
                           read_message("ChunkData", [&]() -> Result<std::string> {
                             return with_strings_in_content(message);
                           }));
  REVERIE_ASSIGN_OR_RETURN(Buffer buffer, BlockHeap::shared().allocate(moved.size()));
  std::ranges::copy(bytes_of(moved), buffer.data());
  return buffer;
}

// The rows [begin, end) of one column; `decoded` keeps them if they were encoded.
Result<std::vector<RowSpan>> rows_of(const Chunk& chunk, bool is_raw, std::size_t column,
                                     std::uint32_t begin, std::uint32_t end,
                                     std::optional<ColumnRows>& decoded) {
  std::vector<RowSpan> rows;
  rows.reserve(end - begin);
  if (is_raw) {
    for (std::uint32_t r = begin; r < end; ++r) rows.push_back(chunk.row_bytes(column, r));
    return rows;
  }
  REVERIE_ASSIGN_OR_RETURN(
      ColumnRows all,
      decode_column(chunk.encoded_column(column).codec, chunk.schema().column(column), chunk.rows(),
                    chunk.encoded_bytes(column)));
  decoded.emplace(std::move(all));
  for (std::uint32_t r = begin; r < end; ++r) rows.push_back((*decoded)[r]);
  return rows;
}

}  // namespace

Ref<const ChunkSchema> SchemaCache::find(std::vector<TensorSpec> columns) {
  for (const auto& schema : schemas_) {
    if (std::ranges::equal(schema->columns(), columns)) return schema;
  }
  for (const TensorSpec& column : columns) {
    made_bytes_ += kColumnBytes + column.shape.size() * sizeof(std::int64_t);
  }
  auto made = Ref<const ChunkSchema>(make_ref<ChunkSchema>(std::move(columns)));
  if (schemas_.size() < kKept) {
    schemas_.push_back(made);
  } else {
    schemas_[next_] = made;
    next_ = (next_ + 1) % kKept;
  }
  return made;
}

Result<ChunkKey> chunk_key_of(Bytes message) {
  return read_message("ChunkData", [&]() -> Result<ChunkKey> {
    ChunkKey key = 0;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      if (tag == varint_field(1)) {
        key = reader.get_uint64();
      } else {
        reader.skip();
      }
      return Status();
    }));
    return key;
  });
}

Result<Ref<Chunk>> read_chunk(Buffer message, SchemaCache& schemas) {
  Parts parts;
  REVERIE_RETURN_IF_ERROR(
      read_message("ChunkData", [&] { return read_parts(message.bytes(), parts); }));
  REVERIE_RETURN_IF_ERROR(check(parts));
  if (std::ranges::any_of(parts.tensors, &Tensor::has_strings)) {
    REVERIE_ASSIGN_OR_RETURN(message, move_strings(message.bytes()));
    parts = {};
    REVERIE_RETURN_IF_ERROR(
        read_message("ChunkData", [&] { return read_parts(message.bytes(), parts); }));
  }
  const Bytes bytes = message.bytes();
  std::vector<TensorSpec> specs;
  std::vector<Chunk::EncodedColumn> columns;
  specs.reserve(parts.tensors.size());
  columns.reserve(parts.tensors.size());
  for (Tensor& tensor : parts.tensors) {
    const bool is_delta = parts.delta_encoded && reverb_delta_applies(tensor.spec);
    const std::size_t offset =
        tensor.content.empty() ? 0 : static_cast<std::size_t>(tensor.content.data() - bytes.data());
    columns.push_back(
        {is_delta ? CodecId::kReverbDelta : CodecId::kReverb, offset, tensor.content.size()});
    specs.push_back(std::move(tensor.spec));
  }
  return Chunk::encoded(schemas.find(std::move(specs)), parts.origin,
                        static_cast<std::uint32_t>(parts.tensors.front().rows), std::move(message),
                        std::move(columns), Chunk::Envelope::kWireMessage);
}

Result<WrittenChunk> encode_chunk(const Chunk& chunk, std::uint32_t begin, std::uint32_t end,
                                  ChunkKey key) {
  REVERIE_CHECK(begin < end);
  REVERIE_RETURN_IF_ERROR(chunk.check_published(end));
  const RawRows raw(chunk);
  const ChunkSchema& schema = chunk.schema();
  WrittenChunk written;
  std::vector<std::byte>& out = written.storage;
  out.resize(kHeadBytesMax);  // of the message: it is put in last, close to the first column
  std::size_t data_begin = 0;
  std::int64_t plain_bytes = 0;
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    const TensorSpec& spec = schema.column(c);
    const std::optional<std::int64_t> number = dtype_to_wire(spec.dtype);
    if (!number) {
      return unimplemented("column '{}' is {}, which Reverb's protocol has no number for",
                           spec.name, dtype_name(spec.dtype));
    }
    std::optional<ColumnRows> decoded;
    REVERIE_ASSIGN_OR_RETURN(const std::vector<RowSpan> rows,
                             rows_of(chunk, static_cast<bool>(raw), c, begin, end, decoded));
    std::size_t column_bytes = 0;
    for (const RowSpan row : rows) column_bytes += row.size();
    plain_bytes += static_cast<std::int64_t>(column_bytes);
    Shape shape = {static_cast<std::int64_t>(end - begin)};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    // Behind as much room as the head takes at most. Strings, whose lengths take four bytes here
    // and up to five there, stay far below Snappy's bound too.
    const std::size_t place = out.size();
    const std::size_t room = tensor_head(*number, shape, snappy_bytes_max(column_bytes)).size();
    out.resize(place + room);
    REVERIE_RETURN_IF_ERROR(encode_column(CodecId::kReverb, spec, rows, out));
    const std::string head = tensor_head(*number, shape, out.size() - place - room);
    const std::size_t gap = room - std::min(room, head.size());
    if (head.size() > room) {
      out.insert(out.begin() + static_cast<std::ptrdiff_t>(place), head.size() - room, std::byte{});
    }
    std::ranges::copy(bytes_of(head), out.begin() + static_cast<std::ptrdiff_t>(place + gap));
    if (c == 0) {
      data_begin = place + gap;
    } else if (gap > 0) {
      const auto at = out.begin() + static_cast<std::ptrdiff_t>(place);
      out.erase(at, at + static_cast<std::ptrdiff_t>(gap));
    }
  }
  std::string range;
  put_uint(range, 1, chunk.episode());
  const std::int64_t first_step = std::int64_t{chunk.first_step()} + begin;
  put_int(range, 2, static_cast<std::int32_t>(first_step));
  put_int(range, 3, static_cast<std::int32_t>(first_step + (end - begin) - 1));
  std::string head;
  put_uint(head, 1, key);
  put_message(head, 2, range);
  put_head(head, 5, out.size() - data_begin);
  REVERIE_CHECK(head.size() <= kHeadBytesMax);
  written.begin = data_begin - head.size();
  std::ranges::copy(bytes_of(head), out.begin() + static_cast<std::ptrdiff_t>(written.begin));
  std::string tail;
  put_int(tail, 6, static_cast<std::int64_t>(schema.column_count()));
  put_int(tail, 7, plain_bytes);
  const Bytes tail_bytes = bytes_of(tail);
  out.insert(out.end(), tail_bytes.begin(), tail_bytes.end());
  return written;
}

Result<std::string> write_chunk(const Chunk& chunk, std::uint32_t begin, std::uint32_t end,
                                ChunkKey key) {
  REVERIE_ASSIGN_OR_RETURN(const WrittenChunk written, encode_chunk(chunk, begin, end, key));
  return std::string(text_of(written.bytes()));
}

}  // namespace reverie::wire
