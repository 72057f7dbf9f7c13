// Decompresses gzip data from a peer, within a bound.
#pragma once

#include <cstddef>
#include <span>

#include "reverie/base/status.h"
#include "reverie/grpc/grpc_message.h"

namespace reverie {

// The size of the message in a gzip stream, by its trailer: RESOURCE_EXHAUSTED above
// `size_bytes_max`, INTERNAL if it is not a gzip stream or cannot contain so much.
Result<std::size_t> inflated_bytes(std::span<const std::byte> compressed,
                                   std::size_t size_bytes_max);

// The message of `size_bytes` in one gzip stream; INTERNAL if the stream contains anything else.
Result<Ref<GrpcMessage>> gunzip(std::span<const std::byte> compressed, std::size_t size_bytes,
                                const Ref<MessagePool>& pool);

}  // namespace reverie
