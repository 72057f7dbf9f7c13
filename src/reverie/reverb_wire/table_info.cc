// Tested in tests/integration/reverb_wire_oracle_test.cc.
#include "reverie/reverb_wire/table_info.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "reverie/reverb_wire/selector.h"
#include "reverie/reverb_wire/signature.h"

namespace reverie::wire {
namespace {

// Reverie's own, far from the numbers that Reverb may use.
constexpr std::uint32_t kCorruptItems = 1000;

Status read_completed(Bytes message, std::int64_t& completed) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == varint_field(2)) {
      completed = reader.get_int64();
    } else {
      reader.skip();
    }
    return Status();
  });
}

Status read_limiter(Bytes message, TableInfo& info) {
  RateLimiterSpec& limiter = info.options.rate_limiter;
  limiter = {0, 0, 0, 0};  // a field that is not there is 0
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case double_field(1):
        limiter.samples_per_insert = reader.get_double();
        return Status();
      case double_field(2):
        limiter.min_diff = reader.get_double();
        return Status();
      case double_field(3):
        limiter.max_diff = reader.get_double();
        return Status();
      case varint_field(4):
        limiter.min_size_to_sample = reader.get_int64();
        return Status();
      case bytes_field(5):
        return read_completed(get_bytes(reader), info.inserts);
      case bytes_field(6):
        return read_completed(get_bytes(reader), info.samples);
      default:
        reader.skip();
        return Status();
    }
  });
}

std::string write_limiter(const TableInfo& info) {
  const RateLimiterSpec& limiter = info.options.rate_limiter;
  std::string out;
  put_double(out, 1, limiter.samples_per_insert);
  put_double(out, 2, limiter.min_diff);
  put_double(out, 3, limiter.max_diff);
  put_int(out, 4, limiter.min_size_to_sample);
  std::string inserts;
  put_int(inserts, 2, info.inserts);
  put_message(out, 5, inserts);
  std::string samples;
  put_int(samples, 2, info.samples);
  put_message(out, 6, samples);
  return out;
}

Status read_fields(Bytes message, TableInfo& info) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case bytes_field(1):
        return read_selector(get_bytes(reader), info.options.sampler);
      case bytes_field(2):
        return read_selector(get_bytes(reader), info.options.remover);
      case varint_field(3):
        info.options.max_size = reader.get_int64();
        return Status();
      case varint_field(4):
        info.options.max_times_sampled = reader.get_int32();
        return Status();
      case bytes_field(5):
        return read_limiter(get_bytes(reader), info);
      case bytes_field(6): {
        Result<Signature> signature = read_signature(get_bytes(reader));
        if (signature.ok()) info.options.signature = std::move(signature).value();
        return Status();
      }
      case varint_field(7):
        info.current_size = reader.get_int64();
        return Status();
      case bytes_field(8):
        info.options.name = get_text(reader);
        return Status();
      case varint_field(9):
        info.num_episodes = reader.get_int64();
        return Status();
      case varint_field(10):
        info.num_deleted_episodes = reader.get_int64();
        return Status();
      case varint_field(11):
        info.num_unique_samples = reader.get_int64();
        return Status();
      case varint_field(kCorruptItems):
        info.corrupt_items = reader.get_int64();
        return Status();
      default:
        reader.skip();
        return Status();
    }
  });
}

}  // namespace

Result<TableInfo> read_table_info(Bytes message) {
  return read_message("TableInfo", [&]() -> Result<TableInfo> {
    TableInfo info;
    REVERIE_RETURN_IF_ERROR(read_fields(message, info));
    // Every removed item counts as deleted. The received numbers may be anything.
    const bool is_plausible = info.current_size >= 0 && info.inserts >= info.current_size;
    info.deletes = is_plausible ? info.inserts - info.current_size : 0;
    return info;
  });
}

std::string write_table_info(const TableInfo& info) {
  const TableOptions& options = info.options;
  std::string out;
  put_message(out, 1, write_selector(options.sampler));
  put_message(out, 2, write_selector(options.remover));
  put_int(out, 3, options.max_size);
  // More draws of one item are not counted (TableCore), so that the largest number says the same.
  using Limits = std::numeric_limits<std::int32_t>;
  put_int(out, 4,
          std::clamp<std::int64_t>(options.max_times_sampled, Limits::min(), Limits::max()));
  put_message(out, 5, write_limiter(info));
  if (options.signature) {
    const Result<std::string> signature = write_signature(*options.signature);
    if (signature.ok()) put_message(out, 6, *signature);
  }
  put_int(out, 7, info.current_size);
  put_text(out, 8, options.name);
  put_int(out, 9, info.num_episodes);
  put_int(out, 10, info.num_deleted_episodes);
  put_int(out, 11, info.num_unique_samples);
  put_int(out, kCorruptItems, info.corrupt_items);
  return out;
}

}  // namespace reverie::wire
