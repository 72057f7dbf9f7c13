// Tested in tests/integration/corrupt_items_test.cc.
#include "reverie/gather/corrupt_items.h"

#include <string>
#include <utility>
#include <vector>

#include "reverie/gather/encoded_gather.h"
#include "reverie/gather/row_reader.h"
#include "reverie/record/readable_rows.h"

namespace reverie {
namespace {

// Decodes the rows of a piece as a gather would (batch.cc).
Status try_to_decode(const Piece& piece, std::size_t column, RowReader& reader,
                     std::vector<std::byte>& room, ExternalFiles* files) {
  REVERIE_RETURN_IF_ERROR(check_readable(*piece.chunk, piece.offset, piece.length));
  if (const RawRows raw(*piece.chunk); raw) return {};
  const ChunkSchema& schema = piece.chunk->schema();
  if (!schema.is_variable(column)) {
    room.resize(piece.length * schema.row_bytes(column));
    EncodedGather gather(files);
    REVERIE_RETURN_IF_ERROR(gather.add(piece, column, room.data()));
    return gather.finish();
  }
  for (std::uint32_t r = 0; r < piece.length; ++r) {
    const Result<RowSpan> row = reader.row(*piece.chunk, column, piece.offset + r);
    if (!row.ok()) return row.status();
  }
  return {};
}

}  // namespace

std::optional<Damage> find_damage(const TrajectoryView& item, ExternalFiles* files) {
  RowReader reader;
  std::vector<std::byte> room;
  const std::span<const Piece> pieces = item.pieces();
  for (const LayoutColumn& column : item.layout->columns()) {
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      Status status = try_to_decode(pieces[p], column.chunk_column, reader, room, files);
      if (status.code() == StatusCode::kDataLoss) {
        return Damage{pieces[p].chunk->key(), std::move(status)};
      }
    }
  }
  return std::nullopt;
}

Result<std::size_t> take_out_corrupt(ReplayService& service, std::string_view table,
                                     const Status& why, const WaitOptions& wait, SampleBatch& batch,
                                     ExternalFiles* files) {
  std::vector<std::size_t> indices;
  std::vector<CorruptItem> corrupt;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const std::optional<Damage> damage = find_damage(batch.trajectories()[i], files);
    if (!damage) continue;
    indices.push_back(i);
    corrupt.push_back({batch.keys()[i], damage->chunk, damage->why.message()});
  }
  if (corrupt.empty()) return why;
  MutateRequest request;
  request.table = table;
  request.corrupt = corrupt;
  REVERIE_RETURN_IF_ERROR(mutate_and_wait(service, request, wait).status);
  // A restart must not restore them.
  if (service.keeps_receipts(table)) service.receive(table, draws_of(batch, indices));
  batch.remove(indices);
  return corrupt.size();
}

Status replace_corrupt(ReplayService& service, const SampleRequest& like, const Status& why,
                       const WaitOptions& wait, SampleResult& result, ExternalFiles* files) {
  REVERIE_RETURN_IF_ERROR(
      take_out_corrupt(service, like.table, why, wait, result.batch, files).status());
  if (!result.status.ok()) return {};  // the deadline has passed: return what there is
  if (like.distinct) {
    // Undo these draws too, if the service can.
    (void)service.hand_back(like.table, result.batch);
    result.batch.clear();
  }
  const std::size_t have = result.batch.size();
  if (have >= like.min_count) return {};
  SampleRequest again;
  again.table = like.table;
  again.count = like.count - have;
  again.min_count = like.min_count - have;
  again.distinct = like.distinct;
  again.wants_least = like.wants_least;
  again.awaits_receipt = like.awaits_receipt;
  again.deadline = like.deadline;
  SampleResult more = sample_and_wait(service, std::move(again), wait);
  result.status = std::move(more.status);
  if (!more.batch.empty()) result.batch.append(more.batch);
  return {};
}

Status assemble_decodable(ReplayService& service, const SampleRequest& like, OnCorrupt on_corrupt,
                          const WaitOptions& wait, const BatchOptions& options,
                          SampleResult& result, Batch& batch) {
  while (!result.batch.empty()) {
    Status status = assemble_into(result.batch, options, batch);
    if (status.code() != StatusCode::kDataLoss || on_corrupt == OnCorrupt::kRaise) return status;
    REVERIE_RETURN_IF_ERROR(replace_corrupt(service, like, status, wait, result, options.files));
  }
  return {};
}

}  // namespace reverie
