// Tested in tests/integration/packed_frames_test.cc and tests/integration/corrupt_items_test.cc.
#include "reverie/gather/encoded_gather.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "reverie/base/helpers.h"
#include "reverie/gather/copy_row.h"

namespace reverie {
namespace {

// Each gathering thread reuses one for all batches.
ColumnDecoder& thread_decoder() {
  thread_local ColumnDecoder decoder;
  return decoder;
}

}  // namespace

Status EncodedGather::add(const Piece& piece, std::size_t column, std::byte* to) {
  const Chunk& chunk = *piece.chunk;
  const TensorSpec& spec = chunk.schema().column(column);
  if (std::uint64_t{piece.offset} + piece.length > chunk.rows()) {
    return data_loss("column '{}' was referred to at row {} of a chunk of {} rows", spec.name,
                     std::uint64_t{piece.offset} + piece.length - 1, chunk.rows());
  }
  const CodecId codec = chunk.encoded_column(column).codec;
  if (codec == CodecId::kExternal && files_ != nullptr) return add_external(piece, column, to);
  if (codec != CodecId::kRaw) {
    requests_.push_back({piece.chunk, column, piece.offset, piece.length, to});
    return {};
  }
  const std::span<const std::byte> bytes = chunk.encoded_bytes(column);
  const std::size_t row_bytes = chunk.schema().row_bytes(column);
  // Divided, not multiplied: the product of two untrusted numbers may overflow.
  const bool fits = row_bytes == 0
                        ? bytes.empty()
                        : bytes.size() % row_bytes == 0 && bytes.size() / row_bytes == chunk.rows();
  if (!fits) {
    return data_loss("column '{}' has {} bytes, but {} rows of {} bytes were announced", spec.name,
                     bytes.size(), chunk.rows(), row_bytes);
  }
  copy_row(to, bytes.data() + piece.offset * row_bytes, piece.length * row_bytes);
  return {};
}

Status EncodedGather::add_external(const Piece& piece, std::size_t column, std::byte* to) {
  const Chunk& chunk = *piece.chunk;
  const TensorSpec& spec = chunk.schema().column(column);
  const std::size_t size_bytes = piece.length * chunk.schema().row_bytes(column);
  ExternalRead read;
  REVERIE_ASSIGN_OR_RETURN(read.range, read_external(spec, chunk.encoded_bytes(column)));
  if (size_bytes == 0) return {};
  const std::uint64_t first_row = std::uint64_t{read.range.first_row} + piece.offset;
  if (first_row + piece.length > std::numeric_limits<std::uint32_t>::max()) {
    return data_loss("column '{}' begins at row {} of '{}'; rows are numbered with 32 bits",
                     spec.name, first_row, read.range.file);
  }
  read.spec = &spec;
  read.first_row = static_cast<std::uint32_t>(first_row);
  read.row_count = piece.length;
  read.out = {to, size_bytes};
  external_.push_back(std::move(read));
  return {};
}

Status EncodedGather::finish() {
  if (!external_.empty()) {
    const Status status = files_->read(external_);
    external_.clear();
    REVERIE_RETURN_IF_ERROR(status);
  }
  if (requests_.empty()) return {};
  std::ranges::sort(requests_, [](const Request& a, const Request& b) {
    if (a.chunk != b.chunk) return std::less<>()(a.chunk, b.chunk);
    return std::tie(a.column, a.offset) < std::tie(b.column, b.offset);
  });
  const std::span<const Request> all(requests_);
  // Cut at the end of a column once a part has enough bytes.
  std::vector<std::size_t> cuts = {0};
  std::size_t size_bytes = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = run_end(all, at);
    size_bytes += all[at].chunk->rows() * all[at].chunk->schema().row_bytes(all[at].column);
    if (size_bytes >= kPartBytes || end == all.size()) {
      cuts.push_back(end);
      size_bytes = 0;
    }
    at = end;
  }
  std::vector<Status> outcomes(cuts.size() - 1);
  run_in_parts(outcomes.size(), [&](std::size_t part) {
    outcomes[part] = serve_all(all.subspan(cuts[part], cuts[part + 1] - cuts[part]));
  });
  requests_.clear();
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  return {};
}

std::size_t EncodedGather::run_end(std::span<const Request> requests, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < requests.size() && requests[end].chunk == requests[begin].chunk &&
         requests[end].column == requests[begin].column) {
    ++end;
  }
  return end;
}

Status EncodedGather::serve_all(std::span<const Request> requests) {
  ColumnDecoder& decoder = thread_decoder();
  Status status;
  for (std::size_t begin = 0; begin < requests.size() && status.ok();) {
    const std::size_t end = run_end(requests, begin);
    status = serve(requests.subspan(begin, end - begin), decoder);
    begin = end;
  }
  if (decoder.memory_bytes() > kScratchBytesMax) decoder = ColumnDecoder();
  return status;
}

Status EncodedGather::serve(std::span<const Request> requests, ColumnDecoder& decoder) {
  const Chunk& chunk = *requests.front().chunk;
  const std::size_t column = requests.front().column;
  if (requests.size() == 1 && requests.front().length == chunk.rows()) {
    const std::size_t size = chunk.rows() * chunk.schema().row_bytes(column);
    return decoder.decode_all(chunk.encoded_column(column).codec, chunk.schema().column(column),
                              chunk.rows(), chunk.encoded_bytes(column),
                              {requests.front().to, size});
  }
  REVERIE_RETURN_IF_ERROR(decoder.open(chunk.encoded_column(column).codec,
                                       chunk.schema().column(column), chunk.rows(),
                                       chunk.encoded_bytes(column)));
  std::uint32_t end = 0;
  for (const Request& request : requests) end = std::max(end, request.offset + request.length);
  std::size_t done = 0;  // requests that end at or before the row
  for (std::uint32_t r = requests.front().offset; r < end; ++r) {
    RowSpan row;
    for (std::size_t i = done; i < requests.size() && requests[i].offset <= r; ++i) {
      const Request& request = requests[i];
      if (r >= request.offset + request.length) {
        if (i == done) ++done;
        continue;
      }
      if (row.empty()) {
        REVERIE_ASSIGN_OR_RETURN(row, decoder.row(r));
        if (row.empty()) return {};  // rows of no bytes
      }
      std::memcpy(request.to + (r - request.offset) * row.size(), row.data(), row.size());
    }
  }
  return {};
}

}  // namespace reverie
