// Addresses: by which numeric addresses others may reach this process. Functions that ask the kernel or the resolver;
// any thread. Errors: unavailable (no such interface: names those that exist), unavailable (a name that does not
// resolve: names it and says why).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/status.h"

namespace neuron::control {

/// In the order in which others should try them: the default route's first, loopback only where there is nothing else.
/// `network_interface`: only that one's; empty: all that are up.
Result<std::vector<std::string>> own_addresses(const std::string& network_interface);

/// A numeric address stays what it is, a name becomes its addresses. May ask the network.
Result<std::vector<std::string>> resolve(const std::string& address);

/// "10.0.0.1:80", "[fe80::1]:80".
std::string endpoint_text(const std::string& address, std::uint16_t port);

}  // namespace neuron::control
