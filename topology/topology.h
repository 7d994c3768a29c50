// Topology: which ranks of the job live on which host. A value, the same on all ranks; index of every vector = global
// rank or host number. Hosts are numbered in the order of their lowest rank.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/base/rank.h"

namespace neuron {

class Topology {
 public:
  Topology() = default;
  /// host_identities[rank]: equal strings are one host.
  static Topology from_hosts(std::span<const std::string> host_identities);
  /// All ranks on one host.
  static Topology single_host(Rank world);

  [[nodiscard]] Rank world() const { return static_cast<Rank>(host_of_rank_.size()); }
  [[nodiscard]] int hosts() const { return static_cast<int>(ranks_of_host_.size()); }
  [[nodiscard]] int host_of(Rank rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] bool same_host(Rank a, Rank b) const { return host_of(a) == host_of(b); }
  [[nodiscard]] std::span<const Rank> ranks_of(int host) const {
    return ranks_of_host_[static_cast<std::size_t>(host)];
  }
  /// The topology of a group: `members[i]` becomes rank i.
  [[nodiscard]] Topology subset(std::span<const Rank> members) const;
  /// Equal on two ranks iff they see the same placement.
  [[nodiscard]] std::uint64_t digest() const;
  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  std::vector<int> host_of_rank_;
  std::vector<std::vector<Rank>> ranks_of_host_;
};

}  // namespace neuron
