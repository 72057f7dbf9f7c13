#include "reverie/record/chunk.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

namespace reverie {
namespace {

struct Cell {
  std::uint32_t offset;  // from the start of the storage's varying part
  std::uint32_t size_bytes;
};

// The alignment of a column's rows: that of an element; complex128 is two float64.
std::size_t alignment(DType dtype) {
  return has_variable_size(dtype) ? alignof(Cell)
                                  : std::min<std::size_t>(8, dtype_size_bytes(dtype));
}

}  // namespace

ChunkSchema::ChunkSchema(std::vector<TensorSpec> columns)
    : columns_(std::move(columns)), places_(columns_.size()) {
  std::vector<std::size_t> order(columns_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return alignment(columns_[a].dtype) > alignment(columns_[b].dtype);
  });
  for (const std::size_t i : order) {
    const TensorSpec& spec = columns_[i];
    const bool variable = has_variable_size(spec.dtype);
    has_variable_ = has_variable_ || variable;
    places_[i].row_bytes = variable ? sizeof(Cell)
                                    : static_cast<std::size_t>(element_count(spec.shape)) *
                                          dtype_size_bytes(spec.dtype);
    places_[i].bytes_before = step_bytes_;
    step_bytes_ += places_[i].row_bytes;
  }
}

Result<Ref<Chunk>> Chunk::open(Ref<const ChunkSchema> schema, ChunkOrigin origin,
                               std::uint32_t capacity, std::size_t var_bytes, Allocator& allocator,
                               Kind kind) {
  REVERIE_CHECK(capacity > 0);
  if (var_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return invalid_argument(
        "the strings of one chunk take {} bytes; the bound is 4 GiB; use a smaller chunk_length",
        var_bytes);
  }
  const std::size_t step_bytes = schema->step_bytes();
  if (step_bytes > std::numeric_limits<std::size_t>::max() / 2 / capacity) {
    return invalid_argument(
        "a chunk of {} steps of {} bytes is larger than memory; use a smaller chunk_length",
        capacity, step_bytes);
  }
  REVERIE_ASSIGN_OR_RETURN(Buffer storage, allocator.allocate(capacity * step_bytes + var_bytes));
  auto chunk =
      Ref<Chunk>::adopt(new Chunk(std::move(schema), origin, capacity, std::move(storage)));
  if (kind == Kind::kCompressible) {
    chunk->form_ = std::make_unique<Form>();
    chunk->form_->is_compressible = true;
    const MutexLock lock(chunk->form_->mutex);
    chunk->form_->size_bytes = sizeof(Chunk) + sizeof(Form) + chunk->storage_.size_bytes();
  }
  return chunk;
}

Ref<Chunk> Chunk::of_rows(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t rows,
                          Buffer storage) {
  REVERIE_CHECK(rows > 0 && !schema->has_variable() &&
                storage.size_bytes() == rows * schema->step_bytes());
  auto chunk = Ref<Chunk>::adopt(new Chunk(std::move(schema), origin, rows, std::move(storage)));
  chunk->publish(rows);
  return chunk;
}

Ref<Chunk> Chunk::encoded(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t rows,
                          Buffer storage, std::vector<EncodedColumn> columns, Envelope envelope) {
  auto chunk = Ref<Chunk>::adopt(new Chunk(std::move(schema), origin, rows, Buffer()));
  chunk->form_ = std::make_unique<Form>();
  Form& form = *chunk->form_;
  form.encoded = {std::move(storage), std::move(columns)};
  form.rows = rows;
  form.envelope = envelope;
  chunk->check_places(form.encoded);
  form.readers.store(Form::kEncoded | Form::kGone, std::memory_order_relaxed);
  const MutexLock lock(form.mutex);
  form.size_bytes = sizeof(Chunk) + sizeof(Form) + form.encoded.storage.size_bytes() +
                    form.encoded.columns.size() * sizeof(EncodedColumn);
  return chunk;
}

Status Chunk::check_published(std::uint32_t row_end) const {
  const std::uint32_t published = rows();
  if (row_end <= published) return {};
  return failed_precondition(
      "an item has {} rows of a chunk that has {} so far: the replay buffer that writes it goes "
      "on; "
      "draw its items in its own process, or by a client of Reverie",
      row_end, published);
}

void Chunk::check_places(const EncodedColumns& encoded) const {
  REVERIE_CHECK(encoded.columns.size() == schema_->column_count());
  const std::size_t size = encoded.storage.size_bytes();
  for (const EncodedColumn& column : encoded.columns) {
    REVERIE_CHECK(column.offset <= size && column.size_bytes <= size - column.offset);
  }
}

void Chunk::replace_rows(EncodedColumns encoded, std::uint32_t rows) {
  REVERIE_CHECK(is_compressible() && is_raw() && rows >= this->rows());
  check_places(encoded);
  Form& form = *form_;
  form.encoded = std::move(encoded);
  form.rows = rows;
  {
    const MutexLock lock(form.mutex);
    const std::size_t size = sizeof(Chunk) + sizeof(Form) + form.encoded.storage.size_bytes() +
                             form.encoded.columns.size() * sizeof(EncodedColumn);
    const auto change =
        static_cast<std::int64_t>(size) - static_cast<std::int64_t>(form.size_bytes);
    form.size_bytes = size;
    for (const Charge& charge : form.charges) charge.account->add(change);
  }
  const std::uint32_t before = form.readers.fetch_or(Form::kEncoded, std::memory_order_acq_rel);
  if (before == 0) {
    // Readers are refused from now on. If some came in between, the last of them frees the rows.
    std::uint32_t idle = Form::kEncoded;
    if (form.readers.compare_exchange_strong(idle, Form::kEncoded | Form::kGone,
                                             std::memory_order_acq_rel)) {
      storage_ = Buffer();
    }
  }
  // Later charges find the columns.
  std::vector<Charge> charged;
  {
    const MutexLock lock(form.mutex);
    charged = form.charges;
  }
  for (const Charge& charge : charged) charge.account->note_shrunk(*this);
}

bool Chunk::begin_reading() const {
  std::atomic<std::uint32_t>& readers = form_->readers;
  if ((readers.load(std::memory_order_acquire) & Form::kEncoded) != 0) return false;
  if ((readers.fetch_add(1, std::memory_order_acquire) & Form::kEncoded) == 0) return true;
  end_reading();
  return false;
}

void Chunk::end_reading() const {
  std::atomic<std::uint32_t>& readers = form_->readers;
  if (readers.fetch_sub(1, std::memory_order_acq_rel) != (Form::kEncoded | 1)) return;
  // The last reader; but another may have come since, and then frees the rows itself.
  std::uint32_t idle = Form::kEncoded;
  if (readers.compare_exchange_strong(idle, Form::kEncoded | Form::kGone,
                                      std::memory_order_acq_rel)) {
    storage_ = Buffer();
  }
}

// A chunk that cannot shrink need not record its accounts.
void Chunk::charge(ByteAccount& account) const {
  if (!is_compressible()) return account.add(static_cast<std::int64_t>(size_bytes()));
  const MutexLock lock(form_->mutex);
  for (Charge& charge : form_->charges) {
    if (charge.account.get() != &account) continue;
    if (++charge.count == 1) account.add(static_cast<std::int64_t>(form_->size_bytes));
    return;
  }
  form_->charges.push_back({Ref<ByteAccount>::share(&account), 1});
  account.add(static_cast<std::int64_t>(form_->size_bytes));
}

void Chunk::discharge(ByteAccount& account) const {
  if (!is_compressible()) return account.add(-static_cast<std::int64_t>(size_bytes()));
  const MutexLock lock(form_->mutex);
  for (Charge& charge : form_->charges) {
    if (charge.account.get() != &account) continue;
    // If the last item is removed while another is inserted, the insert may get here first.
    if (--charge.count != 0) return;
    account.add(-static_cast<std::int64_t>(form_->size_bytes));
    std::swap(charge, form_->charges.back());
    form_->charges.pop_back();
    return;
  }
  REVERIE_CHECK(false);
}

std::size_t Chunk::size_bytes() const {
  if (!form_) return sizeof(Chunk) + storage_.size_bytes();
  const MutexLock lock(form_->mutex);
  return form_->size_bytes;
}

void Chunk::add_places(std::uint32_t first, std::uint32_t length,
                       std::vector<std::span<const std::byte>>& out) const {
  const RawRows raw(*this);
  if (!raw) return out.push_back(form_->encoded.storage.bytes());
  if (schema_->has_variable()) return out.push_back(storage_.bytes());
  for (std::size_t c = 0; c < schema_->column_count(); ++c) {
    out.push_back({row(c, first), length * schema_->row_bytes(c)});
  }
}

void Chunk::add_storage(std::vector<std::span<const std::byte>>& out) const {
  const RawRows raw(*this);
  out.push_back(raw ? storage_.bytes() : form_->encoded.storage.bytes());
}

std::span<const std::byte> Chunk::row_bytes(std::size_t column, std::uint32_t r) const {
  const std::byte* const place = row(column, r);
  if (!schema_->is_variable(column)) return {place, schema_->row_bytes(column)};
  Cell cell;
  std::memcpy(&cell, place, sizeof(cell));
  return {storage_.data() + var_begin() + cell.offset, cell.size_bytes};
}

void Chunk::set_rows(std::size_t column, std::uint32_t first, std::span<const std::byte> bytes) {
  if (!bytes.empty())
    std::memcpy(const_cast<std::byte*>(row(column, first)), bytes.data(), bytes.size());
}

void Chunk::set_row(std::size_t column, std::uint32_t r, std::span<const std::byte> bytes) {
  auto* const place = const_cast<std::byte*>(row(column, r));
  if (!schema_->is_variable(column)) {
    if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
    return;
  }
  const Cell cell{var_used_, static_cast<std::uint32_t>(bytes.size())};
  if (!bytes.empty())
    std::memcpy(storage_.data() + var_begin() + var_used_, bytes.data(), bytes.size());
  std::memcpy(place, &cell, sizeof(cell));
  var_used_ += cell.size_bytes;
}

}  // namespace reverie
