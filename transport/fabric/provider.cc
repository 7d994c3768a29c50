#include "transport/fabric/provider.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>

namespace neuron::fabric {
namespace {

// Best first. Providers that are not here (shm reaches one host only, udp;ofi_rxd resends by itself) serve whoever
// names them.
constexpr std::array<std::string_view, 6> kPreferred = {
    "efa",            // AWS Elastic Fabric Adapter
    "verbs;ofi_rxm",  // InfiniBand, RoCE
    "tcp",            // since 1.18 with reliable datagrams of its own
    "net",            // the same in 1.17
    "tcp;ofi_rxm",    // before
    "sockets",        // everywhere, slow
};

std::size_t preference(std::string_view provider) {
  return static_cast<std::size_t>(std::find(kPreferred.begin(), kPreferred.end(), provider) - kPreferred.begin());
}

const Interface* interface_of(const Offer& offer, std::span<const Interface> interfaces) {
  for (const Interface& one : interfaces) {
    const auto& addresses = one.addresses;
    const bool holds =
        !offer.address.empty() && std::find(addresses.begin(), addresses.end(), offer.address) != addresses.end();
    if (one.name == offer.domain || holds) return &one;
  }
  return nullptr;
}

bool is_at(const Offer& offer, std::span<const Interface> interfaces, std::string_view wish) {
  const Interface* on = interface_of(offer, interfaces);
  return offer.domain == wish || offer.address == wish || (on != nullptr && on->name == wish);
}

/// Smaller is better; each member is a reason, the earlier ones weigh more.
auto reasons(const Offer& offer, std::span<const Interface> interfaces, const Wishes& wishes) {
  const Interface* on = interface_of(offer, interfaces);
  const bool is_loopback = on != nullptr ? on->is_loopback : offer.domain == "lo";
  const bool is_link_local = offer.address.starts_with("fe80:");
  return std::make_tuple(preference(offer.provider),
                         !offer.remote_write,           // else large messages travel as small ones
                         offer.fabric != "efa-direct",  // no software protocol under ours
                         is_loopback,                   // reaches nobody else
                         is_link_local,                 // means nothing on another host
                         wishes.own_address.empty() || offer.address != wishes.own_address,
                         on == nullptr || !on->has_default_route, offer.address.find(':') != std::string::npos);
}

template <typename Describe>
std::string listing(std::span<const Offer> offers, Describe&& describe) {
  std::set<std::string> names;
  for (const Offer& offer : offers) names.insert(describe(offer));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Status no_provider(std::span<const Offer> offers, const Wishes& wishes, std::string_view library) {
  const std::string there = listing(offers, [](const Offer& offer) { return offer.provider; });
  if (offers.empty()) {
    return {Code::unavailable, std::string(library) +
                                   " has no provider with reliable datagrams (FI_EP_RDM) here. Check that a network "
                                   "interface is up and that FI_PROVIDER, if set, names one."};
  }
  if (wishes.provider.empty()) {
    return {Code::unavailable, std::string(library) + " offers only " + there +
                                   ", none of which is known to reach other hosts. Name one with C10D_NEURON_PROVIDER "
                                   "to try it."};
  }
  return {Code::unavailable, "C10D_NEURON_PROVIDER is \"" + wishes.provider + "\", which " + std::string(library) +
                                 " does not offer here; it offers " + there + ". Choose one of these or unset it."};
}

Status no_interface(std::span<const Offer> offers, const Wishes& wishes) {
  const std::string there = listing(offers, [](const Offer& offer) {
    return offer.domain + (offer.address.empty() ? "" : " (" + offer.address + ")");
  });
  return {Code::unavailable, "C10D_NEURON_INTERFACE is \"" + wishes.network_interface +
                                 "\", which no provider offers on this host; there are " + there +
                                 ". Choose one of these or unset it."};
}

/// Keeps the offers on the interface that was asked for. An offer without an Internet address (efa) has no interface of
/// that kind and stays, unless the wish names such an offer itself.
std::vector<std::size_t> on_interface(std::span<const Offer> offers, std::span<const Interface> interfaces,
                                      std::span<const std::size_t> candidates, std::string_view wish) {
  std::vector<std::size_t> exact;
  std::vector<std::size_t> addressless;
  bool names_device = false;
  for (const std::size_t i : candidates) {
    const bool matches = is_at(offers[i], interfaces, wish);
    if (matches) exact.push_back(i);
    if (!matches && offers[i].address.empty()) addressless.push_back(i);
    names_device |= matches && offers[i].address.empty();
  }
  if (!exact.empty() && !names_device) exact.insert(exact.end(), addressless.begin(), addressless.end());
  return exact;
}

}  // namespace

bool names_provider(std::string_view asked, std::string_view provider) {
  return asked == provider || asked == provider.substr(0, provider.find(';'));
}

Result<std::size_t> choose(std::span<const Offer> offers, std::span<const Interface> interfaces, const Wishes& wishes,
                           std::string_view library) {
  std::vector<std::size_t> candidates;
  for (std::size_t i = 0; i < offers.size(); ++i) {
    const bool wanted = wishes.provider.empty() ? preference(offers[i].provider) < kPreferred.size()
                                                : names_provider(wishes.provider, offers[i].provider);
    if (wanted) candidates.push_back(i);
  }
  if (candidates.empty()) return no_provider(offers, wishes, library);

  if (!wishes.network_interface.empty()) {
    candidates = on_interface(offers, interfaces, candidates, wishes.network_interface);
    if (candidates.empty()) return no_interface(offers, wishes);
  }
  return *std::min_element(candidates.begin(), candidates.end(), [&](std::size_t a, std::size_t b) {
    return reasons(offers[a], interfaces, wishes) < reasons(offers[b], interfaces, wishes);
  });
}

}  // namespace neuron::fabric
