// A fuzz target with a fault, to see that tests/fuzz/mutating_main.cc finds it: an input that
// starts with 'x' is read one byte too far.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0 && data[0] == 'x') {
    const volatile std::uint8_t* const end = data + size;
    (void)*end;
  }
  return 0;
}
