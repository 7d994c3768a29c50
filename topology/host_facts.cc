#include "topology/host_facts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace neuron {

std::string HostFacts::identity() const {
  return boot_id + "/" + std::to_string(network_namespace) + (alias.empty() ? "" : "/" + alias);
}

HostFacts HostFacts::of_this_process(const Config& config) {
  HostFacts facts;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> facts.boot_id;
  struct stat status{};
  if (::stat("/proc/self/ns/net", &status) == 0) facts.network_namespace = status.st_ino;
  facts.alias = config.host;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) facts.name = name.data();
  return facts;
}

}  // namespace neuron
