// How two tables of one name differ, as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reverie/record/table_info.h"

namespace reverie {

// "Prioritized(priority_exponent=0.8)"
std::string component_text(const ComponentSpec& spec);
// Separated by commas; "none".
std::string components_text(const std::vector<ComponentSpec>& specs);
// "samples_per_insert 1, min_size_to_sample 1, ..."
std::string limiter_text(const RateLimiterSpec& spec);
// "x: float32 [3], y: int64 []", or "none". Two structures may have the same text.
std::string signature_text(const std::optional<Signature>& signature);

// Whether they behave alike. The seed does not matter: a generator continues from its state.
bool is_same_component(const ComponentSpec& a, const ComponentSpec& b);

// How a store's table differs from that of a checkpoint; empty if a checkpoint of one fits the
// other.
std::string table_difference(const TableOptions& mine, const TableOptions& theirs);

}  // namespace reverie
