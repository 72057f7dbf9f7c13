// Statistics: what went through a table, in a handful of figures.
//
// inserts, samples, updates, deletes: counts since the table was made or reset.
// priority_{min,mean,max}: of inserts and updates.
// sampled_age_{mean,max}_s: how long sampled items had been in the table.
// deleted_age_mean_s, deleted_times_sampled_mean, deleted_never_sampled: of items that left, how
// long they were there, how often they were drawn, and how many never were.
// inserts_per_s, samples_per_s: over the time since the first insert.
#pragma once

#include <cstdint>
#include <limits>

#include "reverie/replay/extension.h"

namespace reverie {

class Statistics final : public TableExtension {
 public:
  std::string_view name() const override { return "Statistics"; }
  void on_insert(TableAccess& table, Slot slot) override;
  void on_sample(TableAccess& table, Slot slot) override;
  void on_update(TableAccess& table, Slot slot, double old_priority) override;
  void on_delete(TableAccess& table, Slot slot) override;
  void on_reset() override { figures_ = {}; }
  std::string save(std::int64_t calendar_offset_ns) const override;
  void on_restore(TableAccess&, Slot) override {}
  Status restore(std::string_view state, std::int64_t calendar_offset_ns) override;
  std::map<std::string, double> summary(TimePoint now) const override;

 private:
  void count_priority(double priority);

  struct Figures {
    std::int64_t inserts = 0, samples = 0, updates = 0, deletes = 0;
    std::int64_t deleted_never_sampled = 0;
    double priority_min = std::numeric_limits<double>::infinity();
    double priority_max = -std::numeric_limits<double>::infinity();
    double priority_sum = 0;
    double sampled_age_sum_s = 0, sampled_age_max_s = 0;
    double deleted_age_sum_s = 0, deleted_times_sampled_sum = 0;
    TimePoint first_insert = TimePoint::max();
  };
  Figures figures_;
};

}  // namespace reverie
