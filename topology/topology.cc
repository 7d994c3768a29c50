#include "topology/topology.h"

#include <map>

#include "transport/base/random.h"

namespace neuron {

Topology Topology::from_hosts(std::span<const std::string> host_identities) {
  Topology topology;
  std::map<std::string, int> number_of;
  for (std::size_t rank = 0; rank < host_identities.size(); ++rank) {
    const auto [entry, is_new] = number_of.try_emplace(host_identities[rank], topology.hosts());
    if (is_new) topology.ranks_of_host_.emplace_back();
    topology.host_of_rank_.push_back(entry->second);
    topology.ranks_of_host_[static_cast<std::size_t>(entry->second)].push_back(static_cast<Rank>(rank));
  }
  return topology;
}

Topology Topology::single_host(Rank world) {
  return from_hosts(std::vector<std::string>(static_cast<std::size_t>(world), "host"));
}

Topology Topology::subset(std::span<const Rank> members) const {
  std::vector<std::string> hosts;
  hosts.reserve(members.size());
  for (const Rank member : members) hosts.push_back(std::to_string(host_of(member)));
  return from_hosts(hosts);
}

std::uint64_t Topology::digest() const {
  std::uint64_t digest = Random::mix(host_of_rank_.size() + 1);
  for (const int host : host_of_rank_) digest = Random::mix(digest ^ static_cast<std::uint64_t>(host + 1));
  return digest;
}

}  // namespace neuron
