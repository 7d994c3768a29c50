#include "c10d_neuron/control/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>

#include "transport/base/descriptor.h"

namespace neuron::control {
namespace {

/// Text of an address that another host could use; link-local ones need a scope and are left out.
std::optional<std::string> usable_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address == nullptr) return std::nullopt;
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    if (::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size()) == nullptr) return std::nullopt;
    return text.data();
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return std::nullopt;
    if (::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size()) == nullptr) return std::nullopt;
    return text.data();
  }
  return std::nullopt;
}

/// The source address that the kernel would use for a distant destination; nothing is sent.
std::optional<std::string> default_route_address() {
  const Descriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in distant{};
  distant.sin_family = AF_INET;
  distant.sin_port = htons(9);
  distant.sin_addr.s_addr = htonl(0xC6336401);  // 198.51.100.1, reserved for documentation (RFC 5737)
  if (::connect(probe.number(), reinterpret_cast<const sockaddr*>(&distant), sizeof distant) != 0) return std::nullopt;
  sockaddr_in own{};
  socklen_t length = sizeof own;
  if (::getsockname(probe.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return std::nullopt;
  return usable_text(reinterpret_cast<const sockaddr*>(&own));
}

struct Found {
  std::vector<std::string> v4;
  std::vector<std::string> v6;
  std::vector<std::string> loopback;
  std::set<std::string> interfaces;
};

Found scan(const std::string& network_interface) {
  Found found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    found.interfaces.insert(entry->ifa_name);
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    if (!network_interface.empty() && network_interface != entry->ifa_name) continue;
    const auto text = usable_text(entry->ifa_addr);
    if (!text) continue;
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0) {
      found.loopback.push_back(*text);
    } else {
      (entry->ifa_addr->sa_family == AF_INET ? found.v4 : found.v6).push_back(*text);
    }
  }
  return found;
}

}  // namespace

Result<std::vector<std::string>> own_addresses(const std::string& network_interface) {
  Found found = scan(network_interface);
  if (!network_interface.empty() && !found.interfaces.contains(network_interface)) {
    std::string existing;
    for (const auto& name : found.interfaces) existing += (existing.empty() ? "" : ", ") + name;
    return Status(Code::unavailable, "There is no network interface " + network_interface +
                                         " (C10D_NEURON_INTERFACE); " + "this host has " + existing + ".");
  }
  if (const auto first = default_route_address(); first && network_interface.empty()) {
    const auto position = std::find(found.v4.begin(), found.v4.end(), *first);
    if (position != found.v4.end()) std::rotate(found.v4.begin(), position, position + 1);
  }
  auto addresses = std::move(found.v4);
  addresses.insert(addresses.end(), found.v6.begin(), found.v6.end());
  if (addresses.empty()) addresses = std::move(found.loopback);
  if (addresses.empty()) {
    return Status(Code::unavailable,
                  (network_interface.empty() ? std::string("No network interface of this host")
                                             : "Network interface " + network_interface + " (C10D_NEURON_INTERFACE)") +
                      " has an address. Bring one up (ip link set ... up) or name one in C10D_NEURON_INTERFACE.");
  }
  return addresses;
}

Result<std::vector<std::string>> resolve(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(address.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return Status(Code::unavailable, "Host name " + address + " does not resolve: " + ::gai_strerror(error) +
                                         ". Check /etc/hosts and DNS on this host, or name the interface to use in "
                                         "C10D_NEURON_INTERFACE on rank 0.");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (const auto text = usable_text(entry->ai_addr)) addresses.push_back(*text);
  }
  return addresses;
}

std::string endpoint_text(const std::string& address, std::uint16_t port) {
  const bool is_v6 = address.find(':') != std::string::npos;
  return (is_v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

}  // namespace neuron::control
