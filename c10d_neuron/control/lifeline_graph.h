// Which hosts keep a link to each other: a ring, so that it stays connected when any one host goes, and a hypercube, so
// that a message crosses it in O(log hosts) steps over O(log hosts) links per host. A pure function of the hosts that
// are left.
#pragma once
#include <set>
#include <span>

namespace neuron::control {

/// The neighbours of `self`; `hosts` are ascending and contain it.
inline std::set<int> lifeline_neighbours(std::span<const int> hosts, int self) {
  std::set<int> neighbours;
  const std::size_t count = hosts.size();
  std::size_t own = 0;
  while (own < count && hosts[own] != self) ++own;
  if (own == count) return neighbours;
  neighbours.insert(hosts[(own + 1) % count]);
  neighbours.insert(hosts[(own + count - 1) % count]);
  for (std::size_t bit = 1; bit < count; bit <<= 1) {
    if ((own ^ bit) < count) neighbours.insert(hosts[own ^ bit]);
  }
  neighbours.erase(self);
  return neighbours;
}

}  // namespace neuron::control
