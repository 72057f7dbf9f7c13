// Tested in insert_mirror_test.cc.
#include "reverie/adapters/peer/insert_ledger.h"

#include <algorithm>
#include <utility>

namespace reverie {

using insert_records::Record;

namespace {

// Further names are not searched among those that were sent: they are sent again.
constexpr std::size_t kNamesMax = 256;

// Rows of a chunk that its writer may encode meanwhile. Members in order of release: rows first.
struct KeptRows {
  Ref<const Chunk> chunk;
  RawRows rows;
};

}  // namespace

void InsertLedger::begin(std::uint32_t writer, std::uint64_t first_number,
                         std::uint64_t settled_below) {
  payload_.head.reserve(std::size_t{4} << 10);
  out_.put(insert_records::Head{writer, 0, first_number, settled_below});
}

void InsertLedger::restart() {
  payload_ = {};
  bulk_bytes_ = 0;
  tables_.clear();
  schemas_.clear();
  layouts_.clear();
  last_table_ = 0;
  last_layout_ = 0;
  chunks_.clear();
  last_ = nullptr;
}

std::uint16_t InsertLedger::table_of(std::string_view table) {
  if (last_table_ < tables_.size() && tables_[last_table_] == table) return last_table_;
  const auto found = std::ranges::find(tables_, table);
  last_table_ = static_cast<std::uint16_t>(found - tables_.begin());
  if (found == tables_.end()) {
    tables_.emplace_back(table);
    put(Record::kTable);
    out_.text(table);
  }
  return last_table_;
}

std::uint32_t InsertLedger::schema_of(const Chunk& chunk) {
  const auto begin = schemas_.size() > kNamesMax ? schemas_.end() - kNamesMax : schemas_.begin();
  const auto found = std::find(begin, schemas_.end(), chunk.shared_schema());
  const auto id = static_cast<std::uint32_t>(found - schemas_.begin());
  if (found != schemas_.end()) return id;
  schemas_.push_back(chunk.shared_schema());
  put(Record::kSchema);
  const auto columns = chunk.schema().columns();
  out_.put(static_cast<std::uint32_t>(columns.size()));
  for (const TensorSpec& spec : columns) {
    out_.put(static_cast<std::uint8_t>(spec.dtype));
    out_.array(std::span<const std::int64_t>(spec.shape));
  }
  return id;
}

std::uint32_t InsertLedger::layout_of(const TrajectoryView& view) {
  if (last_layout_ < layouts_.size() && layouts_[last_layout_].get() == view.layout) {
    return last_layout_;
  }
  const auto begin = layouts_.size() > kNamesMax ? layouts_.end() - kNamesMax : layouts_.begin();
  const auto found = std::find_if(begin, layouts_.end(),
                                  [&](const auto& known) { return known.get() == view.layout; });
  last_layout_ = static_cast<std::uint32_t>(found - layouts_.begin());
  if (found != layouts_.end()) return last_layout_;
  layouts_.push_back(Ref<const Layout>::share(view.layout));
  put(Record::kLayout);
  const auto columns = view.layout->columns();
  out_.put(view.layout->piece_count());
  out_.put(static_cast<std::uint32_t>(columns.size()));
  for (const LayoutColumn& column : columns) {
    const ChunkSchema& schema = view.pieces()[column.piece_begin].chunk->schema();
    const bool is_other = schema.column(column.chunk_column).dtype != column.spec.dtype;
    insert_records::LayoutColumnRecord record;
    record.chunk_column = column.chunk_column;
    record.piece_begin = column.piece_begin;
    record.piece_end = column.piece_end;
    record.flags = static_cast<std::uint8_t>((column.squeezed ? insert_records::kSqueezedFlag : 0) |
                                             (is_other ? insert_records::kOtherTextFlag : 0) |
                                             (column.stepwise ? insert_records::kStepwiseFlag : 0));
    out_.put(record);
  }
  return last_layout_;
}

void InsertLedger::put_bytes(std::span<const std::byte> bytes, bool is_in_bulk,
                             const std::shared_ptr<const void>& keep) {
  if (!is_in_bulk) return out_.raw(bytes);
  payload_.bulk.push_back({bytes, keep});
  bulk_bytes_ = Payload::padded(bulk_bytes_) + bytes.size();
}

void InsertLedger::mark() {
  changes_.clear();
  mark_ = {payload_.head.size(), payload_.bulk.size(), bulk_bytes_, tables_.size(),
           schemas_.size(),      layouts_.size(),      next_chunk_};
}

void InsertLedger::rewind() {
  payload_.head.resize(mark_.head);
  payload_.bulk.resize(mark_.bulk);
  bulk_bytes_ = mark_.bulk_bytes;
  tables_.resize(mark_.tables);
  schemas_.resize(mark_.schemas);
  layouts_.resize(mark_.layouts);
  next_chunk_ = mark_.next_chunk;
  for (; !changes_.empty(); changes_.pop_back()) {
    const Change& before = changes_.back();
    Known& known = chunks_.at(before.chunk);
    known.rows = before.rows;
    known.is_encoded = before.is_encoded;
    if (before.is_new) chunks_.erase(before.chunk);
  }
  last_ = nullptr;
}

// Sends the published rows that were not sent yet, or the whole chunk if it was encoded meanwhile.
void InsertLedger::send_rows(Known& known) {
  const Chunk& chunk = *known.chunk;
  const std::uint32_t end = chunk.rows();
  RawRows raw(chunk);
  if (!raw) {
    if (!known.is_encoded) send_columns(known, Record::kReplace);
    return;
  }
  note(known);
  const std::uint32_t begin = known.rows;
  const ChunkSchema& schema = chunk.schema();
  // Rows of varying size are copied, since they are not contiguous.
  const bool is_in_bulk = !schema.has_variable() &&
                          (end - begin) * schema.step_bytes() > insert_records::kInlineBytesMax;
  put(Record::kRows);
  out_.put(insert_records::Rows{known.id, begin, end, is_in_bulk ? 1u : 0u});
  std::shared_ptr<const void> keep;
  if (is_in_bulk && chunk.is_raw_for_good()) {
    keep = std::make_shared<const Ref<const Chunk>>(known.chunk);
  }
  std::shared_ptr<KeptRows> kept;
  if (is_in_bulk && !keep) {
    kept = std::make_shared<KeptRows>();
    kept->chunk = known.chunk;
    keep = kept;
  }
  for (std::size_t c = 0; c < schema.column_count(); ++c) {
    if (!schema.is_variable(c)) {
      put_bytes({chunk.row(c, begin), (end - begin) * schema.row_bytes(c)}, is_in_bulk, keep);
      continue;
    }
    for (std::uint32_t r = begin; r < end; ++r) {
      const auto bytes = chunk.row_bytes(c, r);
      out_.put(static_cast<std::uint32_t>(bytes.size()));
      out_.raw(bytes);
    }
  }
  if (kept) kept->rows = std::move(raw);
  known.rows = end;
}

void InsertLedger::send_columns(Known& known, Record record) {
  note(known);
  const Chunk& chunk = *known.chunk;
  const std::size_t count = chunk.schema().column_count();
  std::size_t size_bytes = 0;
  for (std::size_t c = 0; c < count; ++c) size_bytes += chunk.encoded_bytes(c).size();
  const bool is_in_bulk = size_bytes > insert_records::kInlineBytesMax;
  put(record);
  out_.put(insert_records::Columns{known.id, chunk.rows(), is_in_bulk ? 1u : 0u});
  for (std::size_t c = 0; c < count; ++c) {
    out_.put(insert_records::Column{chunk.encoded_bytes(c).size(),
                                    static_cast<std::uint64_t>(chunk.encoded_column(c).codec)});
  }
  std::shared_ptr<const void> keep;
  if (is_in_bulk) keep = std::make_shared<const Ref<const Chunk>>(known.chunk);
  for (std::size_t c = 0; c < count; ++c) put_bytes(chunk.encoded_bytes(c), is_in_bulk, keep);
  known.rows = chunk.rows();
  known.is_encoded = true;
}

InsertLedger::Known& InsertLedger::know(const Chunk& chunk) {
  if (last_ != nullptr && last_->chunk.get() == &chunk) return *last_;
  const auto [found, is_new] = chunks_.try_emplace(&chunk);
  last_ = &found->second;
  if (!is_new) return *last_;
  last_->chunk = Ref<const Chunk>::share(&chunk);
  note(*last_, /*is_new=*/true);
  last_->id = next_chunk_++;
  const std::uint32_t schema = schema_of(chunk);
  const bool is_raw = chunk.is_raw();
  const std::size_t step_bytes = chunk.schema().step_bytes();
  insert_records::Open open;
  open.chunk = last_->id;
  open.schema = schema;
  open.key = chunk.key();
  open.episode = chunk.episode();
  open.first_step = chunk.first_step();
  open.capacity = is_raw ? chunk.capacity() : chunk.rows();
  open.is_compressible = chunk.is_compressible() ? 1 : 0;
  {
    const RawRows raw(chunk);
    if (raw && chunk.schema().has_variable()) {
      open.var_bytes = chunk.raw_bytes() - chunk.capacity() * step_bytes;
    }
  }
  put(Record::kOpen);
  out_.put(open);
  return *last_;
}

void InsertLedger::add(const Item& item, std::string_view table, bool begins,
                       std::optional<Duration> timeout) {
  const TrajectoryView& view = item.trajectory.view();
  insert_records::ItemHead head;
  head.table = table_of(table);
  head.layout = layout_of(view);
  head.key = item.key;
  head.version = item.version;
  head.flags = begins ? insert_records::kBeginsFlag : 0;
  if (item.priority) {
    head.flags |= insert_records::kPriorityFlag;
    head.priority = *item.priority;
  }
  if (timeout) head.flags |= insert_records::kTimeoutFlag;
  for (const Piece& piece : view.pieces()) {
    Known& known = know(*piece.chunk);
    if (known.rows < piece.offset + piece.length) send_rows(known);
  }
  put(Record::kItem);
  out_.put(head);
  if (timeout) out_.put(std::int64_t{timeout->count()});
  for (const Piece& piece : view.pieces()) {
    out_.put(insert_records::ItemPiece{know(*piece.chunk).id, piece.offset, piece.length});
  }
}

Payload InsertLedger::finish(std::size_t bulk_bytes_max) {
  for (auto entry = chunks_.begin(); entry != chunks_.end();) {
    Known& known = entry->second;
    if (!known.is_encoded && !known.chunk->is_raw()) {
      mark();
      send_columns(known, Record::kReplace);
      if (bulk_bytes_ > bulk_bytes_max) rewind();  // the server keeps its rows
    }
    if (known.chunk->ref_count() > 1) {
      ++entry;
      continue;
    }
    put(Record::kForget);
    out_.put(known.id);
    if (last_ == &known) last_ = nullptr;
    entry = chunks_.erase(entry);
  }
  bulk_bytes_ = 0;
  return std::exchange(payload_, {});
}

}  // namespace reverie
