// The messages of a store's client and server over a link: requests and their answers.
//     frame     kCall or kAnswer; `sequence`: the StoreCall; `call`: the number of the request
//     head      the numbers and texts of the request or answer
//     bulk      rows and columns: chunks of an insert, packed samples (native_wire/packed_format.h)
// The handshake is that of peers (rpc/handshake.h), with other names; `received` of its last
// message is the server's bound on a frame's bulk, 0 if it does not say. A request has one answer;
// the answer to a sample request may be sent in parts, all but the last with kMoreFollows. A sample
// of large chunks may refer to an arena of the server, which the client maps (rpc/wire_link.h): the
// server keeps them until the client has returned the sample. Inserts are in insert_ledger.h and
// insert_mirror.h, and have their answers here. Every reader returns DATA_LOSS for malformed bytes,
// and allocates nothing for a length that is not checked yet.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/record/store_origin.h"
#include "reverie/record/table_info.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/service/replay_service.h"
#include "reverie/tensor/payload.h"

namespace reverie::store_wire {

// The names of the two ends; the number is the version of this protocol.
inline constexpr std::string_view kClientName = "reverie.store.client/5";
inline constexpr std::string_view kServerName = "reverie.store/5";
// In `receiver_session` of a client's RESUME, which earlier servers ignore: the client understands
// Inserted::ended. Writers of other clients end with their connection.
inline constexpr std::uint64_t kKnowsEndedWriters = 1;
// The first bytes of every link of peers.
inline constexpr std::string_view kFirstBytes = "RvR2";

enum class StoreCall : std::uint64_t {
  kInsert = 1,
  kSample = 2,
  kMutate = 3,
  kLookup = 4,
  kReset = 5,
  kInfo = 6,
  kWhyBlocked = 7,
  kNewClient = 8,
  kCheckpoint = 9,
  kOrigin = 10,
  // Notifications of a connection's writers. They have no answers.
  kOpenWriter = 11,
  kEndWriter = 12,
  kWithdraw = 13,
  kReturned = 14,
};
inline constexpr std::uint64_t kMoreFollows = 1;  // in `received` of an answer

// How many requests and items of a connection may be in progress; further ones are refused.
inline constexpr std::size_t kRequestsMax = 4096;
inline constexpr std::size_t kWritersMax = 4096;
inline constexpr std::size_t kItemsUnderWayMax = 16'384;  // of one writer
inline constexpr std::size_t kMessageItemsMax = 4096;
// The samples of one request, which are in memory together.
inline constexpr std::uint64_t kRequestSamplesMax = std::uint64_t{1} << 22;

std::shared_ptr<const Message> message_of(Payload payload);

// --- Requests. Views refer to the message.
struct SampleMessage {
  std::string_view table;
  std::uint64_t count = 0;
  std::uint64_t min_count = 0;
  bool is_distinct = false;
  bool wants_least = false;
  bool wants_names = false;                        // whether to send the column names of the table
  std::optional<Duration> timeout = std::nullopt;  // empty: no limit
  // Requests whose samples have arrived, since the last such list; and those whose samples are no
  // longer used.
  std::vector<std::uint64_t> received = {};
  std::vector<std::uint64_t> returned = {};
};
Payload write_sample(const SampleMessage& ask);
Result<SampleMessage> read_sample(const Payload& payload);

struct MutateMessage {
  std::string_view table;
  std::vector<ItemKey> deletes;
  std::vector<std::uint64_t> tickets;
  std::vector<double> ticket_priorities;
  std::vector<ItemKey> keys;
  std::vector<double> key_priorities;
  std::vector<CorruptItem> corrupt;
};
Payload write_mutate(const MutateRequest& request);
Result<MutateMessage> read_mutate(const Payload& payload);

struct LookupMessage {
  std::string_view table;
  std::vector<ItemKey> keys;
};
Payload write_lookup(const LookupRequest& request);
Result<LookupMessage> read_lookup(const Payload& payload);

// The table of kReset and kWhyBlocked, the payload of kCheckpoint.
Payload write_text(std::string_view text);
Result<std::string_view> read_text(const Payload& payload);

// --- Answers. All begin with a status; the other fields follow only if it is ok, except for
// samples.
Payload write_status(const Status& status);
Status read_status(const Payload& payload);

Payload write_mutated(const MutateResult& result);
MutateResult read_mutated(const Payload& payload);
Payload write_found(const LookupResult& result);
LookupResult read_found(const Payload& payload);
Payload write_infos(const Result<std::vector<TableInfo>>& infos);
Result<std::vector<TableInfo>> read_infos(const Payload& payload);
Payload write_report(const Result<BlockedReport>& report);
Result<BlockedReport> read_report(const Payload& payload);
Payload write_number(const Result<std::uint64_t>& number);
Result<std::uint64_t> read_number(const Payload& payload);
Payload write_path(const Result<std::string>& path);
Result<std::string> read_path(const Payload& payload);
Payload write_origin(const Result<StoreOrigin>& origin);
Result<StoreOrigin> read_origin(const Payload& payload);

// The head of one part of the answer to a sample request; its items are in the bulk.
struct SamplePart {
  Status status;
  std::vector<std::uint64_t> tickets;  // of the items of this part
  double sampler_mass = 0;
  double least_probability = 0;
  std::int64_t table_size = 0;
  bool is_rate_limited = false;
  std::optional<wire::ColumnNames> names = std::nullopt;  // if they were requested
};
Payload write_part(const SamplePart& part);
Result<SamplePart> read_part(const Payload& payload);

// The outcome of a writer's items: those that were inserted, and requests that failed.
struct Inserted {
  struct Run {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
  };
  struct Failure {
    std::uint64_t first = 0;    // of the request
    std::uint64_t applied = 0;  // how many of its items were inserted
    Status status;
  };
  std::uint32_t writer = 0;
  std::uint64_t messages_taken = 0;
  std::vector<Run> in;
  std::vector<Failure> failed;
  // Not ok: the server has ended the writer, and drops what it sends until it is opened again. In
  // the message only then, and only for a client that understands it.
  Status ended = {};
};
Payload write_inserted(const Inserted& inserted);
Result<Inserted> read_inserted(const Payload& payload);

// Requests whose samples are no longer used: the content of kReturned.
Payload write_returned(std::span<const std::uint64_t> ids);
Result<std::vector<std::uint64_t>> read_returned(const Payload& payload);

// The content of kOpenWriter, kEndWriter and kWithdraw: a writer of the connection; for kOpenWriter
// also its session's name and how many connections it has had; for kWithdraw the first number of
// the withdrawn request.
struct WriterNote {
  std::uint32_t writer = 0;
  std::uint64_t first = 0;
  std::string_view session = {};
};
Payload write_note(const WriterNote& note);
Result<WriterNote> read_note(const Payload& payload);

}  // namespace reverie::store_wire
