#include "reverie/reverb_wire/string_values.h"

namespace reverie::wire {
namespace {

// Calls on_field(reader, tag, raw) for each field, where `raw` is the field as it stands.
template <typename OnField>
void for_each_raw_field(Bytes message, OnField on_field) {
  Reader reader = reader_of(message);
  Reader from = reader;
  while (reader.next()) {
    const std::uint32_t tag = reader.tag_and_type();
    Reader value = reader;
    reader.skip();
    const std::size_t size = from.data().size() - reader.data().size();
    on_field(value, tag, std::string_view(from.data().data(), size));
    from = reader;
  }
}

std::string tensor_with_content(Bytes tensor) {
  std::string out;
  std::string sizes;
  std::string elements;
  for_each_raw_field(tensor, [&](Reader& value, std::uint32_t tag, std::string_view raw) {
    if (tag != bytes_field(8)) {
      out += raw;
      return;
    }
    const Bytes element = get_bytes(value);
    put_varint(sizes, element.size());
    elements += text_of(element);
  });
  put_text(out, 4, sizes + elements);
  return out;
}

}  // namespace

std::string with_strings_in_content(Bytes chunk_data) {
  std::string out;
  for_each_raw_field(chunk_data, [&](Reader& value, std::uint32_t tag, std::string_view raw) {
    if (tag != bytes_field(5)) {
      out += raw;
      return;
    }
    std::string data;
    for_each_raw_field(get_bytes(value),
                       [&](Reader& tensor, std::uint32_t data_tag, std::string_view raw_tensor) {
                         if (data_tag != bytes_field(1)) {
                           data += raw_tensor;
                         } else {
                           put_message(data, 1, tensor_with_content(get_bytes(tensor)));
                         }
                       });
    put_message(out, 5, data);
  });
  return out;
}

}  // namespace reverie::wire
