// Tested in peer_test.cc and tests/fuzz/rpc_fuzz.cc.
#include "reverie/rpc/handshake.h"

#include <span>

#include "reverie/net/keyed_hash.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

Status wrong_shape() {
  return data_loss("a message of the handshake has another shape than this version's");
}

// A tuple of texts, numbers and lists of texts, read in order.
class Fields {
 public:
  Fields(const Message& message, std::size_t count) : reader_(message.payload) {
    const Result<ValueToken> first = next();
    if (first.ok()) is_well_formed_ = first->kind == ValueKind::kTuple && first->count == count;
  }

  std::string text(std::size_t size_max) {
    const Result<ValueToken> token = next();
    if (!token.ok() || (token->kind != ValueKind::kText && token->kind != ValueKind::kBytes) ||
        token->bytes.size() > size_max) {
      is_well_formed_ = false;
      return {};
    }
    return {reinterpret_cast<const char*>(token->bytes.data()), token->bytes.size()};
  }
  std::uint64_t number() {
    const Result<ValueToken> token = next();
    if (!token.ok() || token->kind != ValueKind::kInteger) {
      is_well_formed_ = false;
      return 0;
    }
    return static_cast<std::uint64_t>(token->integer);
  }
  std::vector<std::string> texts(std::size_t count_max, std::size_t size_max) {
    const Result<ValueToken> list = next();
    std::vector<std::string> found;
    if (!list.ok() || list->kind != ValueKind::kList || list->count > count_max) {
      is_well_formed_ = false;
      return found;
    }
    for (std::size_t i = 0; i < list->count && is_well_formed_; ++i)
      found.push_back(text(size_max));
    return found;
  }
  bool are_good() const { return is_well_formed_ && reader_.done(); }

 private:
  Result<ValueToken> next() {
    if (!is_well_formed_ || reader_.done()) return wrong_shape();
    return reader_.next();
  }

  ValueReader reader_;
  bool is_well_formed_ = true;
};

constexpr std::size_t kAddressMax = 256;
constexpr std::size_t kFieldTextMax = 1024;

void write_number(ValueWriter& writer, std::uint64_t value) {
  writer.integer(static_cast<std::int64_t>(value));
}

void write_texts(ValueWriter& writer, const std::vector<std::string>& texts) {
  writer.begin(ValueKind::kList, texts.size());
  for (const std::string& text : texts) writer.text(text);
}

}  // namespace

Message encode(const Greeting& greeting) {
  Message message;
  ValueWriter writer(message.payload);
  writer.begin(ValueKind::kTuple, 10);
  writer.text(greeting.name);
  write_number(writer, greeting.run.high);
  write_number(writer, greeting.run.low);
  for (const std::uint64_t part : greeting.nonce) write_number(writer, part);
  writer.text(greeting.host);
  write_texts(writer, greeting.addresses);
  writer.bytes(std::as_bytes(std::span(greeting.proof)));
  return message;
}

Result<Greeting> decode_greeting(const Message& message) {
  Fields fields(message, 10);
  Greeting greeting;
  greeting.name = fields.text(kPeerNameMax);
  greeting.run.high = fields.number();
  greeting.run.low = fields.number();
  for (std::uint64_t& part : greeting.nonce) part = fields.number();
  greeting.host = fields.text(kAddressMax);
  greeting.addresses = fields.texts(kAddressesMax, kAddressMax);
  greeting.proof = fields.text(kFieldTextMax);
  if (!fields.are_good() || greeting.name.empty()) return wrong_shape();
  return greeting;
}

Message encode(const Resumption& resumption) {
  Message message;
  ValueWriter writer(message.payload);
  writer.begin(ValueKind::kTuple, 4);
  writer.bytes(std::as_bytes(std::span(resumption.proof)));
  write_number(writer, resumption.session);
  write_number(writer, resumption.receiver_session);
  write_number(writer, resumption.received);
  return message;
}

Result<Resumption> decode_resumption(const Message& message) {
  Fields fields(message, 4);
  Resumption resumption;
  resumption.proof = fields.text(kFieldTextMax);
  resumption.session = fields.number();
  resumption.receiver_session = fields.number();
  resumption.received = fields.number();
  if (!fields.are_good() || resumption.session == 0) return wrong_shape();
  return resumption;
}

Message encode_refusal(const Status& status) {
  Message message;
  ValueWriter writer(message.payload);
  writer.begin(ValueKind::kTuple, 2);
  write_number(writer, static_cast<std::uint64_t>(status.code()));
  writer.text(std::string_view(status.message()).substr(0, kFieldTextMax));
  return message;
}

Status decode_refusal(const Message& message) {
  Fields fields(message, 2);
  const std::uint64_t code = fields.number();
  const std::string text = fields.text(kFieldTextMax);
  if (!fields.are_good()) return wrong_shape();
  switch (static_cast<StatusCode>(code)) {
    case StatusCode::kUnauthenticated:
    case StatusCode::kAlreadyExists:
    case StatusCode::kFailedPrecondition:
      return Status(static_cast<StatusCode>(code), text);
    default:
      return Status(StatusCode::kUnavailable, text);
  }
}

Message encode_addresses(const std::vector<std::string>& addresses, std::string_view host) {
  Message message;
  ValueWriter writer(message.payload);
  writer.begin(ValueKind::kTuple, 2);
  write_texts(writer, addresses);
  writer.text(host);
  return message;
}

Result<FoundPeer> decode_found(const Message& message) {
  Fields fields(message, 2);
  FoundPeer found;
  found.addresses = fields.texts(kAddressesMax, kAddressMax);
  found.host = fields.text(kAddressMax);
  if (!fields.are_good()) return wrong_shape();
  return found;
}

std::string make_proof(std::string_view token, bool is_dialler, const Greeting& dialler,
                       const Greeting& listener) {
  if (token.empty()) return {};
  // Encoded values, so that different lists of fields never have the same bytes.
  Payload said;
  ValueWriter writer(said);
  writer.text(is_dialler ? "reverie dialler 1" : "reverie listener 1");
  // HMAC treats a key with trailing zero bytes as the key without them.
  write_number(writer, token.size());
  for (const Greeting* greeting : {&dialler, &listener}) {
    writer.text(greeting->name);
    write_number(writer, greeting->run.high);
    write_number(writer, greeting->run.low);
    for (const std::uint64_t part : greeting->nonce) write_number(writer, part);
  }
  const KeyedHash hash = keyed_hash(token, said.head);
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

bool is_proof_right(std::string_view token, bool is_dialler, const Greeting& dialler,
                    const Greeting& listener, std::string_view proof) {
  const std::string right = make_proof(token, is_dialler, dialler, listener);
  return is_equal_in_constant_time(std::as_bytes(std::span(right)),
                                   std::as_bytes(std::span(proof)));
}

}  // namespace reverie
