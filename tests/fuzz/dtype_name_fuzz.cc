// Parses any text as the name of an element type: it is refused, or equals the type's name.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "reverie/base/check.h"
#include "reverie/tensor/dtype.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view name(reinterpret_cast<const char*>(data), size);
  const std::optional<reverie::DType> dtype = reverie::dtype_from_name(name);
  if (dtype) {
    REVERIE_CHECK(reverie::dtype_name(*dtype) == name);
    REVERIE_CHECK(reverie::has_variable_size(*dtype) == (reverie::dtype_size_bytes(*dtype) == 0));
  }
  return 0;
}
