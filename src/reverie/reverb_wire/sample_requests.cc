// The second source of requests.h: the messages of SampleStream, in both directions.
//
// Tested in tests/integration/reverb_wire_oracle_test.cc.
#include <utility>

#include "reverie/reverb_wire/requests.h"

namespace reverie::wire {
namespace {

// Reverie's own, far from the numbers that Reverb may use.
constexpr std::uint32_t kPackedField = 1000;
constexpr std::uint32_t kReceivedField = 1001;
constexpr std::uint32_t kSamplerMassField = 1001;

Status read_info(Bytes message, WireSampleInfo& info) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) -> Status {
    switch (tag) {
      case bytes_field(1): {
        REVERIE_ASSIGN_OR_RETURN(info.item, read_item(get_bytes(reader)));
        return {};
      }
      case double_field(2):
        info.probability = reader.get_double();
        return {};
      case varint_field(3):
        info.table_size = reader.get_int64();
        return {};
      case varint_field(4):
        info.rate_limited = get_flag(reader);
        return {};
      default:
        reader.skip();
        return {};
    }
  });
}

Status read_entry(Bytes message, SampleEntry& entry) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case bytes_field(1):
        return read_info(get_bytes(reader), entry.info.emplace());
      case bytes_field(2):
        entry.chunks.push_back(get_bytes(reader));
        return Status();
      case varint_field(3):
        entry.end_of_sequence = get_flag(reader);
        return Status();
      default:
        reader.skip();
        return Status();
    }
  });
}

// The text in field 1, which is all that some messages have.
}  // namespace

Result<SampleStreamRequest> read_sample_request(Bytes message) {
  return read_message("SampleStreamRequest", [&]() -> Result<SampleStreamRequest> {
    SampleStreamRequest request;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      switch (tag) {
        case bytes_field(1):
          request.table = text_of(get_bytes(reader));
          return Status();
        case varint_field(2):
          request.num_samples = reader.get_int64();
          return Status();
        case bytes_field(3):
          return for_each_field(get_bytes(reader), [&](Reader& inner, std::uint32_t inner_tag) {
            if (inner_tag == varint_field(1)) {
              request.timeout_ms = inner.get_int64();
            } else {
              inner.skip();
            }
            return Status();
          });
        case varint_field(kPackedField):
          request.packed_version = reader.get_uint64();
          return Status();
        case varint_field(kReceivedField):
          request.received = reader.get_uint64();
          return Status();
        default:
          reader.skip();
          return Status();
      }
    }));
    return request;
  });
}

std::string write_sample_request(const SampleStreamRequest& request) {
  std::string timeout;
  put_int(timeout, 1, request.timeout_ms);
  std::string out;
  put_text(out, 1, request.table);
  put_int(out, 2, request.num_samples);
  put_message(out, 3, timeout);
  put_uint(out, kPackedField, request.packed_version);
  if (request.received) put_received(out, *request.received);
  return out;
}

void put_received(std::string& request, std::uint64_t count) {
  put_tag(request, varint_field(kReceivedField));
  put_varint(request, count);
}

Result<PackedResponse> read_packed_response(Bytes message) {
  return read_message("SampleStreamResponse", [&]() -> Result<PackedResponse> {
    PackedResponse response;
    Reader reader = reader_of(message);
    // It is the first field or absent, so that entries are not read twice.
    if (!reader.next() || reader.tag_and_type() != bytes_field(kPackedField)) return response;
    response.samples = get_bytes(reader);
    while (reader.next()) {
      if (reader.tag_and_type() == double_field(kSamplerMassField)) {
        response.sampler_mass = reader.get_double();
      } else {
        reader.skip();
      }
    }
    return response;
  });
}

std::string packed_response_head(std::size_t size_bytes) {
  std::string out;
  put_head(out, kPackedField, size_bytes);
  return out;
}

void put_packed_response_tail(std::string& message, double sampler_mass) {
  put_double(message, kSamplerMassField, sampler_mass);
}

Result<std::vector<SampleEntry>> read_sample_response(Bytes message) {
  return read_message("SampleStreamResponse", [&]() -> Result<std::vector<SampleEntry>> {
    std::vector<SampleEntry> entries;
    REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
      if (tag == bytes_field(1)) return read_entry(get_bytes(reader), entries.emplace_back());
      reader.skip();
      return Status();
    }));
    return entries;
  });
}

void put_sample_entry(PiecedMessage& response, std::string_view info, std::span<const Bytes> chunks,
                      bool end_of_sequence) {
  std::size_t size = end_of_sequence ? 2 : 0;
  if (!info.empty()) size += head_bytes(1, info.size()) + info.size();
  for (const Bytes chunk : chunks) size += head_bytes(2, chunk.size()) + chunk.size();
  put_head(response.own, 1, size);
  if (!info.empty()) put_message(response.own, 1, info);
  for (const Bytes chunk : chunks) {
    put_head(response.own, 2, chunk.size());
    response.put(chunk);
  }
  put_bool(response.own, 3, end_of_sequence);
}

std::string write_sample_info(const WireSampleInfo& info) {
  std::string out;
  put_message(out, 1, write_item(info.item));
  put_double(out, 2, info.probability);
  put_int(out, 3, info.table_size);
  put_bool(out, 4, info.rate_limited);
  return out;
}

}  // namespace reverie::wire
