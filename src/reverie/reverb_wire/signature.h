// A table's signature as TensorFlow's StructuredValue: a nest of specifications.
//
//     dict_value { "obs": tensor_spec_value {...}  "reward": bounded_tensor_spec_value {...} }
//
// Our own form is flat columns and a text that describes the nest (python/bindings/nest.h). Both
// order leaves alike: dicts by key, everything else in its own order.
#pragma once

#include <optional>
#include <string>

#include "reverie/base/status.h"
#include "reverie/reverb_wire/fields.h"
#include "reverie/tensor/tensor.h"

namespace reverie::wire {

// INVALID_ARGUMENT for malformed bytes, a nest deeper than kNestingMax, and any value that is
// neither a container nor a tensor specification. Names and bounds of values are kept only in
// Signature::original. A named tuple keeps its name and fields.
Result<Signature> read_signature(Bytes structured_value);

// UNIMPLEMENTED if the nest has numbers as keys, or a type that Reverb has no number for: Reverb's
// clients would misread such columns. A dataclass becomes a named tuple. A signature that has its
// original form is written as that.
Result<std::string> write_signature(const Signature& signature);

}  // namespace reverie::wire
