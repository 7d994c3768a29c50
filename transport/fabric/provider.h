// Offer and choose: which of the endpoints that libfabric offers a rail uses. Values and one pure function, so that the
// choice for hardware that a test machine lacks can be tested. Fails with a Status that lists what there is.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/status.h"
#include "transport/fabric/interfaces.h"

namespace neuron::fabric {

/// One endpoint that libfabric could open.
struct Offer {
  std::string provider;       // "efa", "net", "tcp;ofi_rxm", ...
  std::string fabric;         // "efa-direct", "192.0.2.0/24", ...
  std::string domain;         // "rdmap16s27-rdm", "eth0", ...
  std::string address;        // numeric Internet address; empty for other kinds of address
  bool remote_write = false;  // writes with an immediate of 32 bits, at least a block long
};

/// What the user asked for; empty means no wish.
struct Wishes {
  std::string provider;
  std::string network_interface;
  std::string own_address;  // on the way to other hosts, where known
};

/// The index of the best offer. `library` names libfabric in errors.
Result<std::size_t> choose(std::span<const Offer> offers, std::span<const Interface> interfaces, const Wishes& wishes,
                           std::string_view library);

/// Whether `asked` means `provider`: by its whole name, or by that of its core ("tcp" for "tcp;ofi_rxm").
[[nodiscard]] bool names_provider(std::string_view asked, std::string_view provider);

}  // namespace neuron::fabric
