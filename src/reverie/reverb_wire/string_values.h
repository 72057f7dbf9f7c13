// Strings of a chunk that are in separate fields: TensorFlow's other form of a string tensor.
//
//     string_val "ab", string_val "c"   -->   tensor_content 02 01 'a' 'b' 'c'
//
// Reverb's clients never write this form, but read it.
#pragma once

#include <string>

#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// The same ChunkData with every tensor's strings in its content. The other fields are as they were.
// Throws as protozero does: call it within read_message().
std::string with_strings_in_content(Bytes chunk_data);

}  // namespace reverie::wire
