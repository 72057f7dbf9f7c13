// The actions of a step, checked and written into a pool's shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reverie/base/status.h"
#include "reverie/env/shared_view.h"

namespace reverie {

// INVALID_ARGUMENT for a number >= `env_count`, or one that occurs twice.
Status check_env_ids(std::span<const std::int32_t> envs, std::size_t env_count);

// INVALID_ARGUMENT for an action that is not in [0, action_count).
Status check_discrete_actions(std::span<const std::int64_t> actions, std::int64_t action_count);

// Copies the rows of `from` to the environments `envs` of a batch, or to all in order if `envs` is
// empty. Requires that none of them is in flight.
void write_action_rows(const SharedView& view, std::size_t batch,
                       std::span<const std::int32_t> envs, const std::byte* from);

}  // namespace reverie
