// Tested in trajectory_writer_test.cc.
#include "reverie/client/table_signatures.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "reverie/service/table_describer.h"
#include "reverie/service/time_limit.h"

namespace reverie {

const TableSignatures::Table* TableSignatures::known(std::string_view table) const {
  const auto found = std::ranges::find(tables_, table, &Table::name);
  return found == tables_.end() ? nullptr : &*found;
}

Status TableSignatures::learn(Result<std::vector<TableInfo>> infos) {
  REVERIE_RETURN_IF_ERROR(infos.status());
  for (TableInfo& info : *infos) {
    if (known(info.options.name)) continue;
    tables_.push_back({std::move(info.options.name), std::move(info.options.signature)});
  }
  return {};
}

Result<const Signature*> TableSignatures::find(std::string_view table, ReplayService& service,
                                               TimePoint deadline, const Clock& clock,
                                               const WaitOptions& wait) {
  if (!known(table)) {
    std::optional<Duration> left;
    if (deadline != TimePoint::max()) {
      const Duration until = deadline - clock.now();
      left =
          std::max(Duration::zero(), Duration(std::chrono::ceil<std::chrono::milliseconds>(until)));
    }
    TimeLimit time(left, clock);
    const WaitOptions limited = time.limit(wait);
    Status asked = learn(describe_and_wait(service, limited));
    // One of several services may lack a table that another has.
    if (asked.ok() && !known(table)) asked = learn(info_and_wait(service, limited));
    if (!asked.ok()) return time.outcome(asked);
  }
  const Table* const found = known(table);
  if (!found) {
    std::string names;
    for (const Table& t : tables_) names += (names.empty() ? "'" : ", '") + t.name + "'";
    return not_found("there is no table '{}'; the tables are: {}", table, names);
  }
  return found->signature ? &*found->signature : nullptr;
}

}  // namespace reverie
