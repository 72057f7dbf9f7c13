// The file names of a dm-reverb checkpoint.
#pragma once

#include <string_view>

namespace reverie::reverb_files {

inline constexpr std::string_view kReverbTables = "tables.tfrecord";
inline constexpr std::string_view kReverbItems = "items.tfrecord";
inline constexpr std::string_view kReverbChunks = "chunks.tfrecord";
inline constexpr std::string_view kReverbDone = "DONE";  // empty: the others are complete

}  // namespace reverie::reverb_files
