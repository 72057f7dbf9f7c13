// Tested in trajectory_writer_test.cc.
#include "reverie/client/table_signatures.h"

#include <algorithm>
#include <utility>

#include "reverie/service/table_describer.h"

namespace reverie {

const TableSignatures::Table* TableSignatures::known(std::string_view table) const {
  const auto found = std::ranges::find(tables_, table, &Table::name);
  return found == tables_.end() ? nullptr : &*found;
}

void TableSignatures::learn(std::vector<TableInfo> infos) {
  for (TableInfo& info : infos) {
    if (known(info.options.name)) continue;
    tables_.push_back({std::move(info.options.name), std::move(info.options.signature)});
  }
}

Result<const Signature*> TableSignatures::find(std::string_view table, ReplayService& service,
                                               const WaitOptions& wait) {
  if (!known(table)) {
    REVERIE_ASSIGN_OR_RETURN(std::vector<TableInfo> infos, describe_and_wait(service, wait));
    learn(std::move(infos));
  }
  if (!known(table)) {
    // One of several services may lack a table that another has.
    REVERIE_ASSIGN_OR_RETURN(std::vector<TableInfo> infos, info_and_wait(service, wait));
    learn(std::move(infos));
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
