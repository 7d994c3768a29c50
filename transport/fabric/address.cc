#include "transport/fabric/address.h"

#include "transport/base/check.h"
#include "transport/base/decode.h"

namespace neuron::fabric {
namespace {

constexpr std::uint32_t kMagic = 0x4C49'4152;  // "RAIL"
constexpr std::uint8_t kLayout = 1;
constexpr std::size_t kLongestName = 256;
constexpr std::size_t kLongestRaw = 256;

std::string version_text(std::uint32_t version) {
  return std::to_string(version >> 16) + "." + std::to_string(version & 0xFFFF);
}

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }
bool is_version_6(const std::string& host) { return host.find(':') != std::string::npos; }

std::string described(const Address& address) {
  return "provider " + address.provider + " (fabric " + address.fabric + ", libfabric " +
         version_text(address.library_version) + ")";
}

}  // namespace

std::vector<std::byte> encode(const Address& address) {
  Encoder out;
  out.number(kMagic).number(kLayout).number(address.nonce).text(address.provider).text(address.fabric);
  out.number(address.protocol).number(address.library_version);
  out.number(static_cast<std::uint8_t>(address.remote_write)).text(address.host);
  out.number(static_cast<std::uint32_t>(address.raw.size())).bytes(address.raw);
  auto bytes = out.take();
  NEURON_CHECK(bytes.size() <= kAddressBytes, "provider and fabric names are checked when the rail is opened");
  return bytes;
}

Result<Address> decode_address(std::span<const std::byte> bytes) {
  const Status broken(Code::refused,
                      "A peer's fabric address cannot be read; do all ranks run the same version of c10d-neuron?");
  Decoder in(bytes);
  if (in.number<std::uint32_t>() != kMagic || in.number<std::uint8_t>() != kLayout) return broken;
  Address address;
  address.nonce = in.number<std::uint64_t>();
  address.provider = in.text();
  address.fabric = in.text();
  address.protocol = in.number<std::uint32_t>();
  address.library_version = in.number<std::uint32_t>();
  address.remote_write = in.number<std::uint8_t>() != 0;
  address.host = in.text();
  const auto raw = in.bytes(in.number<std::uint32_t>());
  address.raw.assign(raw.begin(), raw.end());
  const bool fits = address.provider.size() <= kLongestName && address.fabric.size() <= kLongestName &&
                    address.host.size() <= kLongestName && !address.raw.empty() && address.raw.size() <= kLongestRaw;
  if (!in.is_finished() || !fits) return broken;
  return address;
}

Status compatible(const Address& own, const Address& peer) {
  // A fabric name is a subnet with tcp-like providers, which routers connect; with efa it is the protocol.
  const bool same_fabric = own.provider != "efa" || own.fabric == peer.fabric;
  if (own.provider != peer.provider || own.protocol != peer.protocol || !same_fabric) {
    return {Code::mismatch, "This rank uses " + described(own) + ", the peer " + described(peer) +
                                ". Set C10D_NEURON_PROVIDER and C10D_NEURON_LIBFABRIC alike on all hosts."};
  }
  if (is_loopback(own.host) != is_loopback(peer.host) || is_version_6(own.host) != is_version_6(peer.host)) {
    return {Code::mismatch,
            "This rank listens at " + own.host + ", the peer at " + peer.host +
                ": they do not reach each other. Set C10D_NEURON_INTERFACE on each host to the interface "
                "that reaches the others, and check that it is up."};
  }
  if (own.remote_write != peer.remote_write) {
    const auto mode = [](const Address& address) { return address.remote_write ? "remote writes" : "messages"; };
    return {Code::mismatch, std::string("This rank moves large data by ") + mode(own) + ", the peer by " + mode(peer) +
                                ". Set C10D_NEURON_REMOTE_WRITE alike on all hosts (0 works everywhere)."};
  }
  return {};
}

}  // namespace neuron::fabric
