// Inflating what a peer compressed with gzip, within a bound.
#pragma once

#include <cstddef>
#include <span>

#include "reverie/adapters/reverb/grpc_message.h"
#include "reverie/base/status.h"

namespace reverie {

// The message behind one gzip stream. Its size is read from the stream's end and checked before
// memory is taken: RESOURCE_EXHAUSTED above `size_bytes_max`, INTERNAL for what is no gzip stream.
Result<Ref<GrpcMessage>> gunzip(std::span<const std::byte> compressed, std::size_t size_bytes_max,
                                const Ref<MessagePool>& pool);

}  // namespace reverie
