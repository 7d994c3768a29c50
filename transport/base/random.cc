#include "transport/base/random.h"

#include <sys/random.h>

#include "transport/base/check.h"

namespace neuron {

std::uint64_t random_nonce() {
  std::uint64_t nonce = 0;
  while (nonce == 0) {
    const auto got = getrandom(&nonce, sizeof nonce, 0);
    NEURON_CHECK(got == static_cast<long>(sizeof nonce), "getrandom failed");
  }
  return nonce;
}

}  // namespace neuron
