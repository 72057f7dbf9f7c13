// Where the copy of nghttp2 within the extension would print, if anything asked it to debug itself:
// see cmake/python.cmake.

#include <cstdio>

extern "C" {
extern std::FILE* reverie_nghttp2_stderr;
std::FILE* reverie_nghttp2_stderr = nullptr;
}
