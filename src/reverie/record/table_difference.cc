// Tested in tests/sim/checkpoint_sim_test.cc and tests/python/checkpoint_command_test.py.
#include "reverie/record/table_difference.h"

#include <algorithm>
#include <variant>

#include "reverie/base/format.h"

namespace reverie {
bool is_same_component(const ComponentSpec& a, const ComponentSpec& b) {
  // The seed does not matter: the generator continues from the checkpoint's state.
  ComponentSpec x = a;
  ComponentSpec y = b;
  x.options.erase("seed");
  y.options.erase("seed");
  return x == y;
}

std::string component_text(const ComponentSpec& spec) {
  std::string text = spec.name + "(";
  for (const auto& [name, value] : spec.options) {
    text += (text.back() == '(' ? "" : ", ") + name + "=";
    text += std::visit([](const auto& plain) { return format("{}", plain); }, value);
  }
  return text + ")";
}

std::string components_text(const std::vector<ComponentSpec>& specs) {
  std::string text;
  for (const ComponentSpec& spec : specs) text += (text.empty() ? "" : ", ") + component_text(spec);
  return text.empty() ? "none" : text;
}

std::string limiter_text(const RateLimiterSpec& spec) {
  return format("samples_per_insert {}, min_size_to_sample {}, min_diff {}, max_diff {}",
                spec.samples_per_insert, spec.min_size_to_sample, spec.min_diff, spec.max_diff);
}

std::string signature_text(const std::optional<Signature>& signature) {
  if (!signature) return "none";
  std::string text;
  for (const TensorSpec& spec : signature->columns) {
    text += (text.empty() ? "" : ", ") + spec_text(spec);
  }
  return text;
}

std::string table_difference(const TableOptions& mine, const TableOptions& theirs) {
  std::string text;
  const auto note = [&text](const char* what, const std::string& here, const std::string& there) {
    if (here == there) return;
    text +=
        format("{}{} is {}, and {} in the checkpoint", text.empty() ? "" : "; ", what, here, there);
  };
  if (!is_same_component(mine.sampler, theirs.sampler)) {
    note("sampler", component_text(mine.sampler), component_text(theirs.sampler));
  }
  if (!is_same_component(mine.remover, theirs.remover)) {
    note("remover", component_text(mine.remover), component_text(theirs.remover));
  }
  note("max_size", format("{}", mine.max_size), format("{}", theirs.max_size));
  note("max_bytes", mine.max_bytes ? format("{}", *mine.max_bytes) : "none",
       theirs.max_bytes ? format("{}", *theirs.max_bytes) : "none");
  note("max_times_sampled", format("{}", std::max<std::int64_t>(mine.max_times_sampled, 0)),
       format("{}", std::max<std::int64_t>(theirs.max_times_sampled, 0)));
  note("rate_limiter", format("({})", limiter_text(mine.rate_limiter)),
       format("({})", limiter_text(theirs.rate_limiter)));
  note("extensions", components_text(mine.extensions), components_text(theirs.extensions));
  if (mine.signature != theirs.signature) {
    std::string here = signature_text(mine.signature);
    std::string there = signature_text(theirs.signature);
    if (here == there) there += ", of another structure";
    note("signature", here, there);
  }
  note("checks_items", format("{}", mine.checks_items), format("{}", theirs.checks_items));
  note("undoes_unsent", format("{}", mine.undoes_unsent), format("{}", theirs.undoes_unsent));
  note("is_keyed", format("{}", mine.is_keyed), format("{}", theirs.is_keyed));
  return text;
}

}  // namespace reverie
