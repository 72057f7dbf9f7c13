// The messages between peers that have weights, or want them.
//
//     WeightsRequest  what I have, and from which version on I want one
//     WeightsAnswer   it, in one of four ways; or none; or another peer to ask
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"
#include "reverie/weights/held_version.h"

namespace reverie {

struct WeightsRequest {
  // The peers that can be referred to the asker.
  enum class Reach : std::uint8_t {
    kNone = 0,
    kHost = 1,  // those with the same `host`
    kAll = 2,
  };
  std::uint64_t at_least = 0;  // older versions of this run are not wanted
  std::uint64_t run = 0;       // of the publisher of the asker's version; 0: it has none
  bool has_version = false;
  std::uint64_t version = 0;  // the asker's version
  bool maps = false;          // it can map memory of its host
  bool waits = false;         // for such a version to be published
  Reach reach = Reach::kNone;
  std::string host;     // equal for peers that may map each other's memory; empty: unknown
  std::string refused;  // a peer that it could not reach
};

struct WeightsAnswer {
  enum class Kind : std::uint8_t {
    kNothing = 0,
    kMemory = 1,     // on this host: `place`
    kSent = 2,       // head and bulk
    kChanged = 3,    // changes from the asker's version: the bulk
    kElsewhere = 4,  // ask `peer` from here on
  };
  Kind kind = Kind::kNothing;
  std::uint64_t run = 0;  // of the publisher
  std::uint64_t version = 0;
  WeightsPlace place;
  std::vector<std::byte> head;
  std::string peer;
  std::uint64_t base = 0;
  std::uint32_t checksum = 0;
  std::vector<std::uint32_t> blocks;
};

Payload encode(const WeightsRequest& ask);
// Does not encode the bulk.
Payload encode(const WeightsAnswer& answer);
// DATA_LOSS for a malformed message.
Result<WeightsRequest> decode_weights_request(const Payload& payload);
Result<WeightsAnswer> decode_weights_answer(const Payload& payload);

}  // namespace reverie
