// Replaces the function by which the extension's copy of nghttp2 prints debug output, which is
// never enabled: see cmake/python.cmake.

#include <cstdio>

extern "C" {
extern std::FILE* reverie_nghttp2_stderr;
std::FILE* reverie_nghttp2_stderr = nullptr;
}
