// The handshake of two peers on a new connection.
//
//     dialler                                    listener
//     HELLO   who I am, random bytes      -->
//                                         <--    WELCOME  who I am, random bytes, proof
//     RESUME  proof, session              -->
//                                         <--    RESUMED  session
//
// With a token, each side proves that it has the same one: the proof is a keyed hash over both
// sides' random bytes, names and runs, with a different first word for each direction, so no proof
// can be used twice. The token is never sent. The side that was connected to answers a wrong or
// missing proof with REFUSED; the other one closes the connection.
//
// A session belongs to two runs. RESUME and RESUMED say which session each side has and the last
// frame that it received, so that frames lost with a broken connection are sent again, and no frame
// is processed twice.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// 128 random bits, new for each start of a peer.
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
  std::string host;                    // equal for peers that can reach the same Unix sockets
  std::vector<std::string> addresses;  // at which this peer listens
  std::string proof;                   // of the listener; empty without a token, and in HELLO
};

// RESUME and RESUMED.
struct Resumption {
  std::string proof;  // of the dialler; empty without a token, and in RESUMED
  std::uint64_t session = 0;
  std::uint64_t receiver_session = 0;  // 0 if it is not known
  std::uint64_t received = 0;          // the last sequence
};

inline constexpr std::size_t kPeerNameMax = 256;
inline constexpr std::size_t kAddressesMax = 16;

Message encode(const Greeting& greeting);
Message encode(const Resumption& resumption);
Message encode_refusal(const Status& status);
Message encode_addresses(const std::vector<std::string>& addresses, std::string_view host);

// DATA_LOSS for a message that encode() does not make.
Result<Greeting> decode_greeting(const Message& message);
Result<Resumption> decode_resumption(const Message& message);
Status decode_refusal(const Message& message);
// The content of FOUND; `addresses` is empty if the peer is unknown.
struct FoundPeer {
  std::vector<std::string> addresses;
  std::string host;
};
Result<FoundPeer> decode_found(const Message& message);

// The proof that a side has the token; empty for an empty token.
std::string make_proof(std::string_view token, bool is_dialler, const Greeting& dialler,
                       const Greeting& listener);
bool is_proof_right(std::string_view token, bool is_dialler, const Greeting& dialler,
                    const Greeting& listener, std::string_view proof);

}  // namespace reverie
