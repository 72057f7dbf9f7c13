// A plugin of another version: what it would register must not be asked for.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) const char* reverie_plugin_abi() {
  return "reverie-plugin-0";
}

extern "C" __attribute__((visibility("default"))) void reverie_plugin_register(void*, void*) {
  std::abort();
}
