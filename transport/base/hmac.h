// HMAC-SHA-256 (RFC 2104, FIPS 180-4) through libcrypto: how two processes show each other that they know the job's
// token without saying it. Pure functions; any thread; nothing here fails.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace neuron {

using Mac = std::array<char, 32>;

[[nodiscard]] Mac hmac_sha256(std::string_view key, std::string_view message);

/// Whether two secrets are equal, in a time that depends on their length only.
[[nodiscard]] bool equal_in_constant_time(std::string_view a, std::string_view b);

[[nodiscard]] inline std::string_view view_of(const Mac& mac) { return {mac.data(), mac.size()}; }

}  // namespace neuron
