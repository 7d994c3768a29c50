#include "transport/fabric/discovery.h"

#include <netdb.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "transport/header.h"

namespace neuron::fabric {
namespace {

std::string numeric_address(const fi_info& info) {
  const bool is_internet =
      info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6 || info.addr_format == FI_SOCKADDR;
  if (!is_internet || info.src_addr == nullptr) return {};
  char host[NI_MAXHOST] = {};
  const auto* address = static_cast<const sockaddr*>(info.src_addr);
  if (::getnameinfo(address, static_cast<socklen_t>(info.src_addrlen), host, sizeof host, nullptr, 0, NI_NUMERICHOST) !=
      0) {
    return {};
  }
  const std::string text = host;
  return text.substr(0, text.find('%'));
}

std::string text_of(const char* text) { return text == nullptr ? std::string{} : std::string(text); }

/// What this transport needs and can live with: the rules of efa-direct, which every provider can keep.
InfoList hints_for(const Library& library, std::uint64_t capabilities, const std::string& provider) {
  InfoList hints(library.dupinfo(nullptr), FreeInfo(library.freeinfo));
  if (!hints) return hints;
  hints->caps = capabilities;
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  if (!provider.empty()) hints->fabric_attr->prov_name = ::strdup(provider.c_str());  // freeinfo frees it
  return hints;
}

/// The end of the list that `tail` belongs to gets what `capabilities` finds.
void append(const Library& library, std::uint64_t capabilities, const std::string& provider, InfoList& list) {
  const InfoList hints = hints_for(library, capabilities, provider);
  fi_info* found = nullptr;
  if (!hints || library.getinfo(library.api_version(), nullptr, nullptr, 0, hints.get(), &found) != 0) return;
  if (!list) {
    list = InfoList(found, FreeInfo(library.freeinfo));
    return;
  }
  fi_info* last = list.get();
  while (last->next != nullptr) last = last->next;
  last->next = found;
}

/// Endpoints with remote writes first, then the same and others for messages alone.
InfoList everything(const Library& library, const std::string& provider) {
  InfoList list;
  append(library, FI_MSG | FI_RMA, provider, list);
  append(library, FI_MSG, provider, list);
  return list;
}

}  // namespace

Offer offer_of(const fi_info& info) {
  const bool writes = (info.caps & FI_RMA) != 0 && info.domain_attr->cq_data_size >= sizeof(std::uint32_t) &&
                      info.ep_attr->max_msg_size >= kBlockBytes;
  return {text_of(info.fabric_attr->prov_name), text_of(info.fabric_attr->name), text_of(info.domain_attr->name),
          numeric_address(info), writes};
}

Result<Choice> discover(const Library& library, const Wishes& wishes) {
  // Some providers answer only when asked by name; for the error text, everything is asked.
  Choice choice;
  choice.list = everything(library, wishes.provider);
  if (!choice.list && !wishes.provider.empty()) choice.list = everything(library, {});

  std::vector<const fi_info*> entries;
  std::vector<Offer> offers;
  for (const fi_info* info = choice.list.get(); info != nullptr; info = info->next) {
    if (info->ep_attr->max_msg_size < kMessageBytes) continue;
    entries.push_back(info);
    offers.push_back(offer_of(*info));
  }
  const auto interfaces = list_interfaces();
  const auto best = choose(offers, interfaces, wishes, library.name());
  if (!best) return best.status();
  choice.info = entries[*best];
  choice.offer = offers[*best];
  return choice;
}

}  // namespace neuron::fabric
