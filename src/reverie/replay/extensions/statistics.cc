// Tested in src/reverie/replay/local_service_test.cc.
#include "reverie/replay/extensions/statistics.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

#include "reverie/codec/byte_stream.h"
#include "reverie/codec/stored_time.h"

namespace reverie {
namespace {

double age_s(const TableAccess& table, const StoredItem& item) {
  return to_seconds(table.now() - TimePoint{item.inserted_at_ns});
}

double mean(double sum, std::int64_t count) {
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}

}  // namespace

void Statistics::count_priority(double priority) {
  figures_.priority_min = std::min(figures_.priority_min, priority);
  figures_.priority_max = std::max(figures_.priority_max, priority);
  figures_.priority_sum += priority;
}

void Statistics::on_insert(TableAccess& table, Slot slot) {
  if (figures_.inserts++ == 0) figures_.first_insert = table.now();
  count_priority(table.item(slot).priority);
}

void Statistics::on_sample(TableAccess& table, Slot slot) {
  const double age = age_s(table, table.item(slot));
  ++figures_.samples;
  figures_.sampled_age_sum_s += age;
  figures_.sampled_age_max_s = std::max(figures_.sampled_age_max_s, age);
}

void Statistics::on_update(TableAccess& table, Slot slot, double) {
  ++figures_.updates;
  count_priority(table.item(slot).priority);
}

void Statistics::on_delete(TableAccess& table, Slot slot) {
  const StoredItem& item = table.item(slot);
  ++figures_.deletes;
  figures_.deleted_age_sum_s += age_s(table, item);
  figures_.deleted_times_sampled_sum += item.times_sampled;
  if (item.times_sampled == 0) ++figures_.deleted_never_sampled;
}

std::map<std::string, double> Statistics::summary(TimePoint now) const {
  const Figures& f = figures_;
  const std::int64_t priorities = f.inserts + f.updates;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double elapsed_s = f.inserts == 0 ? 0 : to_seconds(now - f.first_insert);
  const auto rate = [&](std::int64_t count) {
    return elapsed_s > 0 ? static_cast<double>(count) / elapsed_s : nan;
  };
  return {
      {"inserts", static_cast<double>(f.inserts)},
      {"samples", static_cast<double>(f.samples)},
      {"updates", static_cast<double>(f.updates)},
      {"deletes", static_cast<double>(f.deletes)},
      {"priority_min", priorities == 0 ? nan : f.priority_min},
      {"priority_mean", mean(f.priority_sum, priorities)},
      {"priority_max", priorities == 0 ? nan : f.priority_max},
      {"sampled_age_mean_s", mean(f.sampled_age_sum_s, f.samples)},
      {"sampled_age_max_s", f.samples == 0 ? nan : f.sampled_age_max_s},
      {"deleted_age_mean_s", mean(f.deleted_age_sum_s, f.deletes)},
      {"deleted_times_sampled_mean", mean(f.deleted_times_sampled_sum, f.deletes)},
      {"deleted_never_sampled", static_cast<double>(f.deleted_never_sampled)},
      {"inserts_per_s", rate(f.inserts)},
      {"samples_per_s", rate(f.samples)},
  };
}

std::string Statistics::save(std::int64_t calendar_offset_ns) const {
  const Figures& f = figures_;
  std::string state;
  const auto put = [&state](std::uint64_t word) {
    for (int bits = 0; bits < 64; bits += 8) state.push_back(static_cast<char>(word >> bits));
  };
  for (const std::int64_t count :
       {f.inserts, f.samples, f.updates, f.deletes, f.deleted_never_sampled}) {
    put(static_cast<std::uint64_t>(count));
  }
  for (const double number :
       {f.priority_min, f.priority_max, f.priority_sum, f.sampled_age_sum_s, f.sampled_age_max_s,
        f.deleted_age_sum_s, f.deleted_times_sampled_sum}) {
    put(std::bit_cast<std::uint64_t>(number));
  }
  put(static_cast<std::uint64_t>(f.inserts == 0 ? 0 : f.first_insert.ns + calendar_offset_ns));
  return state;
}

Status Statistics::restore(std::string_view state, std::int64_t calendar_offset_ns) {
  Figures f;
  ByteReader in(std::as_bytes(std::span(state)));
  for (std::int64_t* const count :
       {&f.inserts, &f.samples, &f.updates, &f.deletes, &f.deleted_never_sampled}) {
    *count = in.i64();
  }
  for (double* const number :
       {&f.priority_min, &f.priority_max, &f.priority_sum, &f.sampled_age_sum_s,
        &f.sampled_age_max_s, &f.deleted_age_sum_s, &f.deleted_times_sampled_sum}) {
    *number = in.f64();
  }
  const std::int64_t first_insert = read_time(in);
  if (f.inserts != 0) f.first_insert = {first_insert - calendar_offset_ns};
  if (!in.is_done()) {
    return data_loss("its state of {} bytes is malformed; it must have 104, and a time",
                     state.size());
  }
  figures_ = f;
  return {};
}

}  // namespace reverie
