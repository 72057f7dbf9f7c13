#include "reverie/reverb_wire/item.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace reverie::wire {
namespace {

constexpr std::size_t kPlacesMax = std::numeric_limits<std::uint16_t>::max();
constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
// The size of a written field with a number below 16.
constexpr std::size_t kDoubleBytes = 9;
constexpr std::size_t kBoolBytes = 2;

Status too_many(const char* what) {
  return invalid_argument("an item has more than {} {}; use longer chunks or shorter items",
                          kPlacesMax, what);
}

Status read_slice(Bytes message, Slice& slice) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case varint_field(1):
        slice.chunk_key = reader.get_uint64();
        break;
      case varint_field(2):
        slice.offset = reader.get_int32();
        break;
      case varint_field(3):
        slice.length = reader.get_int32();
        break;
      case varint_field(4):
        slice.index = reader.get_int32();
        break;
      default:
        reader.skip();
    }
    return Status();
  });
}

Status read_column(Bytes message, WireItem& item) {
  if (item.columns.size() == kPlacesMax) return too_many("columns");
  WireItem::Column column;
  column.slice_begin = static_cast<std::uint32_t>(item.slices.size());
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case bytes_field(1):
        if (item.slices.size() == kPlacesMax) return too_many("slices of chunks");
        return read_slice(get_bytes(reader), item.slices.emplace_back());
      case varint_field(2):
        column.squeeze = get_flag(reader);
        return Status();
      default:
        reader.skip();
        return Status();
    }
  }));
  column.slice_end = static_cast<std::uint32_t>(item.slices.size());
  item.columns.push_back(column);
  return {};
}

Status read_trajectory(Bytes message, WireItem& item) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == bytes_field(1)) return read_column(get_bytes(reader), item);
    reader.skip();
    return Status();
  });
}

Status read_time(Bytes message, std::int64_t& ns) {
  std::int64_t seconds = 0;
  std::int64_t nanos = 0;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == varint_field(1)) {
      seconds = reader.get_int64();
    } else if (tag == varint_field(2)) {
      nanos = reader.get_int32();
    } else {
      reader.skip();
    }
    return Status();
  }));
  if (__builtin_mul_overflow(seconds, kNanosPerSecond, &ns) ||
      __builtin_add_overflow(ns, nanos, &ns)) {
    return invalid_argument("an item was inserted {} s after 1970; the bound is 292 years",
                            seconds);
  }
  return {};
}

std::string write_time(std::int64_t ns) {
  std::int64_t seconds = ns / kNanosPerSecond;
  std::int64_t nanos = ns % kNanosPerSecond;
  if (nanos < 0) {
    nanos += kNanosPerSecond;
    --seconds;
  }
  std::string out;
  put_int(out, 1, seconds);
  put_int(out, 2, nanos);
  return out;
}

// The bytes that put_uint() and put_int() write.
std::size_t uint_bytes(std::uint32_t number, std::uint64_t value) {
  return value == 0 ? 0 : varint_bytes(varint_field(number)) + varint_bytes(value);
}
std::size_t int_bytes(std::uint32_t number, std::int64_t value) {
  return uint_bytes(number, static_cast<std::uint64_t>(value));
}

std::size_t slice_bytes(const Slice& slice) {
  return uint_bytes(1, slice.chunk_key) + int_bytes(2, slice.offset) + int_bytes(3, slice.length) +
         int_bytes(4, slice.index);
}

std::size_t column_bytes(const WireItem& item, const WireItem::Column& column) {
  std::size_t size = column.squeeze ? kBoolBytes : 0;
  for (std::uint32_t s = column.slice_begin; s < column.slice_end; ++s) {
    const std::size_t slice = slice_bytes(item.slices[s]);
    size += head_bytes(1, slice) + slice;
  }
  return size;
}

Status read_fields(Bytes message, WireItem& item) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case varint_field(1):
        item.key = reader.get_uint64();
        return Status();
      case bytes_field(2):
        item.table = text_of(get_bytes(reader));
        return Status();
      case double_field(5):
        item.priority = reader.get_double();
        return Status();
      case varint_field(6):
        item.times_sampled = reader.get_int32();
        return Status();
      case bytes_field(7):
        return read_time(get_bytes(reader), item.inserted_at_ns);
      case bytes_field(8):
        return read_trajectory(get_bytes(reader), item);
      default:
        reader.skip();
        return Status();
    }
  });
}

}  // namespace

void WireItem::clear() {
  key = 0;
  table = {};
  priority = 0;
  times_sampled = 0;
  inserted_at_ns = 0;
  slices.clear();
  columns.clear();
}

Result<WireItem> read_item(Bytes message) {
  WireItem item;
  REVERIE_RETURN_IF_ERROR(read_item(message, item));
  return item;
}

Status read_item(Bytes message, WireItem& item) {
  return read_message("PrioritizedItem", [&] { return read_fields(message, item); });
}

std::string write_item(const WireItem& item) {
  const ItemBytes bytes = item_bytes(item);
  std::string out;
  out.reserve(bytes.all);
  append_item(out, item, bytes);
  return out;
}

ItemBytes item_bytes(const WireItem& item) {
  ItemBytes bytes;
  for (const WireItem::Column& column : item.columns) {
    const std::size_t size = column_bytes(item, column);
    bytes.trajectory += head_bytes(1, size) + size;
  }
  bytes.all = uint_bytes(1, item.key) + head_bytes(8, bytes.trajectory) + bytes.trajectory;
  if (!item.table.empty()) bytes.all += head_bytes(2, item.table.size()) + item.table.size();
  if (std::bit_cast<std::uint64_t>(item.priority) != 0) bytes.all += kDoubleBytes;
  bytes.all += int_bytes(6, item.times_sampled);
  if (item.inserted_at_ns != 0) {
    const std::size_t size = write_time(item.inserted_at_ns).size();
    bytes.all += head_bytes(7, size) + size;
  }
  return bytes;
}

void append_item(std::string& out, const WireItem& item, const ItemBytes& bytes) {
  put_uint(out, 1, item.key);
  put_text(out, 2, item.table);
  put_double(out, 5, item.priority);
  put_int(out, 6, item.times_sampled);
  if (item.inserted_at_ns != 0) put_message(out, 7, write_time(item.inserted_at_ns));
  put_head(out, 8, bytes.trajectory);
  for (const WireItem::Column& column : item.columns) {
    put_head(out, 1, column_bytes(item, column));
    for (std::uint32_t s = column.slice_begin; s < column.slice_end; ++s) {
      const Slice& slice = item.slices[s];
      put_head(out, 1, slice_bytes(slice));
      put_uint(out, 1, slice.chunk_key);
      put_int(out, 2, slice.offset);
      put_int(out, 3, slice.length);
      put_int(out, 4, slice.index);
    }
    put_bool(out, 2, column.squeeze);
  }
}

ColumnNames ColumnNames::numbered(std::size_t column_count) {
  ColumnNames made;
  made.structure = "{\"list\": [";
  for (std::size_t i = 0; i < column_count; ++i) {
    made.names.push_back(std::to_string(i));
    made.structure += i == 0 ? "\"*\"" : ", \"*\"";
  }
  made.structure += "]}";
  return made;
}

ColumnNames ColumnNames::of(const std::optional<Signature>& signature) {
  ColumnNames made;
  if (!signature) return made;
  for (const TensorSpec& spec : signature->columns) made.names.push_back(spec.name);
  made.structure = signature->structure;
  return made;
}

Status TrajectoryReader::place_column(const WireItem& item, std::size_t c,
                                      const FindChunk& find_chunk) {
  const WireItem::Column& column = item.columns[c];
  const auto slices =
      std::span(item.slices).subspan(column.slice_begin, column.slice_end - column.slice_begin);
  if (slices.empty()) {
    if (c == 0) return invalid_argument("Item trajectory must not be empty.");
    return invalid_argument("column {} of item {} has no rows; give it at least one", c, item.key);
  }
  const std::int32_t index = slices.front().index;
  const std::size_t begin = pieces_.size();
  std::int64_t rows = 0;
  for (const Slice& slice : slices) {
    const Chunk* const chunk = find_chunk(slice.chunk_key);
    if (!chunk) return internal_error("Could not find sequence chunk {}.", slice.chunk_key);
    if (slice.index != index || slice.index < 0 ||
        static_cast<std::size_t>(slice.index) >= chunk->schema().column_count()) {
      return invalid_argument(
          "column {} of item {} refers to tensor {} of chunk {}, which has {}; all slices of a "
          "column must refer to the same",
          c, item.key, slice.index, slice.chunk_key, chunk->schema().column_count());
    }
    if (slice.offset < 0 || slice.length < 1 ||
        std::int64_t{slice.offset} + slice.length > chunk->rows()) {
      return invalid_argument(
          "column {} of item {} refers to {} rows from {} of chunk {}, which has {}; a slice must "
          "be non-empty and lie inside its chunk",
          c, item.key, slice.length, slice.offset, slice.chunk_key, chunk->rows());
    }
    pieces_.push_back({chunk, static_cast<std::uint32_t>(slice.offset),
                       static_cast<std::uint32_t>(slice.length)});
    const auto& first = pieces_[begin].chunk->schema().column(static_cast<std::size_t>(index));
    const auto& stored = chunk->schema().column(static_cast<std::size_t>(index));
    if (stored.dtype != first.dtype || stored.shape != first.shape) {
      return invalid_argument("column {} of item {} has rows of {} {} and of {} {}", c, item.key,
                              dtype_name(first.dtype), shape_text(first.shape),
                              dtype_name(stored.dtype), shape_text(stored.shape));
    }
    rows += slice.length;
  }
  if (rows > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument("column {} of item {} has {} rows; the bound is 2147483647", c,
                            item.key, rows);
  }
  if (column.squeeze && rows != 1) {
    return invalid_argument(
        "column {} of item {} is squeezed but has {} rows; only one row can be squeezed", c,
        item.key, rows);
  }
  const std::size_t place = share_pieces(begin);
  places_.push_back({static_cast<std::uint16_t>(index), static_cast<std::uint16_t>(place),
                     static_cast<std::uint16_t>(place + slices.size()), column.squeeze});
  return {};
}

// Steps that are inserted one by one are chunks of one row each; an observation and the next one,
// as stacks, share all of them but two.
std::size_t TrajectoryReader::share_pieces(std::size_t begin) {
  const auto same = [](const Piece& a, const Piece& b) {
    return a.chunk == b.chunk && a.offset == b.offset && a.length == b.length;
  };
  if (pieces_.size() > kSharedMax) return begin;
  const auto all = std::span<const Piece>(pieces_);
  const std::span<const Piece> others = all.first(begin);
  const std::span<const Piece> mine = all.subspan(begin);
  const auto found = std::search(others.begin(), others.end(), mine.begin(), mine.end(), same);
  if (!mine.empty() && found != others.end()) {
    const auto place = static_cast<std::size_t>(found - others.begin());
    pieces_.resize(begin);
    return place;
  }
  // The longest overlap of the end of one and the beginning of the other.
  const auto overlap = [&](std::span<const Piece> a, std::span<const Piece> b) {
    std::size_t count = std::min(a.size(), b.size());
    while (!std::ranges::equal(a.last(count), b.first(count), same)) --count;
    return count;
  };
  const std::size_t behind = overlap(others, mine);
  const std::size_t before = overlap(mine, others);
  if (behind >= before) {
    pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(begin),
                  pieces_.begin() + static_cast<std::ptrdiff_t>(begin + behind));
    return begin - behind;
  }
  const std::size_t added = mine.size() - before;
  pieces_.resize(begin + added);
  std::rotate(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(begin), pieces_.end());
  for (Place& other : places_) {
    other.piece_begin = static_cast<std::uint16_t>(other.piece_begin + added);
    other.piece_end = static_cast<std::uint16_t>(other.piece_end + added);
  }
  return 0;
}

bool TrajectoryReader::is_like(const Layout& layout) const {
  return std::ranges::equal(
      layout.columns(), places_, [&](const LayoutColumn& column, const Place& place) {
        const TensorSpec& spec = spec_of(place);
        return column.chunk_column == place.chunk_column &&
               column.piece_begin == place.piece_begin && column.piece_end == place.piece_end &&
               column.squeezed == place.squeezed && column.spec.dtype == spec.dtype &&
               column.spec.shape == spec.shape;
      });
}

const Ref<const Layout>& TrajectoryReader::find_layout(const ColumnNames& names) {
  for (const Kept& kept : layouts_) {
    if (kept.names == &names && is_like(*kept.layout)) return kept.layout;
  }
  const bool has_names = names.names.size() == places_.size();
  const ColumnNames numbered = has_names ? ColumnNames() : ColumnNames::numbered(places_.size());
  const ColumnNames& used = has_names ? names : numbered;
  std::vector<LayoutColumn> columns;
  columns.reserve(places_.size());
  for (std::size_t c = 0; c < places_.size(); ++c) {
    const Place& place = places_[c];
    LayoutColumn& column = columns.emplace_back();
    column.spec = spec_of(place);
    column.spec.name = used.names[c];
    column.chunk_column = place.chunk_column;
    column.piece_begin = place.piece_begin;
    column.piece_end = place.piece_end;
    column.squeezed = place.squeezed;
    // It is unknown which of Reverb's writers made the item, and some have signatures of one step.
    column.stepwise = true;
  }
  Kept made{make_ref<Layout>(std::move(columns), used.structure), &names};
  if (layouts_.size() < kKept) return layouts_.emplace_back(std::move(made)).layout;
  Kept& replaced = layouts_[next_];
  next_ = (next_ + 1) % kKept;
  replaced = std::move(made);
  return replaced.layout;
}

Result<Trajectory> TrajectoryReader::read(const WireItem& item, const ColumnNames& names,
                                          const FindChunk& find_chunk) {
  pieces_.clear();
  places_.clear();
  for (std::size_t c = 0; c < item.columns.size(); ++c) {
    REVERIE_RETURN_IF_ERROR(place_column(item, c, find_chunk));
  }
  if (pieces_.empty()) return invalid_argument("Item trajectory must not be empty.");
  return Trajectory(find_layout(names), pieces_);
}

}  // namespace reverie::wire
