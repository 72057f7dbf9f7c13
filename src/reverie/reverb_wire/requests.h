// The messages of Reverb's service, both directions.
//
// What is read views the bytes that it was read from. A message that carries chunks is written as
// pieces, so that the bytes of large chunks are referred to and never copied. All readers answer
// INVALID_ARGUMENT for malformed bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/reverb_wire/fields.h"
#include "reverie/reverb_wire/item.h"

namespace reverie::wire {

// Where the methods are: kServicePath + "InsertStream".
inline constexpr std::string_view kServicePath = "/deepmind.reverb.ReverbService/";

// A message under construction: bytes of its own, and between them bytes that others keep.
struct PiecedMessage {
  // Less is copied: to gather it from where it lies costs more.
  static constexpr std::size_t kCopiedBytesMax = std::size_t{4} << 10;

  struct Piece {
    std::size_t at = 0;  // in `own`: it stands before the byte there
    Bytes bytes;
  };

  std::string own;
  std::vector<Piece> pieces;

  // Whether the bytes are referred to, not copied.
  static bool refers_to(Bytes bytes) { return bytes.size() > kCopiedBytesMax; }
  void put(Bytes bytes) {
    if (refers_to(bytes)) {
      pieces.push_back({own.size(), bytes});
    } else {
      own += text_of(bytes);
    }
  }
  std::size_t size_bytes() const;
  // All of it as one string: for tests.
  std::string flat() const;
};

// Metadata of an InsertStream whose items are numbered: the session, 32 hexadecimal digits. Reverb
// knows neither it nor the fields above 3, and ignores them. See docs/decisions/0004.
inline constexpr std::string_view kSessionName = "reverie-session";
// How many streams of the session there were with this one, in decimals: what an old connection
// brings late is told from what is new.
inline constexpr std::string_view kStreamName = "reverie-stream";

// The fields whose contents are an InsertStreamRequest's chunks: Reverb's, and ours, far from the
// numbers that Reverb may give.
inline constexpr std::uint32_t kChunksField = 1;
inline constexpr std::uint32_t kStoredChunksField = 1000;

struct InsertStreamRequest {
  std::vector<Bytes> chunks;         // each a ChunkData
  std::vector<Bytes> stored_chunks;  // between ours: adapters/reverb/stored_chunk.h
  std::vector<WireItem> items;
  std::vector<std::uint64_t> keep_chunk_keys;
  // The items' numbers in a session are first_number, first_number + 1, ...; 0 without a session.
  std::uint64_t first_number = 0;
  std::uint64_t settled_below = 0;  // the writer asks for none of these again

  // For another message, which then takes next to no memory of its own. Long lists are let go: what
  // is kept does not count for anybody.
  void clear();
  // The next of `items`, in memory of earlier ones.
  WireItem& add_item();

 private:
  static constexpr std::size_t kSpareMax = 1024;
  static constexpr std::size_t kSparePlacesMax = 64;  // of one item
  std::vector<WireItem> spare_items_;
};
// A chunk that was taken out of a message, its head too: it stood before the byte `at` of what is
// left.
struct ChunkApart {
  std::size_t at = 0;
  Bytes chunk;
};
// Requires `apart` in the order they stood.
Result<InsertStreamRequest> read_insert_request(Bytes message,
                                                std::span<const ChunkApart> apart = {});
// The same into `request`, whose memory is used again.
Status read_insert_request(Bytes message, std::span<const ChunkApart> apart,
                           InsertStreamRequest& request);
PiecedMessage write_insert_request(std::span<const Bytes> chunks, std::span<const WireItem> items,
                                   std::span<const std::uint64_t> keep_chunk_keys);
// The same of items that put_item() wrote one behind the other, with their numbers.
PiecedMessage write_numbered_request(std::span<const Bytes> chunks, std::string_view items,
                                     std::span<const std::uint64_t> keep_chunk_keys,
                                     std::uint64_t first_number, std::uint64_t settled_below);
// Appends what stands behind the chunks of such a message.
void put_numbered_fields(std::string& message, std::string_view items,
                         std::span<const std::uint64_t> keep_chunk_keys, std::uint64_t first_number,
                         std::uint64_t settled_below);
// Appends an item as a field of an InsertStreamRequest.
void put_item(std::string& items, const WireItem& item);

// Items numbered from `first` on that are in their table.
struct NumberRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  friend bool operator==(const NumberRun&, const NumberRun&) = default;
};
struct InsertStreamResponse {
  std::vector<ItemKey> keys;
  // In a session, instead of keys.
  std::vector<NumberRun> confirmed;
  // Requests of this stream that were read to their end so far, whether their items are in or wait.
  std::uint64_t requests_taken = 0;
  // The highest version of stored chunks that the server takes; 0 for none.
  std::uint64_t stored_chunk_version = 0;
};
Result<InsertStreamResponse> read_insert_response(Bytes message);
std::string write_insert_response(std::span<const ItemKey> keys);
std::string write_numbered_response(std::span<const NumberRun> confirmed,
                                    std::uint64_t requests_taken,
                                    std::uint64_t stored_chunk_version = 0);

struct SampleStreamRequest {
  std::string_view table;
  std::int64_t num_samples = 0;
  // How long the limiter may hold the request back; <= 0: without limit.
  std::int64_t timeout_ms = 0;
  // Our own field: the highest version of packed samples that the client reads, 0 for none
  // (adapters/reverb/packed_format.h).
  std::uint64_t packed_version = 0;
  // Our own field: how many samples of this stream the client has received so far. A client of
  // Reverb's does not say, and has received all when it sends a request.
  std::optional<std::uint64_t> received = std::nullopt;
};
Result<SampleStreamRequest> read_sample_request(Bytes message);
std::string write_sample_request(const SampleStreamRequest& request);
// Appends what the client has received to a request as it is written.
void put_received(std::string& request, std::uint64_t count);

// SampleInfo.
struct WireSampleInfo {
  WireItem item;
  double probability = 0;
  std::int64_t table_size = 0;
  bool rate_limited = false;
};
// A part of a sample: the first has the info, only the last says that it is.
struct SampleEntry {
  std::optional<WireSampleInfo> info;
  std::vector<Bytes> chunks;
  bool end_of_sequence = false;
};
Result<std::vector<SampleEntry>> read_sample_response(Bytes message);
// Our own fields of a SampleStreamResponse, which has no others then.
struct PackedResponse {
  Bytes samples;            // empty: the response has entries instead
  double sampler_mass = 0;  // of the table (Selector::mass); 0 where the server does not say
};
Result<PackedResponse> read_packed_response(Bytes message);
// What stands before and behind `size_bytes` of packed samples: together they are a
// SampleStreamResponse.
std::string packed_response_head(std::size_t size_bytes);
void put_packed_response_tail(std::string& message, double sampler_mass);
// Appends one part to a SampleStreamResponse; `info` is a written SampleInfo, empty for none.
void put_sample_entry(PiecedMessage& response, std::string_view info, std::span<const Bytes> chunks,
                      bool end_of_sequence);
std::string write_sample_info(const WireSampleInfo& info);

struct MutatePrioritiesRequest {
  std::string_view table;
  std::vector<ItemKey> keys;
  std::vector<double> priorities;  // one for each key
  std::vector<ItemKey> deletes;
  // Our own field: the deleted items that their reader could not decode, one entry per draw.
  struct Corrupt {
    ItemKey key = 0;
    std::uint64_t chunk = 0;
    std::string_view why;
  };
  std::vector<Corrupt> corrupt;
};
Result<MutatePrioritiesRequest> read_mutate_request(Bytes message);
std::string write_mutate_request(std::string_view table, std::span<const ItemKey> keys,
                                 std::span<const double> priorities,
                                 std::span<const ItemKey> deletes,
                                 std::span<const MutatePrioritiesRequest::Corrupt> corrupt = {});

// ResetRequest has a table and nothing else.
Result<std::string_view> read_reset_request(Bytes message);
std::string write_reset_request(std::string_view table);

// CheckpointResponse: the path on the server's disk.
Result<std::string_view> read_checkpoint_response(Bytes message);
std::string write_checkpoint_response(std::string_view path);

// ServerInfoRequest is empty in Reverb's protocol. Ours may ask for a number that no other client
// has: field 1000, and the same field of the answer, which dm-reverb's servers leave out.
Result<bool> read_info_request(Bytes message);
std::string write_info_request(bool wants_client_number);

struct ServerInfoResponse {
  std::uint64_t state_high = 0;  // of tables_state_id
  std::uint64_t state_low = 0;
  std::vector<TableInfo> tables;
  std::uint64_t client_number = 0;  // 0: none was asked for, or given
};
Result<ServerInfoResponse> read_info_response(Bytes message);
std::string write_info_response(const ServerInfoResponse& response);

struct InitializeConnectionRequest {
  std::int64_t pid = 0;
  std::string_view table;
  bool ownership_transferred = false;
};
Result<InitializeConnectionRequest> read_initialize_request(Bytes message);

}  // namespace reverie::wire
