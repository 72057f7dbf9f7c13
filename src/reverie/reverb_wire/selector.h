// KeyDistributionOptions: a sampler or a remover on Reverb's wire.
#pragma once

#include <string>

#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// Leaves `selector` as it is where the message names none that Reverb has. Call within
// read_message().
Status read_selector(Bytes message, ComponentSpec& selector);

// A selector that Reverb does not know has no name there.
std::string write_selector(const ComponentSpec& selector);

}  // namespace reverie::wire
