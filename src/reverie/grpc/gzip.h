// Inflating what a peer compressed with gzip, within a bound.
#pragma once

#include <cstddef>
#include <span>

#include "reverie/base/status.h"
#include "reverie/grpc/grpc_message.h"

namespace reverie {

// How long the message is that a gzip stream holds, by its end: RESOURCE_EXHAUSTED above
// `size_bytes_max`, INTERNAL for what is not a gzip stream or cannot hold so much.
Result<std::size_t> inflated_bytes(std::span<const std::byte> compressed,
                                   std::size_t size_bytes_max);

// The message of `size_bytes` behind one gzip stream; INTERNAL if it holds anything else.
Result<Ref<GrpcMessage>> gunzip(std::span<const std::byte> compressed, std::size_t size_bytes,
                                const Ref<MessagePool>& pool);

}  // namespace reverie
