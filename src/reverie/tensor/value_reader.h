// Reads what ValueWriter wrote, or refuses it: any bytes are safe to read.
//
//     REVERIE_ASSIGN_OR_RETURN(const ValueToken first, reader.next());
//     first.kind == ValueKind::kTuple, first.count == 2       the next two tokens are its values
//
// No objects are built here, and nothing can be executed. The counts of all containers together are
// never larger than the bytes that are left, so that memory for them can be taken at once; there
// are at most a million containers, or one for 8 bytes of the message if that is more; the depth is
// never above kValueDepthMax, and a tensor lies inside the bulk.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/dtype.h"
#include "reverie/tensor/payload.h"
#include "reverie/tensor/shape.h"
#include "reverie/tensor/value_kind.h"

namespace reverie {

// One value, or the start of a container. Views the payload.
struct ValueToken {
  ValueKind kind = ValueKind::kNone;
  std::int64_t integer = 0;
  double real = 0;
  std::complex<double> complex;
  bool is_negative = false;
  std::size_t count = 0;             // of a container
  std::span<const std::byte> bytes;  // of text (not checked to be UTF-8), bytes, a pickle,
                                     // names, a magnitude, a scalar's or tensor's elements
  DType dtype = DType::kBool;
  TensorMaker maker = TensorMaker::kNumpy;
  Shape shape;
  // The UUID of a tensor's device, or a whole record (device_record.h). With a record `bytes` is
  // empty: `size_bytes` bytes are in the device's memory, if the record is right.
  std::span<const std::byte> device;
  std::size_t size_bytes = 0;  // of a tensor
};

// Not thread-safe. The payload outlives it, and has at most one piece of bulk.
class ValueReader {
 public:
  explicit ValueReader(const Payload& payload);

  // DATA_LOSS for a malformed value. REQUIRES: not done().
  Result<ValueToken> next();
  // Whether the outermost values have all been read.
  bool done() const { return rest_.empty() && lacking_ == 0; }

 private:
  Result<std::uint64_t> number();
  Result<std::span<const std::byte>> raw(std::size_t size);
  Status read_container(ValueToken& token);
  Status read_tensor(ValueToken& token);
  Status read_layout(ValueToken& token);
  Status read_device(ValueToken& token, bool& is_elsewhere);
  Status read_dtype(ValueToken& token);

  std::span<const std::byte> rest_;
  std::span<const std::byte> bulk_;
  std::vector<std::size_t> open_;  // values that each open container still lacks
  std::size_t lacking_ = 0;        // the sum of these
  std::size_t containers_ = 0;
  std::size_t containers_max_;
};

}  // namespace reverie
