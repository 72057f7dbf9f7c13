#include "reverie/nn/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "reverie/nn/json_text.h"

namespace reverie::nn {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the format's own bound
constexpr std::size_t kDimensionsMax = 32;
constexpr std::string_view kMetadata = "__metadata__";

static_assert(std::endian::native == std::endian::little);

struct Entry {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// The elements of a shape; none if their bytes do not fit into 64 bits.
std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape) {
  std::uint64_t bytes = sizeof(float);
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

Status read_metadata(JsonReader& json, std::map<std::string, std::string>& metadata) {
  REVERIE_RETURN_IF_ERROR(json.expect('{'));
  if (json.take('}')) return {};
  do {
    REVERIE_ASSIGN_OR_RETURN(std::string key, json.string());
    REVERIE_RETURN_IF_ERROR(json.expect(':'));
    REVERIE_ASSIGN_OR_RETURN(std::string value, json.string());
    metadata.insert_or_assign(std::move(key), std::move(value));
  } while (json.take(','));
  return json.expect('}');
}

Result<std::vector<std::uint64_t>> read_numbers(JsonReader& json, std::size_t count_max) {
  std::vector<std::uint64_t> numbers;
  REVERIE_RETURN_IF_ERROR(json.expect('['));
  if (json.take(']')) return numbers;
  do {
    if (numbers.size() == count_max) {
      return data_loss("a list of the header has more than {} numbers", count_max);
    }
    REVERIE_ASSIGN_OR_RETURN(const std::uint64_t number, json.number());
    numbers.push_back(number);
  } while (json.take(','));
  REVERIE_RETURN_IF_ERROR(json.expect(']'));
  return numbers;
}

Result<Entry> read_entry(JsonReader& json, std::string name) {
  Entry entry;
  entry.name = std::move(name);
  std::optional<std::string> dtype;
  bool has_shape = false;
  bool has_offsets = false;
  REVERIE_RETURN_IF_ERROR(json.expect('{'));
  do {
    REVERIE_ASSIGN_OR_RETURN(const std::string key, json.string());
    REVERIE_RETURN_IF_ERROR(json.expect(':'));
    if (key == "dtype") {
      REVERIE_ASSIGN_OR_RETURN(dtype, json.string());
    } else if (key == "shape") {
      REVERIE_ASSIGN_OR_RETURN(entry.shape, read_numbers(json, kDimensionsMax));
      has_shape = true;
    } else if (key == "data_offsets") {
      REVERIE_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> offsets, read_numbers(json, 2));
      if (offsets.size() != 2 || offsets[0] > offsets[1]) {
        return data_loss("tensor '{}' has malformed data_offsets", entry.name);
      }
      entry.begin = offsets[0];
      entry.end = offsets[1];
      has_offsets = true;
    } else {
      return data_loss("tensor '{}' has a field '{}', which the format does not have", entry.name,
                       key);
    }
  } while (json.take(','));
  REVERIE_RETURN_IF_ERROR(json.expect('}'));
  if (!dtype || !has_shape || !has_offsets) {
    return data_loss("tensor '{}' lacks its dtype, shape or data_offsets", entry.name);
  }
  if (*dtype != "F32") {
    return unimplemented("tensor '{}' has the element type {}; only F32 is supported", entry.name,
                         *dtype);
  }
  if (bytes_of(entry.shape) != entry.end - entry.begin) {
    return data_loss("tensor '{}' has a shape of another size than its {} bytes", entry.name,
                     entry.end - entry.begin);
  }
  return entry;
}

Result<std::vector<Entry>> read_header(std::string_view header,
                                       std::map<std::string, std::string>& metadata) {
  std::vector<Entry> entries;
  JsonReader json(header);
  REVERIE_RETURN_IF_ERROR(json.expect('{'));
  if (!json.take('}')) {
    do {
      REVERIE_ASSIGN_OR_RETURN(std::string name, json.string());
      REVERIE_RETURN_IF_ERROR(json.expect(':'));
      if (name == kMetadata) {
        REVERIE_RETURN_IF_ERROR(read_metadata(json, metadata));
        continue;
      }
      REVERIE_ASSIGN_OR_RETURN(Entry entry, read_entry(json, std::move(name)));
      entries.push_back(std::move(entry));
    } while (json.take(','));
    REVERIE_RETURN_IF_ERROR(json.expect('}'));
  }
  REVERIE_RETURN_IF_ERROR(json.expect_end());
  return entries;
}

// The tensors must fill [0, size) without gap or overlap, and have different names.
Status check_entries(std::vector<Entry>& entries, std::uint64_t size) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return data_loss("the header names tensor '{}' twice", *twice);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != at || entry.end > size) {
      return data_loss("tensor '{}' is at bytes {} to {} of {}, and should begin at {}", entry.name,
                       entry.begin, entry.end, size, at);
    }
    at = entry.end;
  }
  if (at != size) {
    return data_loss("{} bytes of {} belong to no tensor", size - at, size);
  }
  return {};
}

}  // namespace

const NamedTensor* SafeTensors::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [name](const NamedTensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

std::vector<std::byte> encode_safetensors(const SafeTensors& tensors) {
  std::string header = "{";
  const auto separate = [&header] {
    if (header.size() > 1) header += ',';
  };
  if (!tensors.metadata.empty()) {
    header += format("{}:{{", json_quoted(kMetadata));
    bool is_first = true;
    for (const auto& [key, value] : tensors.metadata) {
      header += format("{}{}:{}", is_first ? "" : ",", json_quoted(key), json_quoted(value));
      is_first = false;
    }
    header += '}';
  }
  std::uint64_t end = 0;
  for (const NamedTensor& tensor : tensors.tensors) {
    const std::uint64_t size = tensor.values.size() * sizeof(float);
    REVERIE_CHECK(tensor.name != kMetadata && bytes_of(tensor.shape) == size);
    separate();
    header += format("{}:{{\"dtype\":\"F32\",\"shape\":[", json_quoted(tensor.name));
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      header += format("{}{}", i == 0 ? "" : ",", tensor.shape[i]);
    }
    header += format("],\"data_offsets\":[{},{}]}}", end, end + size);
    end += size;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the tensors begin at a multiple of 8

  std::vector<std::byte> bytes(kLengthBytes + header.size() + end);
  const std::uint64_t length = header.size();
  std::byte* at = bytes.data();
  const auto put = [&at](const void* from, std::size_t size) {
    if (size > 0) std::memcpy(at, from, size);
    at += size;
  };
  put(&length, kLengthBytes);
  put(header.data(), header.size());
  for (const NamedTensor& tensor : tensors.tensors) {
    put(tensor.values.data(), tensor.values.size() * sizeof(float));
  }
  return bytes;
}

Result<SafeTensors> decode_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return data_loss("{} bytes are not a safetensors file, which has at least {}", bytes.size(),
                     kLengthBytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const std::span<const std::byte> rest = bytes.subspan(kLengthBytes);
  if (length > kHeaderBytesMax || length > rest.size()) {
    return data_loss("the header should have {} bytes, of {} that there are and {} at most", length,
                     rest.size(), kHeaderBytesMax);
  }
  SafeTensors result;
  const std::span<const std::byte> data = rest.subspan(length);
  REVERIE_ASSIGN_OR_RETURN(
      std::vector<Entry> entries,
      read_header({reinterpret_cast<const char*>(rest.data()), length}, result.metadata));
  REVERIE_RETURN_IF_ERROR(check_entries(entries, data.size()));
  for (Entry& entry : entries) {
    NamedTensor& tensor = result.tensors.emplace_back();
    tensor.name = std::move(entry.name);
    tensor.shape = std::move(entry.shape);
    tensor.values.resize((entry.end - entry.begin) / sizeof(float));
    if (!tensor.values.empty()) {
      std::memcpy(tensor.values.data(), data.data() + entry.begin, entry.end - entry.begin);
    }
  }
  return result;
}

}  // namespace reverie::nn
