// A chunk without what it has no use for any more.
#pragma once

#include "reverie/base/status.h"
#include "reverie/record/chunk.h"

namespace reverie {

// A sealed copy of the published rows of `chunk`, a raw one, each column encoded with `codec`: as
// the chunk leaves the process, or is kept without the rows it had room for.
Result<Ref<Chunk>> compact(const Chunk& chunk, CodecId codec, Allocator& allocator);

}  // namespace reverie
