#include "reverie/env/action_rows.h"

#include <cstring>
#include <vector>

namespace reverie {

Status check_env_ids(std::span<const std::int32_t> envs, std::size_t env_count) {
  std::vector<bool> seen(env_count);
  for (const std::int32_t env : envs) {
    if (env < 0 || static_cast<std::size_t>(env) >= env_count) {
      return invalid_argument("env_ids has {}; they are 0 to {}", env, env_count - 1);
    }
    if (seen[static_cast<std::size_t>(env)]) {
      return invalid_argument("env_ids has {} twice; give each environment one action", env);
    }
    seen[static_cast<std::size_t>(env)] = true;
  }
  return {};
}

Status check_discrete_actions(std::span<const std::int64_t> actions, std::int64_t action_count) {
  const auto bound = static_cast<std::uint64_t>(action_count);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (static_cast<std::uint64_t>(actions[i]) < bound) continue;
    return invalid_argument("actions[{}] is {}; actions are 0 to {}", i, actions[i], bound - 1);
  }
  return {};
}

void write_action_rows(const SharedView& view, std::size_t batch,
                       std::span<const std::int32_t> envs, const std::byte* from) {
  const SharedLayout::Column& column = view.layout().batch(batch).actions;
  if (envs.empty()) {
    std::memcpy(view.row(column, 0), from, view.shape().env_count * column.row_bytes);
    return;
  }
  for (std::size_t i = 0; i < envs.size(); ++i) {
    std::memcpy(view.row(column, static_cast<std::size_t>(envs[i])), from + i * column.row_bytes,
                column.row_bytes);
  }
}

}  // namespace reverie
