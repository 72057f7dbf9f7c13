#include "python/bindings/writer_support.h"

namespace reverie::python {

CodecChoice codec_argument(nb::handle codec) {
  const std::string_view name = text_argument("codec", codec);
  const std::optional<CodecChoice> choice = codec_choice_from_name(name);
  if (!choice) {
    raise(invalid_argument("codec is '{}'; it must be 'auto', 'raw', 'lz4' or 'zstd'", name));
  }
  return *choice;
}

std::optional<std::uint32_t> chunk_length_argument(std::string_view name, nb::handle length) {
  if (length.is_none()) return std::nullopt;
  return integer_argument<std::uint32_t>(name, length, 1);
}

TimePoint deadline(nb::handle timeout_ms, nb::handle timeout_s) {
  if (timeout_ms.is_none()) return python::deadline(timeout_s);
  if (!timeout_s.is_none()) {
    raise(invalid_argument("timeout_ms and timeout_s are both given; give one of them"));
  }
  const double given = number_argument("timeout_ms", timeout_ms);
  return given > 0 ? Clock::system().now() + seconds(given * 1e-3) : TimePoint::max();
}

void warn_of_loss(const std::string& text) noexcept {
  if (PyErr_WarnEx(PyExc_ResourceWarning, text.c_str(), 1) < 0) PyErr_WriteUnraisable(nullptr);
}

}  // namespace reverie::python
