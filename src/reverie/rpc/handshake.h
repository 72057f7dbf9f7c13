// How two peers meet on a fresh connection.
//
//     dialler                                    listener
//     HELLO   who I am, random bytes      -->
//                                         <--    WELCOME  who I am, random bytes, proof
//     RESUME  proof, session              -->
//                                         <--    RESUMED  session
//
// With a token each side proves that it holds the same one: a keyed hash over both sides' random
// bytes, names and runs, with another first word for each direction, so no proof serves twice. The
// token never travels. A proof that fails, or is missing, ends the handshake with REFUSED.
//
// A session belongs to two runs. RESUME and RESUMED say which session each side has and how far it
// has received the other, so that what a cut connection lost is sent again, and nothing twice.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/rpc/message.h"

namespace reverie {

// 128 random bits: one start of one peer.
struct RunId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const RunId&, const RunId&) = default;
};

using Nonce = std::array<std::uint64_t, 4>;

// HELLO and WELCOME.
struct Greeting {
  std::string name;
  RunId run;
  Nonce nonce{};
  std::string host;                    // equal where the same Unix sockets can be reached
  std::vector<std::string> addresses;  // at which this peer listens
  std::string proof;                   // of the listener; empty without a token, and in HELLO
};

// RESUME and RESUMED.
struct Resumption {
  std::string proof;  // of the dialler; empty without a token, and in RESUMED
  std::uint64_t session = 0;
  std::uint64_t your_session = 0;  // as far as it is known, else 0
  std::uint64_t received = 0;      // the last sequence
};

inline constexpr std::size_t kPeerNameMax = 256;
inline constexpr std::size_t kAddressesMax = 16;

Message encode(const Greeting& greeting);
Message encode(const Resumption& resumption);
Message encode_refusal(const Status& status);
Message encode_addresses(const std::vector<std::string>& addresses, std::string_view host);

// DATA_LOSS for anything else than what encode() makes.
Result<Greeting> decode_greeting(const Message& message);
Result<Resumption> decode_resumption(const Message& message);
Status decode_refusal(const Message& message);
// The content of FOUND; `addresses` is empty where the peer is unknown.
struct FoundPeer {
  std::vector<std::string> addresses;
  std::string host;
};
Result<FoundPeer> decode_found(const Message& message);

// What a side sends to prove that it has the token; empty for an empty token.
std::string make_proof(std::string_view token, bool is_dialler, const Greeting& dialler,
                       const Greeting& listener);
bool is_proof_right(std::string_view token, bool is_dialler, const Greeting& dialler,
                    const Greeting& listener, std::string_view proof);

}  // namespace reverie
