#include "reverie/client/table_signatures.h"

#include <algorithm>

namespace reverie {

const TableSignatures::Table* TableSignatures::known(std::string_view table) const {
  const auto found = std::ranges::find(tables_, table, &Table::name);
  return found == tables_.end() ? nullptr : &*found;
}

Result<const Signature*> TableSignatures::find(std::string_view table, ReplayService& service,
                                               const WaitOptions& wait) {
  const Table* found = known(table);
  if (!found) {
    REVERIE_ASSIGN_OR_RETURN(std::vector<TableInfo> infos, info_and_wait(service, wait));
    for (TableInfo& info : infos) {
      if (!known(info.options.name)) {
        tables_.push_back({std::move(info.options.name), std::move(info.options.signature)});
      }
    }
    found = known(table);
  }
  if (!found) {
    std::string names;
    for (const Table& t : tables_) names += (names.empty() ? "'" : ", '") + t.name + "'";
    return not_found("there is no table '{}'; the tables are: {}", table, names);
  }
  return found->signature ? &*found->signature : nullptr;
}

}  // namespace reverie
