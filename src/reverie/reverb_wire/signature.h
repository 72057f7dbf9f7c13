// A table's signature as TensorFlow's StructuredValue: a nest of specifications.
//
//     dict_value { "obs": tensor_spec_value {...}  "reward": bounded_tensor_spec_value {...} }
//
// Ours is flat columns and a text that folds them (python/bindings/nest.h tells its grammar). Both
// order the leaves alike: dicts by key, all else as it stands.
#pragma once

#include <optional>
#include <string>

#include "reverie/base/status.h"
#include "reverie/reverb_wire/fields.h"
#include "reverie/tensor/tensor.h"

namespace reverie::wire {

// INVALID_ARGUMENT for malformed bytes, a nest deeper than kNestingMax, and whatever is neither a
// container nor the specification of a tensor. Names and bounds of values are kept in
// Signature::original alone. A named tuple keeps its name and fields.
Result<Signature> read_signature(Bytes structured_value);

// UNIMPLEMENTED where the nest has keys that are numbers, or a type that Reverb has no number for:
// Reverb's clients would take such columns for others. A dataclass becomes a named tuple. One that
// has its original is written as that.
Result<std::string> write_signature(const Signature& signature);

}  // namespace reverie::wire
