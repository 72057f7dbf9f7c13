// Tested in tests/python/dataset_test.py and tests/python/failed_samples_test.py.
#include "reverie/client/hand_back.h"

#include <utility>
#include <vector>

#include "reverie/base/log.h"
#include "reverie/service/blocking.h"

namespace reverie {
namespace {

constexpr double kPatienceS = 2;

// For a service that cannot undo a draw: removed items are inserted again, and a sample of an item
// that is still there is lost.
std::size_t insert_again(ReplayService& service, std::string_view table,
                         std::int64_t max_times_sampled, const SampleBatch& batch,
                         TimePoint deadline) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch.times_sampled()[i] < max_times_sampled) continue;
    const TrajectoryView& view = batch.trajectories()[i];
    items.push_back({batch.keys()[i], batch.priorities()[i],
                     Trajectory(Ref<const Layout>::share(view.layout), view.pieces()),
                     batch.versions()[i]});
  }
  if (items.empty()) return 0;
  return insert_and_wait(service, {table, items, deadline}).applied;
}

}  // namespace

std::size_t hand_back(ReplayService& service, std::string_view table,
                      std::int64_t max_times_sampled, std::span<SampleBatch> batches,
                      TimePoint deadline) {
  // An item that was deleted or evicted meanwhile was removed on purpose, so it does not count.
  bool can_undo = true;
  for (std::size_t i = batches.size(); i-- > 0 && can_undo;) {
    can_undo = batches[i].empty() || service.hand_back(table, batches[i]).has_value();
  }
  if (can_undo) return 0;
  std::size_t lost = 0;
  for (const SampleBatch& batch : batches) {
    lost += batch.size() - insert_again(service, table, max_times_sampled, batch, deadline);
  }
  return lost;
}

void hand_back_of_failed_call(ReplayService& service, std::string_view table, SampleBatch batch) {
  if (batch.empty()) return;
  const TimePoint deadline = Clock::system().now() + seconds(kPatienceS);
  WaitOptions wait;
  wait.interrupted = [deadline] { return Clock::system().now() >= deadline; };
  const auto infos = info_and_wait(service, wait);
  if (!infos.ok()) return;  // the service has ended, as the error of the call says
  for (const TableInfo& info : infos.value()) {
    const std::int64_t max_times_sampled = info.options.max_times_sampled;
    if (info.options.name != table || max_times_sampled < 1) continue;
    const std::size_t lost = hand_back(service, table, max_times_sampled, {&batch, 1}, deadline);
    if (lost == 0) return;
    log_warning(
        "a call that failed had drawn samples of table '{}', of which {} could not be handed back: "
        "they are lost",
        table, lost);
  }
}

void hand_back_or_warn(ReplayService& service, std::string_view table,
                       std::int64_t max_times_sampled, std::span<SampleBatch> batches,
                       std::string_view remedy) {
  const std::size_t lost = hand_back(service, table, max_times_sampled, batches,
                                     Clock::system().now() + seconds(kPatienceS));
  if (lost == 0) return;
  log_warning(
      "a dataset of table '{}' was closed with {} samples drawn ahead that could not be handed "
      "back: they are lost; a smaller {} draws less ahead",
      table, lost, remedy);
}

}  // namespace reverie
