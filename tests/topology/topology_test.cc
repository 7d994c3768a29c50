#include "topology/topology.h"

#include <gtest/gtest.h>

#include <set>

#include "topology/host_facts.h"

namespace neuron {
namespace {

Topology topology_of(std::initializer_list<std::string> hosts) {
  return Topology::from_hosts(std::vector<std::string>(hosts));
}

TEST(Topology, NumbersHostsByTheirLowestRank) {
  const Topology topology = topology_of({"b", "a", "b", "c", "a"});
  EXPECT_EQ(topology.world(), 5);
  EXPECT_EQ(topology.hosts(), 3);
  EXPECT_EQ(topology.host_of(0), 0);
  EXPECT_EQ(topology.host_of(1), 1);
  EXPECT_EQ(topology.host_of(2), 0);
  EXPECT_EQ(topology.host_of(3), 2);
  EXPECT_TRUE(topology.same_host(1, 4));
  EXPECT_FALSE(topology.same_host(0, 1));
  const auto ranks = topology.ranks_of(1);
  EXPECT_EQ(std::vector<Rank>(ranks.begin(), ranks.end()), (std::vector<Rank>{1, 4}));
}

TEST(Topology, IsEqual_WhateverTheHostsAreCalled) {
  EXPECT_EQ(topology_of({"a", "b", "a"}), topology_of({"x", "y", "x"}));
  EXPECT_FALSE(topology_of({"a", "b", "a"}) == topology_of({"a", "b", "b"}));
}

TEST(Topology, DigestsDifferWherePlacementsDo) {
  std::set<std::uint64_t> digests;
  std::size_t placements = 0;
  const std::string hosts[] = {"a", "b", "c"};
  std::set<std::vector<int>> seen;
  for (int code = 0; code < 3 * 3 * 3 * 3 * 3; ++code) {
    std::vector<std::string> identities;
    for (int rank = 0, rest = code; rank < 5; ++rank, rest /= 3) identities.push_back(hosts[rest % 3]);
    const Topology topology = Topology::from_hosts(identities);
    std::vector<int> numbers;
    for (Rank rank = 0; rank < 5; ++rank) numbers.push_back(topology.host_of(rank));
    placements += seen.insert(numbers).second;
    digests.insert(topology.digest());
  }
  EXPECT_EQ(digests.size(), placements);
  EXPECT_NE(Topology::single_host(2).digest(), Topology::single_host(3).digest());
  EXPECT_NE(Topology().digest(), Topology::single_host(1).digest());
}

TEST(Topology, OfAGroupHasTheMembersAsItsRanks) {
  const Topology topology = topology_of({"a", "a", "b", "b", "c"});
  const std::vector<Rank> members = {4, 2, 3};
  const Topology group = topology.subset(members);
  EXPECT_EQ(group, topology_of({"c", "b", "b"}));
  EXPECT_EQ(topology.subset({}), Topology());
}

TEST(Topology, OfOneHostHasOneHost) {
  const Topology topology = Topology::single_host(3);
  EXPECT_EQ(topology.hosts(), 1);
  EXPECT_EQ(topology.ranks_of(0).size(), 3U);
}

TEST(HostFacts, IdentityDiffers_WhenAnyPartOfItDoes) {
  const HostFacts facts{"boot", 5, "", "name"};
  HostFacts other = facts;
  other.name = "another name";
  EXPECT_EQ(other.identity(), facts.identity()) << "names are for people";
  other = facts;
  other.boot_id = "boot2";
  EXPECT_NE(other.identity(), facts.identity());
  other = facts;
  other.network_namespace = 6;
  EXPECT_NE(other.identity(), facts.identity());
  other = facts;
  other.alias = "a";
  EXPECT_NE(other.identity(), facts.identity());
}

TEST(HostFacts, OfThisProcessAreTheMachinesAndTheConfigs) {
  Config config;
  config.host = "left";
  const HostFacts facts = HostFacts::of_this_process(config);
  EXPECT_EQ(facts.boot_id.size(), 36U);
  EXPECT_NE(facts.network_namespace, 0U);
  EXPECT_EQ(facts.alias, "left");
  EXPECT_FALSE(facts.name.empty());
  EXPECT_EQ(facts, HostFacts::of_this_process(config));
}

}  // namespace
}  // namespace neuron
