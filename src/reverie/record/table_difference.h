// How two tables of one name differ, as text.
#pragma once

#include <optional>
#include <string>

#include "reverie/record/table_info.h"

namespace reverie {

// "Prioritized(priority_exponent=0.8)"
std::string component_text(const ComponentSpec& spec);
// "x: float32 [3], y: int64 []", or "none". Two structures may have the same text.
std::string signature_text(const std::optional<Signature>& signature);

// Whether they behave alike. The seed does not matter: a generator continues from its state.
bool is_same_component(const ComponentSpec& a, const ComponentSpec& b);

// How a store's table differs from that of a checkpoint; empty if a checkpoint of one fits the
// other.
std::string table_difference(const TableOptions& mine, const TableOptions& theirs);

}  // namespace reverie
