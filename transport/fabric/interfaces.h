// Interface: a network interface of this host, as far as choosing one matters. A value; list_interfaces and
// interface_toward ask the kernel, may be called by any thread, and answer with nothing when they cannot know.
#pragma once
#include <string>
#include <vector>

namespace neuron::fabric {

struct Interface {
  std::string name;
  bool is_loopback = false;
  bool has_default_route = false;
  std::vector<std::string> addresses;  // numeric
};

/// The interfaces that are up, in the kernel's order.
std::vector<Interface> list_interfaces();

/// Our own numeric address on the way to `remote` (numeric, too); empty when there is no route.
std::string address_toward(const std::string& remote);

}  // namespace neuron::fabric
