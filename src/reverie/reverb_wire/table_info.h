// TableInfo: how a table introduces itself on Reverb's wire.
#pragma once

#include <string>

#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// What the message has no field for keeps its default. A signature that cannot be kept (see
// read_signature) is left out. INVALID_ARGUMENT for malformed bytes.
Result<TableInfo> read_table_info(Bytes message);

// A selector that Reverb does not know has no name there, and a signature that cannot be written is
// left out: clients then work without its checks.
std::string write_table_info(const TableInfo& info);

}  // namespace reverie::wire
