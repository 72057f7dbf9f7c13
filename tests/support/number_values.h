// Numbers as the arguments and results of calls.
#pragma once

#include <cstdint>

#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {

inline Payload number_payload(std::int64_t number) {
  Payload payload;
  ValueWriter(payload).integer(number);
  return payload;
}

// -1 if the payload is not a number.
inline std::int64_t number_of(const Payload& payload) {
  ValueReader reader(payload);
  const Result<ValueToken> token = reader.next();
  return token.ok() ? token->integer : -1;
}

}  // namespace reverie
