// Binds the Atari preprocessing of env/atari_frame.h.
#include <cstring>
#include <span>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "reverie/env/atari_frame.h"

namespace reverie::python {
namespace {

using Screen = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

struct PyAtariFrames {
  AtariFrames frames;
  Shape shape;
};

std::span<const std::uint8_t> bytes_of(const AtariFrames& frames, const Screen& screen) {
  if (screen.size() != frames.screen_bytes()) {
    raise(invalid_argument("a screen has {} x {} pixels; {} are expected", screen.shape(0),
                           screen.shape(1), frames.screen_bytes()));
  }
  return {screen.data(), screen.size()};
}

}  // namespace

void bind_atari(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyAtariFrames>(m, "AtariFrames",
                            "The last screens, pooled, made small and stacked; see atari_frame.h.")
      .def(
          "__init__",
          [](PyAtariFrames* self, std::size_t height, std::size_t width, std::size_t small_height,
             std::size_t small_width, std::size_t stack_count) {
            const auto extent = [](std::size_t count) { return static_cast<std::int64_t>(count); };
            AtariFrames made =
                unwrap(AtariFrames::make(height, width, small_height, small_width, stack_count));
            new (self) PyAtariFrames{
                std::move(made), {extent(stack_count), extent(small_height), extent(small_width)}};
          },
          "height"_a, "width"_a, "small_height"_a, "small_width"_a, "stack_count"_a)
      .def(
          "learn",
          [](PyAtariFrames& self, const Screen& indices, const Screen& grey) {
            self.frames.palette().learn(bytes_of(self.frames, indices),
                                        bytes_of(self.frames, grey));
          },
          "indices"_a, "grey"_a, "Notes the grey levels of the palette indices of a screen.")
      .def(
          "take",
          [](PyAtariFrames& self, std::size_t which, const Screen& indices) {
            if (which > 1) raise(out_of_range("screen {} of two; it is 0 or 1", which));
            return self.frames.take(which, bytes_of(self.frames, indices));
          },
          "which"_a, "indices"_a,
          "Takes one of the two last screens; False if a palette index has no grey level yet.")
      .def(
          "push",
          [](PyAtariFrames& self, bool pools, bool fills) { self.frames.push(pools, fills); },
          "pools"_a, "fills"_a, "Adds a picture of the screens taken to the stack.")
      .def(
          "stack",
          [](const PyAtariFrames& self) {
            nb::object array = new_array(DType::kUInt8, self.shape);
            const std::span<const std::uint8_t> stack = self.frames.stack();
            std::memcpy(array_data(array), stack.data(), stack.size());
            return array;
          },
          nb::sig("def stack(self) -> numpy.ndarray"), "A copy of the stack, oldest first.");
}

}  // namespace reverie::python
