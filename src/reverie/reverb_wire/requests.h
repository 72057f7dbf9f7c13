// The messages of Reverb's service, in both directions.
//
// Results of readers view the bytes that were read. A message with chunks is written as pieces, so
// that the bytes of large chunks are referenced and never copied. All readers return
// INVALID_ARGUMENT for malformed bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/store_origin.h"
#include "reverie/record/table_info.h"
#include "reverie/reverb_wire/fields.h"
#include "reverie/reverb_wire/item.h"

namespace reverie::wire {

// The path of a method: kServicePath + "InsertStream".
inline constexpr std::string_view kServicePath = "/deepmind.reverb.ReverbService/";

// A message under construction: its own bytes, and between them bytes that others own.
struct PiecedMessage {
  // Pieces up to this size are copied: gathering them in place costs more.
  static constexpr std::size_t kCopiedBytesMax = std::size_t{4} << 10;

  struct Piece {
    std::size_t at = 0;  // it is inserted before this byte of `own`
    Bytes bytes;
  };

  std::string own;
  std::vector<Piece> pieces;

  // Whether the bytes are referenced, not copied.
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
// has neither this nor the fields above 3, and ignores them. See docs/decisions/0004.
inline constexpr std::string_view kSessionName = "reverie-session";
// The ordinal of this stream in its session, as a decimal number: it tells late data of an old
// connection from new data.
inline constexpr std::string_view kStreamName = "reverie-stream";

// The fields of an InsertStreamRequest that contain chunks: Reverb's, and ours, whose number is far
// from those that Reverb may use.
inline constexpr std::uint32_t kChunksField = 1;
inline constexpr std::uint32_t kStoredChunksField = 1000;

struct InsertStreamRequest {
  std::vector<Bytes> chunks;         // each a ChunkData
  std::vector<Bytes> stored_chunks;  // our own form: native_wire/stored_chunk.h
  std::vector<WireItem> items;
  std::vector<std::uint64_t> keep_chunk_keys;
  // The items' numbers in a session are first_number, first_number + 1, ...; 0 without a session.
  std::uint64_t first_number = 0;
  std::uint64_t settled_below = 0;  // the writer will not ask for these again

  // Prepares for another message, which then needs almost no new memory. Long lists are freed:
  // memory that is kept is not counted anywhere.
  void clear();
  // The next of `items`, reusing the memory of earlier ones.
  WireItem& add_item();

 private:
  static constexpr std::size_t kSpareMax = 1024;
  static constexpr std::size_t kSparePlacesMax = 64;  // of one item
  std::vector<WireItem> spare_items_;
};
// A chunk that was removed from a message with its head: it preceded byte `at` of the
// rest.
struct ChunkApart {
  std::size_t at = 0;
  Bytes chunk;
};
// Requires `apart` in the order of the message.
Result<InsertStreamRequest> read_insert_request(Bytes message,
                                                std::span<const ChunkApart> apart = {});
// The same into `request`, whose memory is reused.
Status read_insert_request(Bytes message, std::span<const ChunkApart> apart,
                           InsertStreamRequest& request);
PiecedMessage write_insert_request(std::span<const Bytes> chunks, std::span<const WireItem> items,
                                   std::span<const std::uint64_t> keep_chunk_keys);
// The same for items that put_item() wrote one after another, with their numbers.
PiecedMessage write_numbered_request(std::span<const Bytes> chunks, std::string_view items,
                                     std::span<const std::uint64_t> keep_chunk_keys,
                                     std::uint64_t first_number, std::uint64_t settled_below);
// Appends what follows the chunks of such a message.
void put_numbered_fields(std::string& message, std::string_view items,
                         std::span<const std::uint64_t> keep_chunk_keys, std::uint64_t first_number,
                         std::uint64_t settled_below);
// Appends an item as a field of an InsertStreamRequest.
void put_item(std::string& items, const WireItem& item);

// Items, numbered from `first` on, that are in their table.
struct NumberRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  friend bool operator==(const NumberRun&, const NumberRun&) = default;
};
struct InsertStreamResponse {
  std::vector<ItemKey> keys;
  // In a session: used instead of keys.
  std::vector<NumberRun> confirmed;
  // Requests of this stream that were read completely so far, their items inserted or not.
  std::uint64_t requests_taken = 0;
  // The highest version of stored chunks that the server accepts; 0: none.
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
  // Our own field: the highest version of packed samples that the client can read, 0: none
  // (native_wire/packed_format.h).
  std::uint64_t packed_version = 0;
  // Our own field: how many samples of this stream the client has received so far. Reverb's clients
  // do not send it; they have received everything when they send a request.
  std::optional<std::uint64_t> received = std::nullopt;
};
Result<SampleStreamRequest> read_sample_request(Bytes message);
std::string write_sample_request(const SampleStreamRequest& request);
// Appends the number of received samples to a written request.
void put_received(std::string& request, std::uint64_t count);

// SampleInfo.
struct WireSampleInfo {
  WireItem item;
  double probability = 0;
  std::int64_t table_size = 0;
  bool rate_limited = false;
};
// A part of a sample: only the first has the info, and only the last is marked as last.
struct SampleEntry {
  std::optional<WireSampleInfo> info;
  std::vector<Bytes> chunks;
  bool end_of_sequence = false;
};
Result<std::vector<SampleEntry>> read_sample_response(Bytes message);
// Our own fields of a SampleStreamResponse, which then has no other fields.
struct PackedResponse {
  Bytes samples;            // empty: the response has entries instead
  double sampler_mass = 0;  // of the table (Selector::mass); 0 if the server does not send it
};
Result<PackedResponse> read_packed_response(Bytes message);
// The bytes before and after `size_bytes` of packed samples that make them a
// SampleStreamResponse.
std::string packed_response_head(std::size_t size_bytes);
void put_packed_response_tail(std::string& message, double sampler_mass);
// Appends one part to a SampleStreamResponse; `info` is a written SampleInfo, or empty.
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

// ResetRequest contains only a table.
Result<std::string_view> read_reset_request(Bytes message);
std::string write_reset_request(std::string_view table);

// CheckpointRequest is empty in Reverb's protocol. Ours may contain a payload to store.
Result<std::string_view> read_checkpoint_request(Bytes message);
std::string write_checkpoint_request(std::string_view payload);

struct CheckpointResponse {
  std::string_view path;            // on the server's disk
  std::uint64_t payload_bytes = 0;  // that were stored; dm-reverb's servers store none
};
Result<CheckpointResponse> read_checkpoint_response(Bytes message);
std::string write_checkpoint_response(const CheckpointResponse& response);

// ServerInfoRequest is empty in Reverb's protocol. Ours may ask for more, which is in the fields of
// the answer that dm-reverb's servers leave out.
struct ServerInfoRequest {
  bool wants_client_number = false;  // that no other client has
  bool wants_origin = false;         // what the store was loaded from
};
Result<ServerInfoRequest> read_info_request(Bytes message);
std::string write_info_request(const ServerInfoRequest& request);

struct ServerInfoResponse {
  std::uint64_t state_high = 0;  // of tables_state_id
  std::uint64_t state_low = 0;
  std::vector<TableInfo> tables;
  std::uint64_t client_number = 0;                   // 0: not requested, or not given
  std::optional<StoreOrigin> origin = std::nullopt;  // likewise
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
