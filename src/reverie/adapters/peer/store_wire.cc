#include "reverie/adapters/peer/store_wire.h"

#include <array>
#include <utility>

#include "reverie/adapters/peer/store_bytes.h"
#include "reverie/reverb_wire/requests.h"

namespace reverie::store_wire {
namespace {

void put_status(StoreBytesOut& out, const Status& status) {
  out.put(static_cast<std::uint32_t>(status.code()));
  if (!status.ok()) out.text(status.message());
}

// What a foreign code becomes.
Status status_of(std::uint32_t code, std::string_view text) {
  constexpr std::array kKnown = {StatusCode::kCancelled,         StatusCode::kInvalidArgument,
                                 StatusCode::kDeadlineExceeded,  StatusCode::kNotFound,
                                 StatusCode::kAlreadyExists,     StatusCode::kPermissionDenied,
                                 StatusCode::kResourceExhausted, StatusCode::kFailedPrecondition,
                                 StatusCode::kOutOfRange,        StatusCode::kUnimplemented,
                                 StatusCode::kInternal,          StatusCode::kUnavailable,
                                 StatusCode::kDataLoss,          StatusCode::kUnauthenticated};
  for (const StatusCode known : kKnown) {
    if (static_cast<std::uint32_t>(known) == code) return {known, std::string(text)};
  }
  return internal_error("the server answered with the unknown code {}: {}", code, text);
}

Status get_status(StoreBytesIn& in) {
  const auto code = in.get<std::uint32_t>();
  if (code == 0) return {};
  return status_of(code, in.text());
}

// The rest of an answer that begins with a status: `read` gives its value.
template <typename T, typename Read>
Result<T> read_answer(const Payload& payload, std::string_view what, Read read) {
  StoreBytesIn in(payload.head);
  Status status = get_status(in);
  if (!status.ok() && !in.is_short()) return status;
  T value = read(in);
  REVERIE_RETURN_IF_ERROR(in.status(what));
  return value;
}

Status bad_text(std::string_view what, std::size_t at) {
  return data_loss("{} ends within its text {}", what, at);
}

constexpr std::uint8_t kDistinctFlag = 1;
constexpr std::uint8_t kLeastFlag = 2;
constexpr std::uint8_t kTimeoutFlag = 4;
constexpr std::uint8_t kNamesFlag = 8;
constexpr std::uint32_t kNamesMax = 65'536;
constexpr std::size_t kCorruptBytes = 20;  // of one without its text

// What ServerInfo of Reverb's protocol has no field for.
struct MoreOfTable {
  std::int64_t size_bytes;
  std::int64_t deletes;
  std::int64_t max_bytes;  // -1: none
  std::int64_t pending_inserts;
  std::int64_t pending_samples;
  std::int64_t missing_updates;
  double insert_wait_s;
  double sample_wait_s;
  double max_priority;
  std::uint8_t checks_items;
  std::uint8_t undoes_unsent;
  std::uint8_t is_keyed;
  std::uint8_t zero[5];
};
static_assert(sizeof(MoreOfTable) == 80);

void put_side(StoreBytesOut& out, const BlockedReport::Side& side) {
  out.put(side.waiting);
  out.put(side.longest_wait_s);
  out.text(side.longest_request);
  out.text(side.reason);
}

BlockedReport::Side get_side(StoreBytesIn& in) {
  BlockedReport::Side side;
  side.waiting = in.get<std::int64_t>();
  side.longest_wait_s = in.get<double>();
  side.longest_request = in.text();
  side.reason = in.text();
  return side;
}

}  // namespace

std::shared_ptr<const Message> message_of(Payload payload) {
  return std::make_shared<const Message>(Message{{}, std::move(payload)});
}

Payload write_sample(const SampleAsk& ask) {
  Payload payload;
  payload.head.reserve(64 + ask.table.size());
  StoreBytesOut out(payload.head);
  out.text(ask.table);
  out.put(ask.count);
  out.put(ask.min_count);
  out.put(static_cast<std::uint8_t>(
      (ask.is_distinct ? kDistinctFlag : 0) | (ask.wants_least ? kLeastFlag : 0) |
      (ask.wants_names ? kNamesFlag : 0) | (ask.timeout ? kTimeoutFlag : 0)));
  out.put(std::int64_t{ask.timeout ? ask.timeout->count() : 0});
  out.put(ask.received);
  return payload;
}

Result<SampleAsk> read_sample(const Payload& payload) {
  StoreBytesIn in(payload.head);
  SampleAsk ask;
  ask.table = in.text();
  ask.count = in.get<std::uint64_t>();
  ask.min_count = in.get<std::uint64_t>();
  const auto flags = in.get<std::uint8_t>();
  ask.is_distinct = (flags & kDistinctFlag) != 0;
  ask.wants_least = (flags & kLeastFlag) != 0;
  ask.wants_names = (flags & kNamesFlag) != 0;
  const auto timeout = in.get<std::int64_t>();
  if ((flags & kTimeoutFlag) != 0) ask.timeout = Duration(timeout);
  ask.received = in.get<std::uint64_t>();
  REVERIE_RETURN_IF_ERROR(in.status("a sample request"));
  return ask;
}

Payload write_mutate(const MutateRequest& request) {
  Payload payload;
  payload.head.reserve(64 + request.table.size() +
                       16 * (request.tickets.size() + request.keys.size()) +
                       8 * request.deletes.size());
  StoreBytesOut out(payload.head);
  out.text(request.table);
  out.array(request.deletes);
  out.array(request.tickets);
  out.array(request.ticket_priorities);
  out.array(request.keys);
  out.array(request.key_priorities);
  out.put(static_cast<std::uint32_t>(request.corrupt.size()));
  for (const CorruptItem& item : request.corrupt) {
    out.put(item.key);
    out.put(item.chunk);
    out.text(item.why);
  }
  return payload;
}

Result<MutateAsk> read_mutate(const Payload& payload) {
  StoreBytesIn in(payload.head);
  MutateAsk ask;
  ask.table = in.text();
  ask.deletes = in.array<ItemKey>();
  ask.tickets = in.array<std::uint64_t>();
  ask.ticket_priorities = in.array<double>();
  ask.keys = in.array<ItemKey>();
  ask.key_priorities = in.array<double>();
  const auto corrupt_count = in.get<std::uint32_t>();
  if (corrupt_count > in.left_bytes() / kCorruptBytes) {
    return data_loss("an update has {} corrupt items in {} bytes", corrupt_count, in.left_bytes());
  }
  for (std::uint32_t i = 0; i < corrupt_count; ++i) {
    CorruptItem& item = ask.corrupt.emplace_back();
    item.key = in.get<ItemKey>();
    item.chunk = in.get<ChunkKey>();
    item.why = in.text();
    if (in.is_short()) return bad_text("an update", i);
  }
  REVERIE_RETURN_IF_ERROR(in.status("an update of priorities"));
  return ask;
}

Payload write_lookup(const LookupRequest& request) {
  Payload payload;
  StoreBytesOut out(payload.head);
  out.text(request.table);
  out.array(request.keys);
  return payload;
}

Result<LookupAsk> read_lookup(const Payload& payload) {
  StoreBytesIn in(payload.head);
  LookupAsk ask;
  ask.table = in.text();
  ask.keys = in.array<ItemKey>();
  REVERIE_RETURN_IF_ERROR(in.status("a look-up"));
  return ask;
}

Payload write_text(std::string_view text) {
  Payload payload;
  StoreBytesOut(payload.head).text(text);
  return payload;
}

Result<std::string_view> read_text(const Payload& payload) {
  StoreBytesIn in(payload.head);
  const std::string_view text = in.text();
  REVERIE_RETURN_IF_ERROR(in.status("a request with a name"));
  return text;
}

Payload write_status(const Status& status) {
  Payload payload;
  StoreBytesOut out(payload.head);
  put_status(out, status);
  return payload;
}

Status read_status(const Payload& payload) {
  StoreBytesIn in(payload.head);
  Status status = get_status(in);
  if (!status.ok() && !in.is_short()) return status;
  return in.status("an answer");
}

Payload write_mutated(const MutateResult& result) {
  Payload payload = write_status(result.status);
  if (!result.status.ok()) return payload;
  StoreBytesOut out(payload.head);
  for (const std::size_t count : {result.updated, result.deleted, result.missing}) {
    out.put(std::uint64_t{count});
  }
  return payload;
}

MutateResult read_mutated(const Payload& payload) {
  Result<MutateResult> result =
      read_answer<MutateResult>(payload, "the answer to an update", [](StoreBytesIn& in) {
        MutateResult read;
        read.updated = in.get<std::uint64_t>();
        read.deleted = in.get<std::uint64_t>();
        read.missing = in.get<std::uint64_t>();
        return read;
      });
  return result.ok() ? *result : MutateResult{.status = result.status()};
}

Payload write_found(const LookupResult& result) {
  Payload payload = write_status(result.status);
  if (!result.status.ok()) return payload;
  StoreBytesOut out(payload.head);
  out.array(std::span<const double>(result.priorities));
  out.array(std::span<const std::uint64_t>(result.tickets));
  return payload;
}

LookupResult read_found(const Payload& payload) {
  Result<LookupResult> result =
      read_answer<LookupResult>(payload, "the answer to a look-up", [](StoreBytesIn& in) {
        LookupResult read;
        read.priorities = in.array<double>();
        read.tickets = in.array<std::uint64_t>();
        return read;
      });
  return result.ok() ? std::move(result).value() : LookupResult{result.status(), {}, {}};
}

Payload write_infos(const Result<std::vector<TableInfo>>& infos) {
  Payload payload = write_status(infos.status());
  if (!infos.ok()) return payload;
  StoreBytesOut out(payload.head);
  out.text(wire::write_info_response({0, 0, *infos}));
  for (const TableInfo& info : *infos) {
    MoreOfTable more{};
    more.size_bytes = info.size_bytes;
    more.deletes = info.deletes;
    more.max_bytes = info.options.max_bytes.value_or(-1);
    more.pending_inserts = info.pending_inserts;
    more.pending_samples = info.pending_samples;
    more.missing_updates = info.missing_updates;
    more.insert_wait_s = info.insert_wait_s;
    more.sample_wait_s = info.sample_wait_s;
    more.max_priority = info.max_priority;
    more.checks_items = info.options.checks_items ? 1 : 0;
    more.undoes_unsent = info.options.undoes_unsent ? 1 : 0;
    more.is_keyed = info.options.is_keyed ? 1 : 0;
    out.put(more);
  }
  return payload;
}

Result<std::vector<TableInfo>> read_infos(const Payload& payload) {
  StoreBytesIn in(payload.head);
  Status status = get_status(in);
  if (!status.ok() && !in.is_short()) return status;
  const std::string_view text = in.text();
  REVERIE_ASSIGN_OR_RETURN(wire::ServerInfoResponse response,
                           wire::read_info_response(wire::bytes_of(text)));
  for (TableInfo& info : response.tables) {
    const auto more = in.get<MoreOfTable>();
    info.size_bytes = more.size_bytes;
    info.deletes = more.deletes;
    if (more.max_bytes >= 0) info.options.max_bytes = more.max_bytes;
    info.pending_inserts = more.pending_inserts;
    info.pending_samples = more.pending_samples;
    info.missing_updates = more.missing_updates;
    info.insert_wait_s = more.insert_wait_s;
    info.sample_wait_s = more.sample_wait_s;
    info.max_priority = more.max_priority;
    info.options.checks_items = more.checks_items != 0;
    info.options.undoes_unsent = more.undoes_unsent != 0;
    info.options.is_keyed = more.is_keyed != 0;
  }
  REVERIE_RETURN_IF_ERROR(in.status("a server's description of its tables"));
  return std::move(response.tables);
}

Payload write_report(const Result<BlockedReport>& report) {
  Payload payload = write_status(report.status());
  if (!report.ok()) return payload;
  StoreBytesOut out(payload.head);
  put_side(out, report->inserts);
  put_side(out, report->samples);
  return payload;
}

Result<BlockedReport> read_report(const Payload& payload) {
  return read_answer<BlockedReport>(payload, "a report", [](StoreBytesIn& in) {
    BlockedReport report;
    report.inserts = get_side(in);
    report.samples = get_side(in);
    return report;
  });
}

Payload write_number(const Result<std::uint64_t>& number) {
  Payload payload = write_status(number.status());
  if (number.ok()) StoreBytesOut(payload.head).put(*number);
  return payload;
}

Result<std::uint64_t> read_number(const Payload& payload) {
  return read_answer<std::uint64_t>(payload, "a number",
                                    [](StoreBytesIn& in) { return in.get<std::uint64_t>(); });
}

Payload write_path(const Result<std::string>& path) {
  Payload payload = write_status(path.status());
  if (path.ok()) StoreBytesOut(payload.head).text(*path);
  return payload;
}

Result<std::string> read_path(const Payload& payload) {
  return read_answer<std::string>(payload, "a path",
                                  [](StoreBytesIn& in) { return std::string(in.text()); });
}

Payload write_part(const SamplePart& part) {
  Payload payload;
  payload.head.reserve(64 + 8 * part.tickets.size());
  StoreBytesOut out(payload.head);
  put_status(out, part.status);
  out.array(std::span<const std::uint64_t>(part.tickets));
  out.put(part.sampler_mass);
  out.put(part.least_probability);
  out.put(part.table_size);
  out.put(static_cast<std::uint8_t>(part.is_rate_limited ? 1 : 0));
  out.put(static_cast<std::uint8_t>(part.names ? 1 : 0));
  if (!part.names) return payload;
  out.put(static_cast<std::uint32_t>(part.names->names.size()));
  for (const std::string& name : part.names->names) out.text(name);
  out.text(part.names->structure);
  return payload;
}

Result<SamplePart> read_part(const Payload& payload) {
  StoreBytesIn in(payload.head);
  SamplePart part;
  part.status = get_status(in);
  part.tickets = in.array<std::uint64_t>();
  part.sampler_mass = in.get<double>();
  part.least_probability = in.get<double>();
  part.table_size = in.get<std::int64_t>();
  part.is_rate_limited = in.get<std::uint8_t>() != 0;
  if (in.get<std::uint8_t>() != 0) {
    const auto count = in.get<std::uint32_t>();
    if (count > kNamesMax) return data_loss("a table has {} columns", count);
    wire::ColumnNames& names = part.names.emplace();
    for (std::uint32_t i = 0; i < count && !in.is_short(); ++i) names.names.emplace_back(in.text());
    names.structure = in.text();
  }
  REVERIE_RETURN_IF_ERROR(in.status("a part of a sample"));
  return part;
}

Payload write_inserted(const Inserted& inserted) {
  Payload payload;
  payload.head.reserve(32 + sizeof(Inserted::Run) * inserted.in.size());
  StoreBytesOut out(payload.head);
  out.put(inserted.writer);
  out.put(inserted.messages_taken);
  out.array(std::span<const Inserted::Run>(inserted.in));
  out.put(static_cast<std::uint32_t>(inserted.failed.size()));
  for (const Inserted::Failure& failure : inserted.failed) {
    out.put(failure.first);
    out.put(failure.applied);
    put_status(out, failure.status);
  }
  return payload;
}

Result<Inserted> read_inserted(const Payload& payload) {
  StoreBytesIn in(payload.head);
  Inserted inserted;
  inserted.writer = in.get<std::uint32_t>();
  inserted.messages_taken = in.get<std::uint64_t>();
  inserted.in = in.array<Inserted::Run>();
  const auto failed_count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < failed_count && !in.is_short(); ++i) {
    Inserted::Failure& failure = inserted.failed.emplace_back();
    failure.first = in.get<std::uint64_t>();
    failure.applied = in.get<std::uint64_t>();
    failure.status = get_status(in);
  }
  REVERIE_RETURN_IF_ERROR(in.status("a confirmation of inserts"));
  return inserted;
}

Payload write_note(const WriterNote& note) {
  Payload payload;
  StoreBytesOut out(payload.head);
  out.put(note.writer);
  out.put(note.first);
  out.text(note.session);
  return payload;
}

Result<WriterNote> read_note(const Payload& payload) {
  StoreBytesIn in(payload.head);
  WriterNote note;
  note.writer = in.get<std::uint32_t>();
  note.first = in.get<std::uint64_t>();
  note.session = in.text();
  REVERIE_RETURN_IF_ERROR(in.status("a note of a writer"));
  return note;
}

}  // namespace reverie::store_wire
