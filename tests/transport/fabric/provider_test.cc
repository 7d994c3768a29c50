#include "transport/fabric/provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuron::fabric {
namespace {

using ::testing::HasSubstr;

const std::vector<Interface> kInterfaces = {
    {"lo", true, false, {"127.0.0.1", "::1"}},
    {"docker0", false, false, {"172.17.0.1"}},
    {"eth0", false, true, {"192.0.2.2", "fd00::2", "fe80::2"}},
};

Offer net_on(const std::string& domain, const std::string& address) {
  return {"net", address + "/24", domain, address, true};
}

std::vector<Offer> tcp_like_offers() {
  return {net_on("lo", "127.0.0.1"),
          net_on("docker0", "172.17.0.1"),
          net_on("eth0", "fe80::2"),
          net_on("eth0", "fd00::2"),
          net_on("eth0", "192.0.2.2"),
          {"shm", "shm", "shm", "", true},
          {"sockets", "s", "eth0", "192.0.2.2", true}};
}

std::vector<Offer> efa_offers() {
  auto offers = tcp_like_offers();
  offers.push_back({"efa", "efa", "rdmap16s27-rdm", "", true});
  offers.push_back({"efa", "efa-direct", "rdmap16s27-rdm", "", true});
  return offers;
}

Wishes provider_named(const std::string& name) { return {name, "", ""}; }
Wishes interface_named(const std::string& name) { return {"", name, ""}; }
Wishes routed_from(const std::string& address) { return {"", "", address}; }

Offer chosen(const std::vector<Offer>& offers, const Wishes& wishes) {
  const auto best = choose(offers, kInterfaces, wishes, "libfabric 1.17");
  EXPECT_TRUE(best) << best.status().message();
  return best ? offers[*best] : Offer{};
}

std::string error_of(const std::vector<Offer>& offers, const Wishes& wishes) {
  const auto best = choose(offers, kInterfaces, wishes, "libfabric 1.17");
  EXPECT_FALSE(best);
  return best.status().message();
}

TEST(Choose, TakesEfaDirect_WhenTheHostHasEfa) { EXPECT_EQ(chosen(efa_offers(), {}).fabric, "efa-direct"); }

TEST(Choose, TakesEfaFabric_WhenEfaDirectHasNoRemoteWrites) {
  auto offers = efa_offers();
  offers.back().remote_write = false;
  EXPECT_EQ(chosen(offers, {}).fabric, "efa");
}

TEST(Choose, TakesInterfaceOfDefaultRoute_WhenThereAreSeveral) {
  const Offer offer = chosen(tcp_like_offers(), {});
  EXPECT_EQ(offer.provider, "net");
  EXPECT_EQ(offer.address, "192.0.2.2");
}

TEST(Choose, TakesAddressTowardOtherHosts_BeforeDefaultRoute) {
  EXPECT_EQ(chosen(tcp_like_offers(), routed_from("172.17.0.1")).domain, "docker0");
}

TEST(Choose, PassesOverLoopback_EvenIfOtherHostsSeemToBeThere) {
  EXPECT_EQ(chosen(tcp_like_offers(), routed_from("127.0.0.1")).domain, "eth0");
}

TEST(Choose, TakesLoopback_WhenNothingElseIsThere) { EXPECT_EQ(chosen({net_on("lo", "127.0.0.1")}, {}).domain, "lo"); }

TEST(Choose, PrefersTcpOverItsOlderForms) {
  auto offers = tcp_like_offers();
  offers.push_back({"tcp;ofi_rxm", "x", "eth0", "192.0.2.2", true});
  offers.push_back({"tcp", "x", "eth0", "192.0.2.2", true});
  EXPECT_EQ(chosen(offers, {}).provider, "tcp");
}

TEST(Choose, PrefersVerbsOverTcp) {
  auto offers = tcp_like_offers();
  offers.push_back({"verbs;ofi_rxm", "IB-0xfe80", "mlx5_0", "10.0.0.1", true});
  EXPECT_EQ(chosen(offers, {}).provider, "verbs;ofi_rxm");
}

TEST(Choose, TakesTheProviderAskedFor_ByItsCoreToo) {
  auto offers = efa_offers();
  offers.push_back({"tcp;ofi_rxm", "x", "eth0", "192.0.2.2", true});
  EXPECT_EQ(chosen(offers, provider_named("sockets")).provider, "sockets");
  EXPECT_EQ(chosen(offers, provider_named("tcp")).provider, "tcp;ofi_rxm");
  EXPECT_EQ(chosen(offers, provider_named("shm")).provider, "shm");
}

TEST(Choose, TakesTheInterfaceAskedFor_ByNameOrAddress) {
  EXPECT_EQ(chosen(tcp_like_offers(), interface_named("docker0")).domain, "docker0");
  EXPECT_EQ(chosen(tcp_like_offers(), interface_named("127.0.0.1")).domain, "lo");
  EXPECT_EQ(chosen(tcp_like_offers(), interface_named("fd00::2")).address, "fd00::2");
}

TEST(Choose, KeepsEfa_WhenTheInterfaceIsAnInternetOne) {
  EXPECT_EQ(chosen(efa_offers(), interface_named("eth0")).provider, "efa");
}

TEST(Choose, TakesTheEfaDeviceAskedFor) {
  auto offers = efa_offers();
  offers.push_back({"efa", "efa-direct", "rdmap17s27-rdm", "", true});
  EXPECT_EQ(chosen(offers, interface_named("rdmap17s27-rdm")).domain, "rdmap17s27-rdm");
}

TEST(Choose, ListsProviders_WhenTheOneAskedForIsNotThere) {
  EXPECT_EQ(error_of(tcp_like_offers(), provider_named("efa")),
            "C10D_NEURON_PROVIDER is \"efa\", which libfabric 1.17 does not offer here; it offers net, shm, sockets. "
            "Choose one of these or unset it.");
}

TEST(Choose, ListsInterfaces_WhenTheOneAskedForIsNotThere) {
  const std::string message = error_of(tcp_like_offers(), interface_named("eth9"));
  EXPECT_THAT(message, HasSubstr("C10D_NEURON_INTERFACE is \"eth9\""));
  EXPECT_THAT(message, HasSubstr("eth0 (192.0.2.2)"));
  EXPECT_THAT(message, HasSubstr("lo (127.0.0.1)"));
}

TEST(Choose, SaysWhatToCheck_WhenNothingIsOffered) {
  EXPECT_THAT(error_of({}, {}), HasSubstr("Check that a network interface is up"));
}

TEST(Choose, TakesNothingUnasked_ThatReachesOneHostOnly) {
  EXPECT_THAT(error_of({{"shm", "shm", "shm", "", true}}, {}), HasSubstr("offers only shm"));
}

}  // namespace
}  // namespace neuron::fabric
