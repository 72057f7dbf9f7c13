// KeyDistributionOptions: a sampler or a remover in Reverb's protocol.
#pragma once

#include <string>

#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// Leaves `selector` unchanged if the message names no selector of Reverb's. Call within
// read_message().
Status read_selector(Bytes message, ComponentSpec& selector);

// A selector that Reverb does not have is written without a name.
std::string write_selector(const ComponentSpec& selector);

}  // namespace reverie::wire
