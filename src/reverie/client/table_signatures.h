// The signatures of a service's tables, requested once.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Not thread-safe.
class TableSignatures {
 public:
  // Whether find() will not have to ask the service.
  bool knows(std::string_view table) const { return known(table) != nullptr; }
  // The table's signature, null if it has none; valid as long as this object. The first call for a
  // table asks the service, and waits for it until `deadline`, a time of `clock`. NOT_FOUND lists
  // the tables.
  Result<const Signature*> find(std::string_view table, ReplayService& service, TimePoint deadline,
                                const Clock& clock, const WaitOptions& wait);

 private:
  struct Table {
    std::string name;
    std::optional<Signature> signature;
  };
  const Table* known(std::string_view table) const;
  Status learn(Result<std::vector<TableInfo>> infos);

  std::deque<Table> tables_;
};

}  // namespace reverie
