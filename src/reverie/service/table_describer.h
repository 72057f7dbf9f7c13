// TableDescriber: a service that can say what its tables are sooner than how they stand.
//
// Where several services hold a store together, the first one that answers is enough for that.
#pragma once

#include <vector>

#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

class TableDescriber {
 public:
  virtual ~TableDescriber() = default;
  // As ReplayService::info(), but counts and sizes are those of any part.
  virtual RequestId describe(ReplayService::Done<Result<std::vector<TableInfo>>> done) = 0;
};

// What the tables are; asks for info() where the service is not a TableDescriber.
Result<std::vector<TableInfo>> describe_and_wait(ReplayService& service,
                                                 const WaitOptions& options = {});

}  // namespace reverie
