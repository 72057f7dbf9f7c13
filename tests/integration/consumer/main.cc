// A program that uses the installed library: it inserts a step into a table and samples it.
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/client/insert_step.h"
#include "reverie/gather/batch.h"
#include "reverie/replay/local_service.h"
#include "reverie/service/blocking.h"

namespace {

using namespace reverie;

Status run() {
  TableOptions table;
  table.name = "replay";
  table.sampler = {"Prioritized", {{"priority_exponent", 0.6}}};
  table.remover = {"Fifo", {}};
  table.max_size = 100;
  table.rate_limiter = RateLimiter::min_size(1);
  REVERIE_ASSIGN_OR_RETURN(const auto service, LocalService::open({table}, {}));

  const float obs[] = {1, 2, 3};
  const std::int64_t shape[] = {3};
  const NamedValue step[] = {{"obs", {DType::kFloat32, shape, std::as_bytes(std::span(obs))}}};
  const InsertTarget targets[] = {{"replay", 1.0}};
  Random random(7);
  REVERIE_RETURN_IF_ERROR(insert_step(*service, step, R"({"dict": [["obs", "*"]]})", targets,
                                      TimePoint::max(), random, {}));

  const SampleResult drawn =
      sample_and_wait(*service, {.table = "replay", .count = 4, .min_count = 4});
  REVERIE_RETURN_IF_ERROR(drawn.status);
  REVERIE_ASSIGN_OR_RETURN(const Batch batch, assemble(drawn.batch, {}));
  std::vector<float> rows(4 * 3);
  if (batch.columns[0].bytes.size_bytes() != rows.size() * sizeof(float)) {
    return internal_error("the batch has {} bytes", batch.columns[0].bytes.size_bytes());
  }
  std::memcpy(rows.data(), batch.columns[0].bytes.data(), rows.size() * sizeof(float));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != obs[i % 3]) return internal_error("element {} is {}", i, rows[i]);
  }
  return {};
}

}  // namespace

int main() {
  const Status status = run();
  std::puts(status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
