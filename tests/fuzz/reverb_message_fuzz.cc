// Reads any bytes as each of Reverb's messages: they are refused, or written again to a message
// that reads the same. Also reads them as a chunk of dm-reverb or of ours: they are refused, or
// give columns that point into the bytes, and decode or are refused.
//
// Input: which message (mod 9), and its bytes. An insert is also read as if it arrived in pieces,
// with all but its smallest chunks apart.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "reverie/codec/column_codec.h"
#include "reverie/grpc/field_scan.h"
#include "reverie/native_wire/stored_chunk.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/reverb_wire/signature.h"

namespace {

using namespace reverie;
using wire::Bytes;

void require(bool holds) {
  if (!holds) std::abort();
}

// Reads an insert in pieces. `wanted` is the result of reading all bytes at once.
void try_apart(Bytes bytes, std::size_t piece, const Result<wire::InsertStreamRequest>& wanted) {
  FieldScan scan(bytes.size(), wire::kChunksField, /*apart_bytes_min=*/3);
  std::string left;
  std::vector<wire::ChunkApart> apart;
  for (std::size_t at = 0; at < bytes.size();) {
    const FieldScan::Found found = scan.next(bytes.subspan(at, std::min(piece, bytes.size() - at)));
    left.append(wire::text_of(found.held)).append(wire::text_of(found.plain));
    at += found.taken_bytes;
    require(found.apart_bytes <= bytes.size() - at);
    if (found.apart_bytes > 0) apart.push_back({left.size(), bytes.subspan(at, found.apart_bytes)});
    at += found.apart_bytes;
  }
  const auto request = wire::read_insert_request(wire::bytes_of(left), apart);
  require(request.status() == wanted.status());
  if (!request.ok()) return;
  require(std::ranges::equal(request->chunks, wanted->chunks, std::ranges::equal) &&
          request->items.size() == wanted->items.size() &&
          request->keep_chunk_keys == wanted->keep_chunk_keys &&
          request->first_number == wanted->first_number &&
          request->settled_below == wanted->settled_below);
}

void try_insert(Bytes bytes) {
  const auto request = wire::read_insert_request(bytes);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    try_apart(bytes, piece, request);
  }
  if (!request.ok()) return;
  const std::string again =
      wire::write_insert_request(request->chunks, request->items, request->keep_chunk_keys).flat();
  // Reads into the memory of an earlier request.
  static auto& reused = *new wire::InsertStreamRequest;
  require(wire::read_insert_request(bytes, {}, reused).ok());
  require(
      reused.first_number == request->first_number &&
      reused.settled_below == request->settled_below &&
      again ==
          wire::write_insert_request(reused.chunks, reused.items, reused.keep_chunk_keys).flat());
  const auto second = wire::read_insert_request(wire::bytes_of(again));
  require(second.ok() && second->keep_chunk_keys == request->keep_chunk_keys &&
          second->items.size() == request->items.size() &&
          second->chunks.size() == request->chunks.size());
  for (std::size_t i = 0; i < request->items.size(); ++i) {
    require(second->items[i].slices == request->items[i].slices &&
            second->items[i].columns == request->items[i].columns);
  }
}

void try_samples(Bytes bytes) {
  const auto entries = wire::read_sample_response(bytes);
  if (!entries.ok()) return;
  wire::PiecedMessage message;
  for (const wire::SampleEntry& entry : *entries) {
    const std::string info = entry.info ? wire::write_sample_info(*entry.info) : "";
    wire::put_sample_entry(message, info, entry.chunks, entry.end_of_sequence);
  }
  require(message.flat().size() == message.size_bytes());
  require(wire::read_sample_response(wire::bytes_of(message.flat())).ok());
}

Result<Buffer> copied(Bytes bytes) {
  Buffer buffer = Allocator::heap().allocate(bytes.size()).value();
  std::copy(bytes.begin(), bytes.end(), buffer.data());
  return buffer;
}

void look_at(RowSpan row) {
  std::size_t touched = 0;
  for (const std::byte b : row) touched += static_cast<std::size_t>(b);
  require(touched + 1 > 0);
}

void try_rows(const Chunk& chunk) {
  const std::uint32_t row_count = std::min<std::uint32_t>(chunk.rows(), 1000);
  for (std::size_t c = 0; c < chunk.schema().column_count(); ++c) {
    if (chunk.is_raw()) {
      for (std::uint32_t r = 0; r < row_count; ++r) look_at(chunk.row_bytes(c, r));
      continue;
    }
    const auto rows = decode_column(chunk.encoded_column(c).codec, chunk.schema().column(c),
                                    chunk.rows(), chunk.encoded_bytes(c));
    if (!rows.ok()) return;
    for (std::uint32_t r = 0; r < row_count; ++r) look_at((*rows)[r]);
  }
  const auto written = wire::write_chunk(chunk, 0, chunk.rows(), 1);
  if (written.ok()) require(!written->empty());
}

void try_chunk(Bytes bytes) {
  wire::SchemaCache schemas;
  const auto chunk = wire::read_chunk(copied(bytes).value(), schemas);
  if (chunk.ok()) try_rows(**chunk);
}

void try_stored_chunk(Bytes bytes) {
  wire::SchemaCache schemas;
  const auto chunk = read_stored_chunk(bytes, schemas, copied);
  if (chunk.ok()) try_rows(**chunk);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 9) {
    case 0:
      try_insert(bytes);
      break;
    case 1:
      try_samples(bytes);
      break;
    case 2:
      try_chunk(bytes);
      break;
    case 3: {
      const auto signature = wire::read_signature(bytes);
      if (signature.ok()) {
        const auto written = wire::write_signature(*signature);
        require(written.ok());
        const auto again = wire::read_signature(wire::bytes_of(*written));
        require(again.ok() && again->columns == signature->columns);
      }
      break;
    }
    case 4: {
      const auto info = wire::read_info_response(bytes);
      if (info.ok())
        require(wire::read_info_response(wire::bytes_of(wire::write_info_response(*info))).ok());
      break;
    }
    case 5: {
      const auto request = wire::read_mutate_request(bytes);
      if (request.ok()) require(request->keys.size() == request->priorities.size());
      break;
    }
    case 6: {
      const auto request = wire::read_sample_request(bytes);
      if (request.ok()) {
        const std::string again = wire::write_sample_request(*request);
        require(wire::read_sample_request(wire::bytes_of(again))->table == request->table);
      }
      break;
    }
    case 8:
      try_stored_chunk(bytes);
      break;
    default:
      (void)wire::read_insert_response(bytes);
      (void)wire::read_initialize_request(bytes);
      (void)wire::read_reset_request(bytes);
  }
  return 0;
}
