// HostFacts: what makes a host a host, for deciding which ranks share one. A value; read once by the composition root.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/config.h"

namespace neuron {

struct HostFacts {
  std::string boot_id;                  // /proc/sys/kernel/random/boot_id
  std::uint64_t network_namespace = 0;  // inode of /proc/self/ns/net: two namespaces are two hosts
  std::string alias;                    // C10D_NEURON_HOST; empty: none
  std::string name;                     // gethostname, for messages to people only

  /// Equal identities may share memory; whether they can is settled by handing over a descriptor.
  [[nodiscard]] std::string identity() const;
  /// The part of an identity that stands for the machine whose cores are shared: several hosts may be on one.
  [[nodiscard]] static std::string_view machine_of(std::string_view identity) {
    return identity.substr(0, identity.find('/'));
  }
  friend bool operator==(const HostFacts&, const HostFacts&) = default;

  static HostFacts of_this_process(const Config& config);
};

}  // namespace neuron
