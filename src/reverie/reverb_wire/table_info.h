// TableInfo: the description of a table in Reverb's protocol.
#pragma once

#include <string>

#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// Options that the message has no field for keep their default. An unsupported signature (see
// read_signature) is left out. INVALID_ARGUMENT for malformed bytes.
Result<TableInfo> read_table_info(Bytes message);

// A selector that Reverb does not have is written without a name, and a signature that cannot be
// written is left out: clients then do not check items.
std::string write_table_info(const TableInfo& info);

}  // namespace reverie::wire
