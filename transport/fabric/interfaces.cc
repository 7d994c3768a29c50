#include "transport/fabric/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

namespace neuron::fabric {
namespace {

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  const std::string text = host;
  return text.substr(0, text.find('%'));  // the scope of a link-local address is the interface, known already
}

socklen_t length_of(const sockaddr* address) {
  return address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

/// The interface of the default route with the lowest metric; empty without one.
std::string default_route_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line;
  std::string best;
  long best_metric = 0;
  std::getline(routes, line);  // headings
  while (std::getline(routes, line)) {
    std::istringstream fields(line);
    std::string name, destination, gateway, flags;
    long references = 0, use = 0, metric = 0;
    if (!(fields >> name >> destination >> gateway >> flags >> references >> use >> metric)) continue;
    if (destination != "00000000" || (!best.empty() && metric >= best_metric)) continue;
    best = name;
    best_metric = metric;
  }
  return best;
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  const std::string default_route = default_route_interface();

  std::vector<Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) continue;
    auto place =
        std::find_if(found.begin(), found.end(), [&](const Interface& i) { return i.name == entry->ifa_name; });
    if (place == found.end()) {
      found.push_back({entry->ifa_name, (entry->ifa_flags & IFF_LOOPBACK) != 0, entry->ifa_name == default_route, {}});
      place = std::prev(found.end());
    }
    place->addresses.push_back(numeric(entry->ifa_addr, length_of(entry->ifa_addr)));
  }
  return found;
}

std::string address_toward(const std::string& remote) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (remote.empty() || ::getaddrinfo(remote.c_str(), "9", &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);

  const int probe = ::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return {};
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  // Connecting a datagram socket sends nothing; it makes the kernel choose the route.
  const bool routed = ::connect(probe, list->ai_addr, list->ai_addrlen) == 0 &&
                      ::getsockname(probe, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  ::close(probe);
  return routed ? numeric(reinterpret_cast<const sockaddr*>(&own), length) : std::string{};
}

}  // namespace neuron::fabric
