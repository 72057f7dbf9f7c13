// A fuzz target with a fault, to check that tests/fuzz/mutating_main.cc finds it: if an input
// starts with 'x', it reads one byte past the end.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0 && data[0] == 'x') {
    const volatile std::uint8_t* const end = data + size;
    (void)*end;
  }
  return 0;
}
