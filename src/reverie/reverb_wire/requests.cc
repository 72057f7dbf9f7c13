// Tested in tests/integration/reverb_wire_oracle_test.cc.
#include "reverie/reverb_wire/requests.h"

#include <utility>

#include "reverie/reverb_wire/table_info.h"

namespace reverie::wire {
namespace {

// Reverie's own field of ServerInfo's request and answer.
constexpr std::uint32_t kClientNumber = 1000;
constexpr std::uint32_t kOrigin = 1001;
constexpr std::uint32_t kCheckpointPayload = 1000;
constexpr std::uint32_t kPayloadBytes = 1000;

// Reverie's own fields of InsertStreamRequest and InsertStreamResponse.
constexpr std::uint32_t kFirstNumber = 15;
constexpr std::uint32_t kSettledBelow = 16;
constexpr std::uint32_t kRequestsTaken = 15;
constexpr std::uint32_t kConfirmed = 16;
constexpr std::uint32_t kStoredChunkVersion = 17;
// Far from the numbers that Reverb may use.
constexpr std::uint32_t kCorruptField = 1000;
// An item, column or slice takes at least so many bytes, which bounds how many of them a message
// can have, and so the memory that is allocated for them.
constexpr std::size_t kPlaceBytes = 4;
constexpr std::size_t kPlacesOfItem = 4;
constexpr std::size_t kPlaceBytesFree = std::size_t{64} << 10;
constexpr std::size_t kUpdateBytes = 4;  // likewise

Status read_update(Bytes message, MutatePrioritiesRequest& request) {
  ItemKey key = 0;
  double priority = 0;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == varint_field(1)) {
      key = reader.get_uint64();
    } else if (tag == double_field(2)) {
      priority = reader.get_double();
    } else {
      reader.skip();
    }
    return Status();
  }));
  request.keys.push_back(key);
  request.priorities.push_back(priority);
  return {};
}

Result<MutatePrioritiesRequest::Corrupt> read_corrupt(Bytes message) {
  MutatePrioritiesRequest::Corrupt corrupt;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == varint_field(1)) {
      corrupt.key = reader.get_uint64();
    } else if (tag == varint_field(2)) {
      corrupt.chunk = reader.get_uint64();
    } else if (tag == bytes_field(3)) {
      corrupt.why = text_of(get_bytes(reader));
    } else {
      reader.skip();
    }
    return Status();
  }));
  return corrupt;
}

// The one field of a message that counts.
Result<std::string_view> read_text(const char* what, std::uint32_t field, Bytes message) {
  return read_message(what, [&]() -> Result<std::string_view> {
    std::string_view text;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      if (tag == bytes_field(field)) {
        text = text_of(get_bytes(reader));
      } else {
        reader.skip();
      }
      return Status();
    }));
    return text;
  });
}

Status read_state_id(Bytes message, ServerInfoResponse& response) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == varint_field(1)) {
      response.state_high = reader.get_uint64();
    } else if (tag == varint_field(2)) {
      response.state_low = reader.get_uint64();
    } else {
      reader.skip();
    }
    return Status();
  });
}

Status read_origin(Bytes message, StoreOrigin& origin) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == bytes_field(1)) {
      origin.path = get_text(reader);
    } else if (tag == bytes_field(2)) {
      origin.payload = get_text(reader);
    } else {
      reader.skip();
    }
    return Status();
  });
}

Status read_insert_fields(Bytes fields, InsertStreamRequest& request) {
  std::size_t places = 0;
  return for_each_field(fields, [&](Reader& reader, std::uint32_t tag) -> Status {
    if (tag == bytes_field(kChunksField)) {
      request.chunks.push_back(get_bytes(reader));
    } else if (tag == bytes_field(kStoredChunksField)) {
      request.stored_chunks.push_back(get_bytes(reader));
    } else if (tag == bytes_field(2)) {
      WireItem& item = request.add_item();
      REVERIE_RETURN_IF_ERROR(read_item(get_bytes(reader), item));
      places += kPlacesOfItem + item.columns.size() + item.slices.size();
      if (places * kPlaceBytes > kPlaceBytesFree + fields.size()) {
        return invalid_argument(
            "a message of {} bytes has {} empty items, columns and slices; leave them "
            "out",
            fields.size(), places);
      }
    } else if (tag == varint_field(kFirstNumber)) {
      request.first_number = reader.get_uint64();
    } else if (tag == varint_field(kSettledBelow)) {
      request.settled_below = reader.get_uint64();
    } else if (!take_numbers(reader, tag, 3, request.keep_chunk_keys)) {
      reader.skip();
    }
    return {};
  });
}

}  // namespace

std::size_t PiecedMessage::size_bytes() const {
  std::size_t size = own.size();
  for (const Piece& piece : pieces) size += piece.bytes.size();
  return size;
}

std::string PiecedMessage::flat() const {
  std::string out;
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    out.append(own, at, piece.at - at);
    out += text_of(piece.bytes);
    at = piece.at;
  }
  return out.append(own, at);
}

void InsertStreamRequest::clear() {
  const auto clear_list = [](auto& list) {
    if (list.capacity() > kSpareMax) list = {};
    list.clear();
  };
  clear_list(chunks);
  clear_list(stored_chunks);
  clear_list(keep_chunk_keys);
  first_number = 0;
  settled_below = 0;
  for (WireItem& item : items) {
    if (spare_items_.size() == kSpareMax) break;
    if (item.slices.capacity() + item.columns.capacity() > kSparePlacesMax) continue;
    spare_items_.push_back(std::move(item));
  }
  clear_list(items);
}

WireItem& InsertStreamRequest::add_item() {
  if (spare_items_.empty()) return items.emplace_back();
  WireItem& item = items.emplace_back(std::move(spare_items_.back()));
  spare_items_.pop_back();
  item.clear();
  return item;
}

Result<InsertStreamRequest> read_insert_request(Bytes message, std::span<const ChunkApart> apart) {
  InsertStreamRequest request;
  REVERIE_RETURN_IF_ERROR(read_insert_request(message, apart, request));
  return request;
}

Status read_insert_request(Bytes message, std::span<const ChunkApart> apart,
                           InsertStreamRequest& request) {
  request.clear();
  return read_message("InsertStreamRequest", [&]() -> Status {
    std::size_t begin = 0;
    for (const ChunkApart& part : apart) {
      REVERIE_RETURN_IF_ERROR(read_insert_fields(message.subspan(begin, part.at - begin), request));
      request.chunks.push_back(part.chunk);
      begin = part.at;
    }
    return read_insert_fields(message.subspan(begin), request);
  });
}

PiecedMessage write_insert_request(std::span<const Bytes> chunks, std::span<const WireItem> items,
                                   std::span<const std::uint64_t> keep_chunk_keys) {
  std::string written;
  for (const WireItem& item : items) put_item(written, item);
  return write_numbered_request(chunks, written, keep_chunk_keys, 0, 0);
}

PiecedMessage write_numbered_request(std::span<const Bytes> chunks, std::string_view items,
                                     std::span<const std::uint64_t> keep_chunk_keys,
                                     std::uint64_t first_number, std::uint64_t settled_below) {
  PiecedMessage message;
  message.pieces.reserve(chunks.size());
  for (const Bytes chunk : chunks) {
    put_head(message.own, kChunksField, chunk.size());
    message.put(chunk);
  }
  put_numbered_fields(message.own, items, keep_chunk_keys, first_number, settled_below);
  return message;
}

void put_numbered_fields(std::string& message, std::string_view items,
                         std::span<const std::uint64_t> keep_chunk_keys, std::uint64_t first_number,
                         std::uint64_t settled_below) {
  message += items;
  put_packed(message, 3, keep_chunk_keys);
  put_uint(message, kFirstNumber, first_number);
  put_uint(message, kSettledBelow, settled_below);
}

void put_item(std::string& items, const WireItem& item) {
  const ItemBytes bytes = item_bytes(item);
  put_head(items, 2, bytes.all);
  append_item(items, item, bytes);
}

Result<InsertStreamResponse> read_insert_response(Bytes message) {
  return read_message("InsertStreamResponse", [&]() -> Result<InsertStreamResponse> {
    InsertStreamResponse response;
    std::vector<std::uint64_t> runs;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      if (tag == varint_field(kRequestsTaken)) {
        response.requests_taken = reader.get_uint64();
      } else if (tag == varint_field(kStoredChunkVersion)) {
        response.stored_chunk_version = reader.get_uint64();
      } else if (!take_numbers(reader, tag, 1, response.keys) &&
                 !take_numbers(reader, tag, kConfirmed, runs)) {
        reader.skip();
      }
      return Status();
    }));
    if (runs.size() % 2 != 0) {
      return invalid_argument("an InsertStreamResponse has {} numbers for runs; each run has two",
                              runs.size());
    }
    for (std::size_t i = 0; i < runs.size(); i += 2) {
      response.confirmed.push_back({runs[i], runs[i + 1]});
    }
    return response;
  });
}

std::string write_insert_response(std::span<const ItemKey> keys) {
  std::string out;
  put_packed(out, 1, keys);
  return out;
}

std::string write_numbered_response(std::span<const NumberRun> confirmed,
                                    std::uint64_t requests_taken,
                                    std::uint64_t stored_chunk_version) {
  std::string out;
  put_uint(out, kRequestsTaken, requests_taken);
  put_uint(out, kStoredChunkVersion, stored_chunk_version);
  if (confirmed.empty()) return out;
  std::size_t size = 0;
  for (const NumberRun& run : confirmed) size += varint_bytes(run.first) + varint_bytes(run.count);
  put_head(out, kConfirmed, size);
  for (const NumberRun& run : confirmed) {
    put_varint(out, run.first);
    put_varint(out, run.count);
  }
  return out;
}

Result<MutatePrioritiesRequest> read_mutate_request(Bytes message) {
  return read_message("MutatePrioritiesRequest", [&]() -> Result<MutatePrioritiesRequest> {
    MutatePrioritiesRequest request;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      if (tag == bytes_field(1)) {
        request.table = text_of(get_bytes(reader));
      } else if (tag == bytes_field(2)) {
        if (request.keys.size() * kUpdateBytes > kPlaceBytesFree + message.size()) {
          return invalid_argument("a message of {} bytes has {} empty updates", message.size(),
                                  request.keys.size());
        }
        return read_update(get_bytes(reader), request);
      } else if (tag == bytes_field(kCorruptField)) {
        if (request.corrupt.size() * kUpdateBytes > kPlaceBytesFree + message.size()) {
          return invalid_argument("a message of {} bytes has {} empty corrupt items",
                                  message.size(), request.corrupt.size());
        }
        REVERIE_ASSIGN_OR_RETURN(request.corrupt.emplace_back(), read_corrupt(get_bytes(reader)));
      } else if (!take_numbers(reader, tag, 3, request.deletes)) {
        reader.skip();
      }
      return Status();
    }));
    return request;
  });
}

std::string write_mutate_request(std::string_view table, std::span<const ItemKey> keys,
                                 std::span<const double> priorities,
                                 std::span<const ItemKey> deletes,
                                 std::span<const MutatePrioritiesRequest::Corrupt> corrupt) {
  std::string out;
  put_text(out, 1, table);
  std::string update;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    update.clear();
    put_uint(update, 1, keys[i]);
    put_double(update, 2, priorities[i]);
    put_message(out, 2, update);
  }
  put_packed(out, 3, deletes);
  std::string told;
  for (const MutatePrioritiesRequest::Corrupt& item : corrupt) {
    told.clear();
    put_uint(told, 1, item.key);
    put_uint(told, 2, item.chunk);
    put_text(told, 3, item.why);
    put_message(out, kCorruptField, told);
  }
  return out;
}

Result<std::string_view> read_reset_request(Bytes message) {
  return read_text("ResetRequest", 1, message);
}

Result<std::string_view> read_checkpoint_request(Bytes message) {
  return read_text("CheckpointRequest", kCheckpointPayload, message);
}

std::string write_checkpoint_request(std::string_view payload) {
  std::string out;
  put_text(out, kCheckpointPayload, payload);
  return out;
}

Result<CheckpointResponse> read_checkpoint_response(Bytes message) {
  return read_message("CheckpointResponse", [&]() -> Result<CheckpointResponse> {
    CheckpointResponse response;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      if (tag == bytes_field(1)) {
        response.path = text_of(get_bytes(reader));
      } else if (tag == varint_field(kPayloadBytes)) {
        response.payload_bytes = reader.get_uint64();
      } else {
        reader.skip();
      }
      return Status();
    }));
    return response;
  });
}

std::string write_checkpoint_response(const CheckpointResponse& response) {
  std::string out;
  put_text(out, 1, response.path);
  if (response.payload_bytes != 0) put_uint(out, kPayloadBytes, response.payload_bytes);
  return out;
}

std::string write_reset_request(std::string_view table) {
  std::string out;
  put_text(out, 1, table);
  return out;
}

Result<ServerInfoRequest> read_info_request(Bytes message) {
  return read_message("ServerInfoRequest", [&]() -> Result<ServerInfoRequest> {
    ServerInfoRequest request;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      if (tag == varint_field(kClientNumber)) {
        request.wants_client_number = get_flag(reader);
      } else if (tag == varint_field(kOrigin)) {
        request.wants_origin = get_flag(reader);
      } else {
        reader.skip();
      }
      return Status();
    }));
    return request;
  });
}

std::string write_info_request(const ServerInfoRequest& request) {
  std::string out;
  if (request.wants_client_number) put_uint(out, kClientNumber, 1);
  if (request.wants_origin) put_uint(out, kOrigin, 1);
  return out;
}

Result<ServerInfoResponse> read_info_response(Bytes message) {
  return read_message("ServerInfoResponse", [&]() -> Result<ServerInfoResponse> {
    ServerInfoResponse response;
    REVERIE_RETURN_IF_ERROR(
        for_each_field(message, [&](Reader& reader, std::uint32_t tag) -> Status {
          if (tag == bytes_field(1)) return read_state_id(get_bytes(reader), response);
          if (tag == varint_field(kClientNumber)) {
            response.client_number = reader.get_uint64();
            return {};
          }
          if (tag == bytes_field(kOrigin)) {
            return read_origin(get_bytes(reader), response.origin.emplace());
          }
          if (tag != bytes_field(2)) {
            reader.skip();
            return {};
          }
          REVERIE_ASSIGN_OR_RETURN(TableInfo info, read_table_info(get_bytes(reader)));
          response.tables.push_back(std::move(info));
          return {};
        }));
    return response;
  });
}

std::string write_info_response(const ServerInfoResponse& response) {
  std::string state;
  put_uint(state, 1, response.state_high);
  put_uint(state, 2, response.state_low);
  std::string out;
  put_message(out, 1, state);
  for (const TableInfo& info : response.tables) put_message(out, 2, write_table_info(info));
  if (response.client_number != 0) put_uint(out, kClientNumber, response.client_number);
  if (response.origin) {
    std::string origin;
    put_text(origin, 1, response.origin->path);
    put_text(origin, 2, response.origin->payload);
    put_message(out, kOrigin, origin);
  }
  return out;
}

Result<InitializeConnectionRequest> read_initialize_request(Bytes message) {
  return read_message("InitializeConnectionRequest", [&]() -> Result<InitializeConnectionRequest> {
    InitializeConnectionRequest request;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      switch (tag) {
        case varint_field(1):
          request.pid = reader.get_int64();
          break;
        case bytes_field(2):
          request.table = text_of(get_bytes(reader));
          break;
        case varint_field(3):
          request.ownership_transferred = get_flag(reader);
          break;
        default:
          reader.skip();
      }
      return Status();
    }));
    return request;
  });
}

}  // namespace reverie::wire
