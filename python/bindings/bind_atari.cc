// Binds the Atari preprocessing of env/atari_frame.h.
#include <cstring>
#include <span>
#include <utility>

#include <nanobind/nanobind.h>

#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"
#include "reverie/env/atari_frame.h"

namespace reverie::python {
namespace {

// Keeps consecutive pictures in one array, the buffer: a stack is a view of the latest, so that
// a step copies one picture and not the stack. A full buffer is left to the views that refer to
// it.
class PyAtariFrames {
 public:
  PyAtariFrames(AtariFrames made, std::int64_t height, std::int64_t width, std::int64_t stack_count)
      : frames(std::move(made)), shape_{stack_count, height, width} {}

  AtariFrames frames;

  // Adds the latest picture. With `fills` it fills the whole stack, as the very first one does.
  nb::object add(bool fills) {
    fills = fills || !buffer_.is_valid();
    const auto stack = static_cast<std::size_t>(shape_[0]);
    const std::size_t copies = fills ? stack : 1;
    if (!buffer_.is_valid() || next_ + copies > capacity()) begin_buffer(fills ? 0 : stack - 1);
    const std::span<const std::uint8_t> picture = frames.picture();
    for (std::size_t i = 0; i < copies; ++i) {
      std::memcpy(place(next_++), picture.data(), picture.size());
    }
    return view();
  }

 private:
  // Pictures of a buffer besides a stack: few enough for the cache, while stacks are rarely copied.
  static constexpr std::size_t kPictures = 12;

  std::size_t capacity() const { return kPictures + static_cast<std::size_t>(shape_[0]); }
  std::byte* place(std::size_t index) const {
    return array_data(buffer_) + index * frames.picture().size();
  }

  // A new buffer that begins with the last `kept` pictures of the old one.
  void begin_buffer(std::size_t kept) {
    const Shape shape = {static_cast<std::int64_t>(capacity()), shape_[1], shape_[2]};
    nb::object buffer = new_array(DType::kUInt8, shape);
    if (buffer_.is_valid() && kept > 0) {
      std::memcpy(array_data(buffer), place(next_ - kept), kept * frames.picture().size());
    }
    buffer_ = std::move(buffer);
    next_ = kept;
  }

  nb::object view() const {
    nb::object array = owned(PyArray_NewFromDescr(
        &PyArray_Type, PyArray_DescrFromType(NPY_UINT8), 3, const_cast<npy_intp*>(shape_.data()),
        nullptr, place(next_ - static_cast<std::size_t>(shape_[0])), NPY_ARRAY_CARRAY_RO, nullptr));
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()),
                              nb::object(buffer_).release().ptr()) != 0) {
      raise_pending();
    }
    return array;
  }

  Shape shape_;  // of a stack
  nb::object buffer_;
  std::size_t next_ = 0;  // the place in the buffer for the next picture
};

// The pixels of a screen, read in place, without creating a description.
std::span<const std::uint8_t> bytes_of(const AtariFrames& frames, nb::handle screen) {
  auto* const array = reinterpret_cast<PyArrayObject*>(screen.ptr());
  if (!PyArray_Check(screen.ptr()) || PyArray_TYPE(array) != NPY_UINT8 ||
      !PyArray_ISCARRAY_RO(array)) {
    raise_type_error(
        format("a screen is a contiguous array of uint8, got {}", type_name_of(screen.ptr())));
  }
  const auto size = static_cast<std::size_t>(PyArray_SIZE(array));
  if (size != frames.screen_bytes()) {
    raise(invalid_argument("a screen has {} pixels; {} are expected", size, frames.screen_bytes()));
  }
  return {static_cast<const std::uint8_t*>(PyArray_DATA(array)), size};
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
            if (stack_count < 1 || stack_count > 4096) {
              raise(invalid_argument("stack is {}; it must be between 1 and 4096", stack_count));
            }
            AtariFrames made = unwrap(AtariFrames::make(height, width, small_height, small_width));
            const auto extent = [](std::size_t count) { return static_cast<std::int64_t>(count); };
            new (self) PyAtariFrames(std::move(made), extent(small_height), extent(small_width),
                                     extent(stack_count));
          },
          "height"_a, "width"_a, "small_height"_a, "small_width"_a, "stack_count"_a)
      .def(
          "learn",
          [](PyAtariFrames& self, nb::handle indices, nb::handle grey) {
            self.frames.palette().learn(bytes_of(self.frames, indices),
                                        bytes_of(self.frames, grey));
          },
          "indices"_a, "grey"_a,
          nb::sig("def learn(self, indices: numpy.ndarray, grey: numpy.ndarray) -> None"),
          "Notes the grey levels of the palette indices of a screen.")
      .def(
          "take",
          [](PyAtariFrames& self, std::size_t which, nb::handle indices) {
            if (which > 1) raise(out_of_range("screen {} of two; it is 0 or 1", which));
            return self.frames.take(which, bytes_of(self.frames, indices));
          },
          "which"_a, "indices"_a,
          nb::sig("def take(self, which: int, indices: numpy.ndarray) -> bool"),
          "Takes one of the two last screens; False if a palette index has no grey level yet.")
      .def(
          "push",
          [](PyAtariFrames& self, bool pools, bool fills) {
            self.frames.push(pools);
            return self.add(fills);
          },
          "pools"_a, "fills"_a,
          nb::sig("def push(self, pools: bool, fills: bool) -> numpy.ndarray"),
          "The stack with a picture of the screens appended, oldest first: read-only.");
}

}  // namespace reverie::python
