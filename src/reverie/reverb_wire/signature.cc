#include "reverie/reverb_wire/signature.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "reverie/base/json_quote.h"
#include "reverie/reverb_wire/tensor_type.h"

namespace reverie::wire {
namespace {

// --- From the wire ---------------------------------------------------------------------------

// StructuredValue's members.
constexpr std::uint32_t kTensorSpec = bytes_field(33);
constexpr std::uint32_t kBoundedTensorSpec = bytes_field(35);
constexpr std::uint32_t kList = bytes_field(51);
constexpr std::uint32_t kTuple = bytes_field(52);
constexpr std::uint32_t kDict = bytes_field(53);
constexpr std::uint32_t kNamedTuple = bytes_field(54);

class SignatureReader {
 public:
  Status read_value(Bytes message, const std::string& path, int depth);
  Signature take() {
    signature_.structure = std::move(text_);
    return std::move(signature_);
  }

 private:
  struct Member {
    std::string key;
    Bytes value;
  };

  Status read_sequence(Bytes message, const char* kind, const std::string& path, int depth);
  Status read_dict(Bytes message, const std::string& path, int depth);
  Status read_named_tuple(Bytes message, const std::string& path, int depth);
  Status read_members(const std::vector<Member>& members, const std::string& path, int depth);
  Status read_spec(Bytes message, const std::string& path);
  static Status read_member(Bytes message, Member& member);
  static std::string join(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + '/' + name;
  }

  Signature signature_;
  std::string text_;
};

Status SignatureReader::read_value(Bytes message, const std::string& path, int depth) {
  if (depth > kNestingMax) {
    return invalid_argument("a signature is nested deeper than {}", kNestingMax);
  }
  // The last member of a oneof counts.
  std::uint32_t kind = 0;
  Bytes value;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    kind = tag;
    if (reader.wire_type() == WireType::length_delimited) {
      value = get_bytes(reader);
    } else {
      reader.skip();
    }
    return Status();
  }));
  switch (kind) {
    case kTensorSpec:
    case kBoundedTensorSpec:
      return read_spec(value, path);  // bounds would be fields 4 and 5
    case kList:
      return read_sequence(value, "list", path, depth);
    case kTuple:
      return read_sequence(value, "tuple", path, depth);
    case kDict:
      return read_dict(value, path, depth);
    case kNamedTuple:
      return read_named_tuple(value, path, depth);
    default:
      return invalid_argument("Saw unsupported encoded subtree in signature: member {} at '{}'",
                              kind >> 3, path);
  }
}

Status SignatureReader::read_sequence(Bytes message, const char* kind, const std::string& path,
                                      int depth) {
  text_ += format("{{\"{}\": [", kind);
  std::size_t count = 0;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag != bytes_field(1)) {
      reader.skip();
      return Status();
    }
    if (count > 0) text_ += ", ";
    return read_value(get_bytes(reader), join(path, std::to_string(count++)), depth + 1);
  }));
  text_ += "]}";
  return {};
}

Status SignatureReader::read_member(Bytes message, Member& member) {
  return for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == bytes_field(1)) {
      member.key = get_text(reader);
    } else if (tag == bytes_field(2)) {
      member.value = get_bytes(reader);
    } else {
      reader.skip();
    }
    return Status();
  });
}

Status SignatureReader::read_members(const std::vector<Member>& members, const std::string& path,
                                     int depth) {
  bool is_first = true;
  for (const Member& member : members) {
    text_ += is_first ? "[" : ", [";
    is_first = false;
    text_ += json_quote(member.key) + ", ";
    REVERIE_RETURN_IF_ERROR(read_value(member.value, join(path, member.key), depth + 1));
    text_ += ']';
  }
  return {};
}

Status SignatureReader::read_dict(Bytes message, const std::string& path, int depth) {
  std::vector<Member> members;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == bytes_field(1)) return read_member(get_bytes(reader), members.emplace_back());
    reader.skip();
    return Status();
  }));
  // Entries of a map come in any order; of two with one key the last counts.
  std::ranges::stable_sort(members, {}, &Member::key);
  std::vector<Member> kept;
  for (Member& member : members) {
    if (!kept.empty() && kept.back().key == member.key) kept.pop_back();
    kept.push_back(std::move(member));
  }
  text_ += "{\"dict\": [";
  REVERIE_RETURN_IF_ERROR(read_members(kept, path, depth));
  text_ += "]}";
  return {};
}

Status SignatureReader::read_named_tuple(Bytes message, const std::string& path, int depth) {
  std::string name;
  std::vector<Member> members;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == bytes_field(1)) {
      name = get_text(reader);
      return Status();
    }
    if (tag == bytes_field(2)) return read_member(get_bytes(reader), members.emplace_back());
    reader.skip();
    return Status();
  }));
  text_ += "{\"namedtuple\": " + json_quote(name) + ", \"fields\": [";
  REVERIE_RETURN_IF_ERROR(read_members(members, path, depth));
  text_ += "]}";
  return {};
}

Status SignatureReader::read_spec(Bytes message, const std::string& path) {
  TensorSpec& spec = signature_.columns.emplace_back();
  spec.name = path;
  std::int64_t number = 0;
  REVERIE_RETURN_IF_ERROR(for_each_field(message, [&](Reader& reader, std::uint32_t tag) {
    if (tag == bytes_field(2)) return read_shape(get_bytes(reader), spec.shape);
    if (tag == varint_field(3)) {
      number = reader.get_enum();
    } else {
      reader.skip();
    }
    return Status();
  }));
  const auto dtype = dtype_from_wire(number);
  if (!dtype) {
    return invalid_argument("'{}' of a signature has the data type {}, which cannot be kept", path,
                            number);
  }
  spec.dtype = *dtype;
  text_ += "\"*\"";
  return {};
}

// --- To the wire -----------------------------------------------------------------------------

// Parses the text of a structure, which Reverie wrote; malformed text is refused nevertheless.
class SignatureWriter {
 public:
  explicit SignatureWriter(const Signature& signature)
      : text_(signature.structure), columns_(signature.columns) {}

  Result<std::string> write() {
    std::string out;
    REVERIE_RETURN_IF_ERROR(write_value(out, 0));
    if (next_ != columns_.size()) return damaged();
    return out;
  }

 private:
  Status damaged() const {
    return data_loss("'{}' is not the structure of a nest of {} columns", text_, columns_.size());
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status take_text(std::string& out);
  Status take_escape(std::string& out);
  Status write_value(std::string& out, int depth);
  Status write_leaf(std::string& out);
  Status write_elements(std::string& list, int depth);
  Status write_members(std::string& fields, std::uint32_t number, int depth);

  std::string_view text_;
  std::size_t at_ = 0;
  const std::vector<TensorSpec>& columns_;
  std::size_t next_ = 0;
};

void put_utf8(std::string& out, unsigned code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

Status SignatureWriter::take_escape(std::string& out) {
  const auto hex4 = [&](unsigned& code) {
    if (text_.size() - at_ < 4) return false;
    code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = text_[at_++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      code = code * 16 + static_cast<unsigned>(digit);
    }
    return true;
  };
  if (at_ == text_.size()) return damaged();
  const char c = text_[at_++];
  const std::string_view plain = "\"\\/bfnrt";
  const std::string_view meant = "\"\\/\b\f\n\r\t";
  if (const std::size_t i = plain.find(c); i != std::string_view::npos) {
    out += meant[i];
    return {};
  }
  unsigned code = 0;
  if (c != 'u' || !hex4(code)) return damaged();
  if (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair
    unsigned low = 0;
    if (text_.size() - at_ < 2 || text_[at_] != '\\' || text_[at_ + 1] != 'u') return damaged();
    at_ += 2;
    if (!hex4(low) || low < 0xdc00 || low > 0xdfff) return damaged();
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  put_utf8(out, code);
  return {};
}

Status SignatureWriter::take_text(std::string& out) {
  if (!take('"')) return damaged();
  while (at_ < text_.size() && text_[at_] != '"') {
    const char c = text_[at_++];
    if (c == '\\') {
      REVERIE_RETURN_IF_ERROR(take_escape(out));
    } else {
      out += c;
    }
  }
  return take('"') ? Status() : damaged();
}

Status SignatureWriter::write_leaf(std::string& out) {
  if (next_ == columns_.size()) return damaged();
  const TensorSpec& spec = columns_[next_++];
  const auto number = dtype_to_wire(spec.dtype);
  if (!number) {
    return unimplemented("column '{}' is {}, which Reverb's protocol has no number for", spec.name,
                         dtype_name(spec.dtype));
  }
  std::string message;
  put_message(message, 2, write_shape(spec.shape));
  put_int(message, 3, *number);
  put_message(out, 33, message);
  return {};
}

Status SignatureWriter::write_elements(std::string& list, int depth) {
  if (!take('[')) return damaged();
  if (take(']')) return {};
  do {
    std::string value;
    REVERIE_RETURN_IF_ERROR(write_value(value, depth));
    put_message(list, 1, value);
  } while (take(','));
  return take(']') ? Status() : damaged();
}

Status SignatureWriter::write_members(std::string& fields, std::uint32_t number, int depth) {
  if (!take('[')) return damaged();
  if (take(']')) return {};
  do {
    if (!take('[')) return damaged();
    skip_spaces();
    if (at_ < text_.size() && text_[at_] != '"') {
      return unimplemented(
          "a signature has a dict whose keys are numbers, which Reverb's clients order "
          "differently; use words");
    }
    std::string key;
    std::string value;
    REVERIE_RETURN_IF_ERROR(take_text(key));
    if (!take(',')) return damaged();
    REVERIE_RETURN_IF_ERROR(write_value(value, depth));
    if (!take(']')) return damaged();
    std::string member;
    put_text(member, 1, key);
    put_message(member, 2, value);
    put_message(fields, number, member);
  } while (take(','));
  return take(']') ? Status() : damaged();
}

Status SignatureWriter::write_value(std::string& out, int depth) {
  if (depth > kNestingMax) {
    return unimplemented("a signature is nested deeper than {}", kNestingMax);
  }
  skip_spaces();
  if (at_ < text_.size() && text_[at_] == '"') {
    std::string star;
    REVERIE_RETURN_IF_ERROR(take_text(star));
    return star == "*" ? write_leaf(out) : damaged();
  }
  std::string kind;
  std::string inner;
  if (!take('{')) return damaged();
  REVERIE_RETURN_IF_ERROR(take_text(kind));
  if (!take(':')) return damaged();
  if (kind == "list" || kind == "tuple") {
    REVERIE_RETURN_IF_ERROR(write_elements(inner, depth + 1));
    put_message(out, kind == "list" ? 51 : 52, inner);
  } else if (kind == "dict") {
    REVERIE_RETURN_IF_ERROR(write_members(inner, 1, depth + 1));
    put_message(out, 53, inner);
  } else if (kind == "namedtuple" || kind == "dataclass") {
    std::string name;
    std::string fields;
    REVERIE_RETURN_IF_ERROR(take_text(name));
    if (!take(',')) return damaged();
    REVERIE_RETURN_IF_ERROR(take_text(fields));
    if (fields != "fields" || !take(':')) return damaged();
    const std::size_t dot = name.find_last_of(".:");  // "module:Qualified.Name"
    put_text(inner, 1, dot == std::string::npos ? name : name.substr(dot + 1));
    REVERIE_RETURN_IF_ERROR(write_members(inner, 2, depth + 1));
    put_message(out, 54, inner);
  } else {
    return damaged();
  }
  return take('}') ? Status() : damaged();
}

}  // namespace

Result<Signature> read_signature(Bytes structured_value) {
  return read_message("signature", [&]() -> Result<Signature> {
    SignatureReader reader;
    REVERIE_RETURN_IF_ERROR(reader.read_value(structured_value, "", 0));
    Signature signature = reader.take();
    signature.original = text_of(structured_value);
    return signature;
  });
}

Result<std::string> write_signature(const Signature& signature) {
  if (!signature.original.empty()) return signature.original;
  return SignatureWriter(signature).write();
}

}  // namespace reverie::wire
