// A plugin of another version: its registration function must not be called.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) const char* reverie_plugin_abi() {
  return "reverie-plugin-0";
}

extern "C" __attribute__((visibility("default"))) void reverie_plugin_register(void*, void*) {
  std::abort();
}
