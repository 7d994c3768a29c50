// Address: what a rail tells the others so that they can reach it. A value; encoded for the road, decoded from bytes
// that are never trusted. `compatible` says whether two rails could talk, and in words why not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/base/status.h"

namespace neuron::fabric {

struct Address {
  std::uint64_t nonce = 0;  // of this rail: a restarted one differs even at the same raw address
  std::string provider;
  std::string fabric;
  std::uint32_t protocol = 0;         // fi_ep_attr::protocol: the provider's own, on the wire
  std::uint32_t library_version = 0;  // of libfabric at run time
  bool remote_write = false;          // large messages are answered by writes
  std::string host;                   // numeric Internet address; empty for other kinds of address
  std::vector<std::byte> raw;         // fi_getname

  friend bool operator==(const Address&, const Address&) = default;
};

inline constexpr std::size_t kAddressBytes = 1024;

/// At most kAddressBytes.
[[nodiscard]] std::vector<std::byte> encode(const Address& address);
/// Errors: refused, when the bytes are not an address of this protocol.
[[nodiscard]] Result<Address> decode_address(std::span<const std::byte> bytes);
/// Errors: mismatch, naming what differs on the two sides and the knob that makes them equal.
[[nodiscard]] Status compatible(const Address& own, const Address& peer);

}  // namespace neuron::fabric
