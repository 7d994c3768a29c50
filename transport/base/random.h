// Seeded randomness (SplitMix64: Steele, Lea, Flood 2014) and nonces from the kernel. Values.
#pragma once
#include <cstdint>

namespace neuron {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15ULL); }
  /// Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  /// The finalizer alone: a good 64-bit hash of an integer.
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// A 64-bit number that no other process has (getrandom); never 0.
std::uint64_t random_nonce();

}  // namespace neuron
