// The extension module. Each room that Python sees has a file of its own beside this one.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_reverie, m) {
  m.doc() = "Native half of the reverie package; import reverie instead.";
  m.def(
      "version", [] { return REVERIE_VERSION; },
      "The version of the native library, as \"1.2.3\".");
}
