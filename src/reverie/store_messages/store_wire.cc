#include "reverie/store_messages/store_wire.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "reverie/messages/message_fields.h"
#include "reverie/reverb_wire/requests.h"

namespace reverie::store_wire {
namespace {

constexpr std::size_t kNamesMax = 65'536;
constexpr std::size_t kNameBytesMax = std::size_t{1} << 20;

constexpr auto kDurationFields = [](auto& fields, auto& duration) {
  std::int64_t count = duration.count();
  fields.number(count);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(duration)>>) {
    duration = Duration(count);
  }
};

constexpr auto kNamesFields = [](auto& fields, auto& names) {
  fields.texts(names.names, kNamesMax, kNameBytesMax);
  fields.text(names.structure);
};

constexpr auto kSampleFields = [](auto& fields, auto& ask) {
  fields.text(ask.table);
  fields.number(ask.count);
  fields.number(ask.min_count);
  fields.flag(ask.is_distinct);
  fields.flag(ask.wants_least);
  fields.flag(ask.wants_names);
  fields.optional(ask.timeout, kDurationFields);
  fields.array(ask.received);
  fields.array(ask.returned);
};

constexpr auto kCorruptFields = [](auto& fields, auto& item) {
  fields.number(item.key);
  fields.number(item.chunk);
  fields.text(item.why);
};

constexpr auto kMutateFields = [](auto& fields, auto& ask) {
  fields.text(ask.table);
  fields.array(ask.deletes);
  fields.array(ask.tickets);
  fields.array(ask.ticket_priorities);
  fields.array(ask.keys);
  fields.array(ask.key_priorities);
  fields.entries(ask.corrupt, kCorruptFields);
};

constexpr auto kLookupFields = [](auto& fields, auto& ask) {
  fields.text(ask.table);
  fields.array(ask.keys);
};

constexpr auto kTextFields = [](auto& fields, auto& text) { fields.text(text); };
constexpr auto kOriginFields = [](auto& fields, auto& origin) {
  fields.text(origin.path);
  fields.text(origin.payload);
};
constexpr auto kArrayFields = [](auto& fields, auto& array) { fields.array(array); };
constexpr auto kNumberFields = [](auto& fields, auto& number) { fields.number(number); };

constexpr auto kMutatedFields = [](auto& fields, auto& result) {
  fields.number(result.updated);
  fields.number(result.deleted);
  fields.number(result.missing);
};

constexpr auto kFoundFields = [](auto& fields, auto& result) {
  fields.array(result.priorities);
  fields.array(result.tickets);
};

// The fields that ServerInfo of Reverb's protocol lacks.
constexpr auto kMoreOfTableFields = [](auto& fields, auto& info) {
  fields.number(info.size_bytes);
  fields.number(info.deletes);
  fields.optional(info.options.max_bytes, kNumberFields);
  fields.number(info.pending_inserts);
  fields.number(info.pending_samples);
  fields.number(info.missing_updates);
  fields.real(info.insert_wait_s);
  fields.real(info.sample_wait_s);
  fields.real(info.max_priority);
  fields.flag(info.options.checks_items);
  fields.flag(info.options.undoes_unsent);
  fields.flag(info.options.is_keyed);
};

constexpr auto kSideFields = [](auto& fields, auto& side) {
  fields.number(side.waiting);
  fields.real(side.longest_wait_s);
  fields.text(side.longest_request);
  fields.text(side.reason);
};

constexpr auto kReportFields = [](auto& fields, auto& report) {
  kSideFields(fields, report.inserts);
  kSideFields(fields, report.samples);
};

constexpr auto kPartFields = [](auto& fields, auto& part) {
  fields.status(part.status);
  fields.array(part.tickets);
  fields.real(part.sampler_mass);
  fields.real(part.least_probability);
  fields.number(part.table_size);
  fields.flag(part.is_rate_limited);
  fields.optional(part.names, kNamesFields);
};

constexpr auto kFailureFields = [](auto& fields, auto& failure) {
  fields.number(failure.first);
  fields.number(failure.applied);
  fields.status(failure.status);
};

constexpr auto kInsertedFields = [](auto& fields, auto& inserted) {
  fields.number(inserted.writer);
  fields.number(inserted.messages_taken);
  fields.array(inserted.in);
  fields.entries(inserted.failed, kFailureFields);
  if (fields.has_more(!inserted.ended.ok())) fields.status(inserted.ended);
};

constexpr auto kNoteFields = [](auto& fields, auto& note) {
  fields.number(note.writer);
  fields.number(note.first);
  fields.text(note.session);
};

// An answer is a status, followed by the fields that `visit` writes if it is ok.
template <typename T, typename Visit>
Payload write_answer(const Status& status, const T* value, const Visit& visit) {
  return write_fields([&](auto& fields) {
    fields.status(status);
    if (status.ok()) visit(fields, *value);
  });
}

template <typename T, typename Visit>
Payload write_answer(const Result<T>& result, const Visit& visit) {
  return write_answer(result.status(), result.ok() ? &*result : nullptr, visit);
}

template <typename T, typename Visit>
Result<T> read_answer(const Payload& payload, std::string_view what, const Visit& visit) {
  FieldsIn in(payload, what);
  Status status;
  in.status(status);
  T value{};
  if (in.ok() && status.ok()) visit(in, value);
  REVERIE_RETURN_IF_ERROR(in.finish());
  if (!status.ok()) return status;
  return value;
}

}  // namespace

std::shared_ptr<const Message> message_of(Payload payload) {
  return std::make_shared<const Message>(Message{{}, std::move(payload)});
}

Payload write_sample(const SampleMessage& ask) {
  return write_fields(ask, kSampleFields);
}

Result<SampleMessage> read_sample(const Payload& payload) {
  return read_fields<SampleMessage>(payload, "a sample request", kSampleFields);
}

Payload write_mutate(const MutateRequest& request) {
  return write_fields(request, kMutateFields);
}

Result<MutateMessage> read_mutate(const Payload& payload) {
  return read_fields<MutateMessage>(payload, "an update of priorities", kMutateFields);
}

Payload write_lookup(const LookupRequest& request) {
  return write_fields(request, kLookupFields);
}

Result<LookupMessage> read_lookup(const Payload& payload) {
  return read_fields<LookupMessage>(payload, "a look-up", kLookupFields);
}

Payload write_text(std::string_view text) {
  return write_fields(text, kTextFields);
}

Result<std::string_view> read_text(const Payload& payload) {
  return read_fields<std::string_view>(payload, "a request with a name", kTextFields);
}

Payload write_status(const Status& status) {
  return write_answer(status, &status, [](auto&, const auto&) {});
}

Status read_status(const Payload& payload) {
  return read_answer<std::monostate>(payload, "an answer", [](auto&, auto&) {}).status();
}

Payload write_mutated(const MutateResult& result) {
  return write_answer(result.status, &result, kMutatedFields);
}

MutateResult read_mutated(const Payload& payload) {
  Result<MutateResult> result =
      read_answer<MutateResult>(payload, "the answer to an update", kMutatedFields);
  return result.ok() ? *result : MutateResult{.status = result.status()};
}

Payload write_found(const LookupResult& result) {
  return write_answer(result.status, &result, kFoundFields);
}

LookupResult read_found(const Payload& payload) {
  Result<LookupResult> result =
      read_answer<LookupResult>(payload, "the answer to a look-up", kFoundFields);
  return result.ok() ? std::move(result).value() : LookupResult{result.status(), {}, {}};
}

Payload write_infos(const Result<std::vector<TableInfo>>& infos) {
  return write_answer(infos, [](auto& fields, const std::vector<TableInfo>& tables) {
    fields.text(wire::write_info_response({0, 0, tables}));
    for (const TableInfo& info : tables) kMoreOfTableFields(fields, info);
  });
}

Result<std::vector<TableInfo>> read_infos(const Payload& payload) {
  Status foreign;
  Result<std::vector<TableInfo>> tables = read_answer<std::vector<TableInfo>>(
      payload, "a server's description of its tables", [&](auto& fields, auto& infos) {
        std::string_view text;
        fields.text(text);
        if (!fields.ok()) return;
        Result<wire::ServerInfoResponse> response = wire::read_info_response(wire::bytes_of(text));
        foreign = response.status();
        if (!foreign.ok()) return;
        infos = std::move(response->tables);
        for (TableInfo& info : infos) kMoreOfTableFields(fields, info);
      });
  REVERIE_RETURN_IF_ERROR(foreign);
  return tables;
}

Payload write_report(const Result<BlockedReport>& report) {
  return write_answer(report, kReportFields);
}

Result<BlockedReport> read_report(const Payload& payload) {
  return read_answer<BlockedReport>(payload, "a report", kReportFields);
}

Payload write_number(const Result<std::uint64_t>& number) {
  return write_answer(number, kNumberFields);
}

Result<std::uint64_t> read_number(const Payload& payload) {
  return read_answer<std::uint64_t>(payload, "a number", kNumberFields);
}

Payload write_path(const Result<std::string>& path) {
  return write_answer(path, kTextFields);
}

Result<std::string> read_path(const Payload& payload) {
  return read_answer<std::string>(payload, "a path", kTextFields);
}

Payload write_origin(const Result<StoreOrigin>& origin) {
  return write_answer(origin, kOriginFields);
}

Result<StoreOrigin> read_origin(const Payload& payload) {
  return read_answer<StoreOrigin>(payload, "what a store was loaded from", kOriginFields);
}

Payload write_part(const SamplePart& part) {
  return write_fields(part, kPartFields);
}

Result<SamplePart> read_part(const Payload& payload) {
  return read_fields<SamplePart>(payload, "a part of a sample", kPartFields);
}

Payload write_inserted(const Inserted& inserted) {
  return write_fields(inserted, kInsertedFields);
}

Result<Inserted> read_inserted(const Payload& payload) {
  return read_fields<Inserted>(payload, "a confirmation of inserts", kInsertedFields);
}

Payload write_returned(std::span<const std::uint64_t> ids) {
  return write_fields(ids, kArrayFields);
}

Result<std::vector<std::uint64_t>> read_returned(const Payload& payload) {
  return read_fields<std::vector<std::uint64_t>>(payload, "a return of samples", kArrayFields);
}

Payload write_note(const WriterNote& note) {
  return write_fields(note, kNoteFields);
}

Result<WriterNote> read_note(const Payload& payload) {
  return read_fields<WriterNote>(payload, "a note of a writer", kNoteFields);
}

}  // namespace reverie::store_wire
