// Tested in packed_samples_test.cc.
#include "reverie/native_wire/packed_reader.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "reverie/codec/codec.h"
#include "reverie/codec/column_codec.h"
#include "reverie/native_wire/chunk_bounds.h"
#include "reverie/tensor/shape.h"

namespace reverie {
namespace {

using packed::Cursor;

Status cut_short(const char* what) {
  return data_loss("packed samples end within their {}", what);
}

template <typename T>
T value_at(std::span<const std::byte> array, std::size_t i) {
  T value;
  std::memcpy(&value, array.data() + i * sizeof(T), sizeof(T));
  return value;
}

bool is_dtype(DType dtype) {
  return dtype >= DType::kBool && dtype <= DType::kString;
}

bool is_codec(CodecId codec) {
  switch (codec) {
    case CodecId::kRaw:
    case CodecId::kLz4:
    case CodecId::kZstd:
    case CodecId::kExternal:
    case CodecId::kReverb:
    case CodecId::kReverbDelta:
      return true;
  }
  return false;
}

class Reading {
 public:
  Reading(std::span<const std::byte> packed, const ViewPart& view, const wire::ColumnNames& names,
          PackedSamples& samples, const FindMapped& find_mapped)
      : bytes_(packed), view_(view), names_(names), samples_(samples), find_mapped_(find_mapped) {}

  Status read(std::size_t count_max) {
    if (!bytes_.take(&header_)) return cut_short("header");
    if (header_.item_count == 0 || header_.item_count > count_max) {
      return data_loss("the server sent {} packed samples where between 1 and {} were expected",
                       header_.item_count, count_max);
    }
    arrays_ = bytes_.take_array(header_.item_count, packed::kItemBytes);
    if (!arrays_) return cut_short("arrays");
    if ((header_.flags & packed::kHasRedelivered) != 0) {
      redelivered_ = bytes_.take_array(header_.item_count, 1);
      if (!redelivered_) return cut_short("arrays");
    }
    pieces_ = bytes_.take_array(header_.piece_count, sizeof(packed::WirePiece));
    if (!pieces_) return cut_short("pieces");
    for (std::uint32_t i = 0; i < header_.schema_count; ++i) {
      REVERIE_RETURN_IF_ERROR(read_schema());
    }
    for (std::uint32_t i = 0; i < header_.layout_count; ++i) {
      REVERIE_RETURN_IF_ERROR(read_layout());
    }
    REVERIE_RETURN_IF_ERROR(read_chunks());
    return read_pieces();
  }

  // Requires that everything was read.
  void append_to(SampleBatch& batch) const {
    const std::size_t count = header_.item_count;
    const SampleRows rows = batch.extend(count);
    const auto* from = arrays_->data();
    const auto copy = [&](auto* to) {
      std::memcpy(to, from, count * sizeof(*to));
      from += count * sizeof(*to);
    };
    copy(rows.keys);
    copy(rows.probabilities);
    copy(rows.priorities);
    copy(rows.inserted_at_ns);
    copy(rows.table_sizes);
    copy(rows.versions);
    copy(rows.times_sampled);
    std::copy_n(rows.keys, count, rows.tickets);
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Layout* const layout = samples_.layouts[value_at<std::uint32_t>(layout_ids(), i)].get();
      TrajectoryView& view = rows.trajectories[i];
      view.layout = layout;
      if (layout->piece_count() == 1) {
        view.one = samples_.pieces[at];
      } else {
        view.many = samples_.pieces.data() + at;
      }
      at += layout->piece_count();
    }
    batch.set_table_size(rows.table_sizes[count - 1]);
    batch.set_drawn_at({header_.drawn_at_ns});
    if ((header_.flags & packed::kRateLimited) != 0) batch.set_rate_limited();
    for (std::size_t i = 0; redelivered_ && i < count; ++i) {
      if ((*redelivered_)[i] != std::byte{0}) batch.set_redelivered(batch.size() - count + i);
    }
  }

 private:
  std::span<const std::byte> layout_ids() const {
    return arrays_->last(std::size_t{header_.item_count} * sizeof(std::uint32_t));
  }

  Status read_schema() {
    std::uint16_t column_count = 0;
    if (!bytes_.take(&column_count)) return cut_short("schemas");
    std::vector<TensorSpec> columns;
    std::size_t row_bytes = 0;
    for (std::uint16_t c = 0; c < column_count; ++c) {
      TensorSpec spec;
      std::uint8_t rank = 0;
      if (!bytes_.take(&spec.dtype) || !bytes_.take(&rank)) return cut_short("schemas");
      if (!is_dtype(spec.dtype) || rank > kAxesMax) {
        return data_loss("a packed column has the data type {} and {} axes; they are unknown",
                         static_cast<int>(spec.dtype), rank);
      }
      const auto shape = bytes_.take_array(rank, sizeof(std::int64_t));
      if (!shape) return cut_short("schemas");
      for (std::size_t i = 0; i < rank; ++i)
        spec.shape.push_back(value_at<std::int64_t>(*shape, i));
      const std::optional<std::size_t> elements = checked_element_count(spec.shape);
      if (!elements || *elements > kRowBytesMax) {
        return data_loss("a packed column has rows of shape {}; a row has at most {} bytes",
                         shape_text(spec.shape), kRowBytesMax);
      }
      row_bytes += *elements * std::max<std::size_t>(1, dtype_size_bytes(spec.dtype));
      if (row_bytes > kRowBytesMax) {
        return data_loss("a packed row has {} bytes and more; the bound is {}", row_bytes,
                         kRowBytesMax);
      }
      columns.push_back(std::move(spec));
    }
    samples_.schemas.push_back(make_ref<ChunkSchema>(std::move(columns)));
    return {};
  }

  Status read_layout() {
    std::uint16_t piece_count = 0;
    std::uint16_t column_count = 0;
    if (!bytes_.take(&piece_count) || !bytes_.take(&column_count)) return cut_short("layouts");
    const auto schemas = bytes_.take_array(piece_count, sizeof(std::uint32_t));
    if (!schemas) return cut_short("layouts");
    std::vector<std::uint32_t>& of_pieces = layout_schemas_.emplace_back();
    for (std::size_t p = 0; p < piece_count; ++p) {
      of_pieces.push_back(value_at<std::uint32_t>(*schemas, p));
      if (of_pieces.back() >= samples_.schemas.size()) {
        return data_loss("a packed layout has schema {} of {}", of_pieces.back(),
                         samples_.schemas.size());
      }
    }
    const bool has_names = names_.names.size() == column_count;
    const wire::ColumnNames numbered =
        has_names ? wire::ColumnNames() : wire::ColumnNames::numbered(column_count);
    const wire::ColumnNames& used = has_names ? names_ : numbered;
    std::vector<LayoutColumn> columns;
    std::uint32_t piece_end = 0;
    for (std::uint16_t c = 0; c < column_count; ++c) {
      LayoutColumn& column = columns.emplace_back();
      std::uint8_t flags = 0;
      if (!bytes_.take(&column.chunk_column) || !bytes_.take(&column.piece_begin) ||
          !bytes_.take(&column.piece_end) || !bytes_.take(&flags)) {
        return cut_short("layouts");
      }
      if (column.piece_begin >= column.piece_end || column.piece_end > piece_count) {
        return data_loss("a packed column has pieces {} to {} of {}", column.piece_begin,
                         column.piece_end, piece_count);
      }
      for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
        const ChunkSchema& schema = *samples_.schemas[of_pieces[p]];
        if (column.chunk_column >= schema.column_count()) {
          return data_loss("a packed column is column {} of a chunk of {}", column.chunk_column,
                           schema.column_count());
        }
        const TensorSpec& spec = schema.column(column.chunk_column);
        if (p == column.piece_begin) column.spec = spec;
        if (spec.dtype != column.spec.dtype || spec.shape != column.spec.shape) {
          return data_loss("a packed column has rows of {} {} and of {} {}",
                           dtype_name(column.spec.dtype), shape_text(column.spec.shape),
                           dtype_name(spec.dtype), shape_text(spec.shape));
        }
      }
      column.squeezed = (flags & packed::kSqueezedFlag) != 0;
      if ((flags & packed::kOtherTextFlag) != 0) {
        if (!has_variable_size(column.spec.dtype)) {
          return data_loss("a packed column of {} is to be read as text",
                           dtype_name(column.spec.dtype));
        }
        column.spec.dtype = column.spec.dtype == DType::kBytes ? DType::kString : DType::kBytes;
      }
      column.spec.name = used.names[c];
      piece_end = std::max<std::uint32_t>(piece_end, column.piece_end);
    }
    if (column_count == 0 || piece_end != piece_count) {
      return data_loss("a packed layout of {} columns uses {} of its {} pieces", column_count,
                       piece_end, piece_count);
    }
    samples_.layouts.push_back(make_ref<Layout>(std::move(columns), used.structure));
    return {};
  }

  // The description of a chunk in the message, before its bytes are located.
  struct Announced {
    std::uint32_t schema = 0;
    std::uint32_t rows = 0;
    packed::Form form = packed::Form::kRows;
    std::size_t size_bytes = 0;  // in the message, or in mapped memory
    std::vector<Chunk::EncodedColumn> columns;
    std::span<std::byte> mapped;

    bool is_mapped() const { return form >= packed::Form::kMappedRows; }
    bool is_raw() const { return form == packed::Form::kRows || form == packed::Form::kMappedRows; }
  };

  Status find_mapped(Announced& chunk) {
    packed::Mapped mapped;
    if (!bytes_.take(&mapped)) return cut_short("chunks");
    if (!find_mapped_) return data_loss("a packed chunk is in memory that is not mapped");
    REVERIE_ASSIGN_OR_RETURN(chunk.mapped, find_mapped_(mapped));
    return {};
  }

  Status read_announced(Announced& chunk) {
    if (!bytes_.take(&chunk.schema) || !bytes_.take(&chunk.rows) || !bytes_.take(&chunk.form)) {
      return cut_short("chunks");
    }
    if (chunk.schema >= samples_.schemas.size()) {
      return data_loss("a packed chunk has schema {} of {}", chunk.schema, samples_.schemas.size());
    }
    if (chunk.rows < 1 || chunk.rows > kRowsMax) {
      return data_loss("a packed chunk has {} rows; it must have between 1 and {}", chunk.rows,
                       kRowsMax);
    }
    const ChunkSchema& schema = *samples_.schemas[chunk.schema];
    if (chunk.form > packed::Form::kMappedColumns) {
      return data_loss("a packed chunk has form {}", static_cast<int>(chunk.form));
    }
    if (chunk.is_mapped()) REVERIE_RETURN_IF_ERROR(find_mapped(chunk));
    if (chunk.is_raw()) {
      if (schema.has_variable()) return data_loss("packed rows are of varying size");
      chunk.size_bytes = chunk.rows * schema.step_bytes();
      if (chunk.is_mapped() && chunk.size_bytes > chunk.mapped.size()) {
        return data_loss("packed rows of {} bytes are in memory of {}", chunk.size_bytes,
                         chunk.mapped.size());
      }
      return {};
    }
    for (std::size_t c = 0; c < schema.column_count(); ++c) {
      Chunk::EncodedColumn& column = chunk.columns.emplace_back();
      std::uint64_t size = 0;
      if (!bytes_.take(&column.codec) || !bytes_.take(&size)) return cut_short("chunks");
      if (!is_codec(column.codec)) {
        return data_loss("a packed column has codec {}", static_cast<int>(column.codec));
      }
      if (chunk.is_mapped()) {
        std::uint64_t offset = 0;
        if (!bytes_.take(&offset)) return cut_short("chunks");
        if (offset > chunk.mapped.size() || size > chunk.mapped.size() - offset) {
          return data_loss("a packed column of {} bytes at {} is in memory of {}", size, offset,
                           chunk.mapped.size());
        }
        column.offset = offset;
      } else {
        if (size > bytes_.left().size()) return cut_short("chunks");
        column.offset = chunk.size_bytes;
      }
      column.size_bytes = size;
      chunk.size_bytes += size;
    }
    const std::size_t plain_bytes = chunk.rows * schema.step_bytes();
    if (!may_unfold_to(plain_bytes, chunk.size_bytes)) {
      return data_loss(
          "a packed chunk unfolds from {} bytes to {}; the bound is {}, or {} times its own",
          chunk.size_bytes, plain_bytes, kUnfoldedBytesMax, kUnfoldedRatioMax);
    }
    return {};
  }

  Status read_chunks() {
    std::vector<Announced> announced;
    for (std::uint32_t i = 0; i < header_.chunk_count; ++i) {
      REVERIE_RETURN_IF_ERROR(read_announced(announced.emplace_back()));
    }
    for (Announced& chunk : announced) {
      Buffer storage;
      if (chunk.is_mapped()) {
        const std::size_t size = chunk.is_raw() ? chunk.size_bytes : chunk.mapped.size();
        storage = view_(chunk.mapped.first(size));
        samples_.is_mapped = true;
      } else {
        const auto bytes = bytes_.take_array(chunk.size_bytes, 1);
        if (!bytes) return cut_short("bytes of chunks");
        storage = view_(*bytes);
      }
      const Ref<const ChunkSchema>& schema = samples_.schemas[chunk.schema];
      chunk_schemas_.push_back(chunk.schema);
      samples_.chunks.push_back(chunk.is_raw()
                                    ? Chunk::of_rows(schema, {}, chunk.rows, std::move(storage))
                                    : Chunk::encoded(schema, {}, chunk.rows, std::move(storage),
                                                     std::move(chunk.columns)));
    }
    if (!bytes_.left().empty()) {
      return data_loss("packed samples have {} bytes that belong to no chunk",
                       bytes_.left().size());
    }
    return {};
  }

  Status read_pieces() {
    samples_.pieces.reserve(header_.piece_count);
    std::size_t at = 0;
    for (std::size_t i = 0; i < header_.item_count; ++i) {
      const auto id = value_at<std::uint32_t>(layout_ids(), i);
      if (id >= samples_.layouts.size()) {
        return data_loss("packed sample {} has layout {} of {}", i, id, samples_.layouts.size());
      }
      const std::vector<std::uint32_t>& schemas = layout_schemas_[id];
      if (schemas.size() > header_.piece_count - at) return cut_short("pieces");
      const std::size_t begin = at;
      std::uint64_t rows = 0;
      for (const std::uint32_t schema : schemas) {
        const auto piece = value_at<packed::WirePiece>(*pieces_, at++);
        if (piece.chunk >= samples_.chunks.size() || chunk_schemas_[piece.chunk] != schema) {
          return data_loss("packed sample {} refers to chunk {} of {}, or one of other columns", i,
                           piece.chunk, samples_.chunks.size());
        }
        const Chunk& chunk = *samples_.chunks[piece.chunk];
        if (piece.length < 1 || std::uint64_t{piece.offset} + piece.length > chunk.rows()) {
          return data_loss(
              "packed sample {} refers to {} rows from {} of a chunk of {}; a slice must be "
              "non-empty and lie inside its chunk",
              i, piece.length, piece.offset, chunk.rows());
        }
        rows += piece.length;
        samples_.pieces.push_back({&chunk, piece.offset, piece.length});
      }
      if (rows > std::numeric_limits<std::int32_t>::max()) {
        return data_loss("packed sample {} has {} rows; the bound is 2147483647", i, rows);
      }
      for (const LayoutColumn& column : samples_.layouts[id]->columns()) {
        if (!column.squeezed) continue;
        if (column.piece_end - column.piece_begin != 1 ||
            samples_.pieces[begin + column.piece_begin].length != 1) {
          return data_loss("column '{}' of packed sample {} is squeezed but has several rows",
                           column.spec.name, i);
        }
      }
    }
    if (at != header_.piece_count) {
      return data_loss("packed samples have {} pieces, of which {} are used", header_.piece_count,
                       at);
    }
    return {};
  }

  Cursor bytes_;
  const ViewPart& view_;
  const wire::ColumnNames& names_;
  PackedSamples& samples_;
  const FindMapped& find_mapped_;
  packed::Header header_;
  std::optional<std::span<const std::byte>> arrays_;
  std::optional<std::span<const std::byte>> redelivered_;
  std::optional<std::span<const std::byte>> pieces_;
  std::vector<std::vector<std::uint32_t>> layout_schemas_;  // of each piece
  std::vector<std::uint32_t> chunk_schemas_;
};

}  // namespace

Status read_packed(std::span<const std::byte> packed, const ViewPart& view,
                   const wire::ColumnNames& names, std::size_t count_max, SampleBatch& batch,
                   PackedSamples& samples, const FindMapped& find_mapped) {
  Reading reading(packed, view, names, samples, find_mapped);
  REVERIE_RETURN_IF_ERROR(reading.read(count_max));
  reading.append_to(batch);
  return {};
}

Status read_packed(const Ref<GrpcMessage>& message, std::span<const std::byte> packed,
                   const wire::ColumnNames& names, std::size_t count_max, SampleBatch& batch,
                   PackedSamples& samples) {
  const auto view = [&](std::span<const std::byte> part) {
    const auto offset = part.empty()
                            ? std::size_t{0}
                            : static_cast<std::size_t>(part.data() - message->bytes().data());
    return Ref<GrpcMessage>(message)->view(offset, part.size());
  };
  return read_packed(packed, view, names, count_max, batch, samples);
}

}  // namespace reverie
