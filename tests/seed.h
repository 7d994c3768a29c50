// The seed of random tests: a number of its own for each process, or the one that `scripts/test --seed` gives. A test
// puts it into a SCOPED_TRACE, so that a failure says how to repeat it. A pure function after its first call; any
// thread.
#pragma once
#include <cstdint>
#include <cstdlib>

#include "transport/base/random.h"

namespace neuron {

inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("NEURON_TEST_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : random_nonce();
  }();
  return seed;
}

}  // namespace neuron
