// TableDescriber: a service that can report its tables' options sooner than their sizes and counts.
//
// If several services form a store together, the first answer is enough.
#pragma once

#include <vector>

#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

class TableDescriber {
 public:
  virtual ~TableDescriber() = default;
  // As ReplayService::info(), but counts and sizes may be those of one part.
  virtual RequestId describe(ReplayService::Done<Result<std::vector<TableInfo>>> done) = 0;
};

// The tables' options; uses info() if the service is not a TableDescriber.
Result<std::vector<TableInfo>> describe_and_wait(ReplayService& service,
                                                 const WaitOptions& options = {});

}  // namespace reverie
