// Tested in tests/integration/reverb_wire_oracle_test.cc.
#include "reverie/reverb_wire/selector.h"

#include <variant>

namespace reverie::wire {

Status read_selector(Bytes message, ComponentSpec& selector) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    switch (tag) {
      case varint_field(1):
        reader.skip();
        selector = {"Fifo", {}};
        return Status();
      case varint_field(2):
        reader.skip();
        selector = {"Uniform", {}};
        return Status();
      case bytes_field(3): {
        double exponent = 0;
        REVERIE_RETURN_IF_ERROR(
            for_each_field(get_bytes(reader), [&](Reader& inner, std::uint32_t inner_tag) {
              if (inner_tag == double_field(1)) {
                exponent = inner.get_double();
              } else {
                inner.skip();
              }
              return Status();
            }));
        selector = {"Prioritized", {{"priority_exponent", exponent}}};
        return Status();
      }
      case bytes_field(4): {
        bool is_min = false;
        REVERIE_RETURN_IF_ERROR(
            for_each_field(get_bytes(reader), [&](Reader& inner, std::uint32_t inner_tag) {
              if (inner_tag == varint_field(1)) {
                is_min = get_flag(inner);
              } else {
                inner.skip();
              }
              return Status();
            }));
        selector = {is_min ? "MinHeap" : "MaxHeap", {}};
        return Status();
      }
      case varint_field(6):
        reader.skip();
        selector = {"Lifo", {}};
        return Status();
      default:
        reader.skip();
        return Status();
    }
  });
}

std::string write_selector(const ComponentSpec& selector) {
  std::string out;
  bool is_deterministic = true;
  if (selector.name == "Fifo") {
    put_bool(out, 1, true);
  } else if (selector.name == "Uniform") {
    put_bool(out, 2, true);
    is_deterministic = false;
  } else if (selector.name == "Prioritized") {
    std::string inner;
    double exponent = 1.0;
    if (const auto found = selector.options.find("priority_exponent");
        found != selector.options.end()) {
      if (const auto* d = std::get_if<double>(&found->second)) exponent = *d;
      if (const auto* i = std::get_if<std::int64_t>(&found->second)) {
        exponent = static_cast<double>(*i);
      }
    }
    put_double(inner, 1, exponent);
    put_message(out, 3, inner);
    is_deterministic = false;
  } else if (selector.name == "MinHeap" || selector.name == "MaxHeap") {
    std::string inner;
    put_bool(inner, 1, selector.name == "MinHeap");
    put_message(out, 4, inner);
  } else if (selector.name == "Lifo") {
    put_bool(out, 6, true);
  } else {
    is_deterministic = false;
  }
  put_bool(out, 7, is_deterministic);
  return out;
}

}  // namespace reverie::wire
