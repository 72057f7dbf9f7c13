#include "reverie/net/keyed_hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "reverie/base/check.h"

namespace reverie {

KeyedHash keyed_hash(std::string_view key, std::span<const std::byte> message) {
  KeyedHash hash{};
  unsigned int size = 0;
  const auto* const made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(hash.data()), &size);
  REVERIE_CHECK(made != nullptr && size == hash.size());
  return hash;
}

bool is_equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace reverie
