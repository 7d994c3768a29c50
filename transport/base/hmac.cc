#include "transport/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "transport/base/check.h"

namespace neuron {

Mac hmac_sha256(std::string_view key, std::string_view message) {
  Mac mac{};
  unsigned int length = 0;
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(mac.data()), &length);
  NEURON_CHECK(made != nullptr && length == mac.size(), "libcrypto cannot compute HMAC-SHA-256");
  return mac;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace neuron
