#include "tests/conformance/replay_service_suite.h"

#include "reverie/replay/local_service.h"

namespace reverie::testing {

INSTANTIATE_TEST_SUITE_P(Local, ReplayServiceSuite,
                         ::testing::Values(ServiceKind{
                             "Local", [](std::vector<TableOptions> tables, Clock& clock) {
                               StoreOptions options;
                               options.clock = &clock;
                               return LocalService::open(std::move(tables), options).value();
                             }}));

}  // namespace reverie::testing
