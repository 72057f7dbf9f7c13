#include "python/bindings/checkpoints.h"

#include <string>
#include <vector>

#include <nanobind/stl/string.h>

#include "python/bindings/convert.h"

namespace reverie::python {
namespace {

using checkpoint::OnMismatch;

OnMismatch on_mismatch_of(const std::string& name) {
  if (name == "mine") return OnMismatch::kMine;
  if (name == "theirs") return OnMismatch::kTheirs;
  return name == "drop" ? OnMismatch::kDrop : OnMismatch::kRefuse;
}

}  // namespace

std::optional<checkpoint::WorkerOptions> checkpoint_options(nb::handle given) {
  if (given.is_none()) return std::nullopt;
  const auto options = nb::cast<nb::dict>(given);
  checkpoint::WorkerOptions worker;
  worker.path = nb::cast<std::string>(options["path"]);
  worker.checkpointer.keep = nb::cast<std::int64_t>(options["keep"]);
  worker.checkpointer.fallback = nb::cast<std::string>(options["fallback"]);
  worker.checkpointer.on_mismatch = on_mismatch_of(nb::cast<std::string>(options["on_mismatch"]));
  worker.every_time = seconds(nb::cast<double>(options["every_s"]));
  worker.every_inserts = nb::cast<std::int64_t>(options["every_inserts"]);
  return worker;
}

nb::object loaded_checkpoint(const LocalService& store) {
  const StoreCheckpoints* const checkpoints = store.checkpoints();
  if (checkpoints == nullptr || checkpoints->loaded().empty()) return nb::none();
  const std::string path = checkpoints->loaded();
  const std::vector<std::byte> payload = checkpoints->loaded_payload();
  return nb::make_tuple(nb::str(path.data(), path.size()),
                        nb::bytes(payload.data(), payload.size()));
}

}  // namespace reverie::python
