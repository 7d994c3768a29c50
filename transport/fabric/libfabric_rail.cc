#include "transport/fabric/libfabric_rail.h"

#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/fabric/discovery.h"

namespace neuron::fabric {
namespace {

constexpr std::size_t kBlocks = 64;
constexpr std::size_t kMostReceives = 256;
constexpr std::size_t kMostSends = 256;
/// A dead peer, whose sends never complete, must not take all bounce buffers from the others.
constexpr std::uint32_t kShareOfSends = 4;

std::size_t writes_for(const fi_info& info) { return std::min(kBlocks, info.tx_attr->size / 2); }

Address address_of(const Endpoint& endpoint, const Offer& offer, bool remote_write) {
  const fi_info& info = endpoint.info();
  Address address;
  address.nonce = random_nonce();
  address.provider = info.fabric_attr->prov_name;
  address.fabric = info.fabric_attr->name == nullptr ? "" : info.fabric_attr->name;
  address.protocol = info.ep_attr->protocol;
  address.library_version = endpoint.library().version();
  address.remote_write = remote_write;
  address.host = offer.address;
  address.raw = endpoint.raw_address();
  return address;
}

}  // namespace

Options options_from(const Config& config) {
  Options options;
  options.provider = config.provider;
  options.network_interface = config.network_interface;
  options.library = config.libfabric;
  options.remote_write = config.remote_write;
  return options;
}

Result<std::unique_ptr<Rail>> open(const Options& options, const Clock& clock) {
  return LibfabricRail::open(options, clock);
}

Result<std::unique_ptr<Rail>> LibfabricRail::open(const Options& options, const Clock& clock) {
  set_provider_defaults();
  const auto library = Library::open(options.library);
  if (!library) return library.status();
  const Wishes wishes{options.provider, options.network_interface, address_toward(options.toward)};
  const auto choice = discover(*library, wishes);
  if (!choice) return choice.status();
  auto endpoint = Endpoint::open(*library, *choice->info, {.incoming_writes = kBlocks});
  if (!endpoint) return endpoint.status();

  const bool writes = choice->offer.remote_write && options.remote_write;
  Address own = address_of(**endpoint, choice->offer, writes);
  if (encode(own).size() > kAddressBytes) {
    return Status(Code::unsupported, "Provider " + own.provider + " has addresses too long to hand out.");
  }
  std::unique_ptr<LibfabricRail> rail(
      new LibfabricRail(std::move(*endpoint), std::move(own), choice->offer, options, clock));
  if (Status status = rail->prepare_messages(); !status) return status;
  log(LogLevel::info, "Between hosts: " + rail->description());
  return std::unique_ptr<Rail>(std::move(rail));
}

LibfabricRail::LibfabricRail(std::unique_ptr<Endpoint> endpoint, Address own, const Offer& offer,
                             const Options& options, const Clock& clock)
    : endpoint_(std::move(endpoint)),
      own_(std::move(own)),
      offer_(offer),
      writes_(own_.remote_write),
      stall_limit_(options.stall_limit),
      clock_(clock),
      peers_(*endpoint_),
      blocks_(*endpoint_, kBlocks, writes_),
      receives_(std::min(kMostReceives, endpoint_->info().rx_attr->size)),
      sends_(std::min(kMostSends, endpoint_->info().tx_attr->size - writes_for(endpoint_->info()))),
      write_requests_(writes_for(endpoint_->info())) {
  unposted_receives_.reserve(receives_.size());
}

LibfabricRail::~LibfabricRail() {
  flush();
  endpoint_->stop();
}

Status LibfabricRail::prepare_messages() {
  auto region = endpoint_->message_region((receives_.size() + sends_.size()) * kMessageBytes);
  if (!region) return region.status();
  message_memory_ = std::move(*region);
  receives_.assign_buffers(message_memory_.pages.address(), kMessageBytes);
  sends_.assign_buffers(message_memory_.pages.address() + receives_.size() * kMessageBytes, kMessageBytes);
  while (Request* request = receives_.take()) post_receive(request);
  if (unposted_receives_.empty()) return {};
  return {Code::unavailable,
          "Provider " + own_.provider + " refuses receive buffers; on RDMA hardware check `ulimit -l`."};
}

TransportTraits LibfabricRail::traits() const {
  // An immediate that takes a posted receive must find one beside those that messages may take.
  const std::size_t reserved = endpoint_->immediates_take_receives() ? std::min(kBlocks, receives_.size() / 2) : 0;
  return {own_.provider, writes_ ? BulkMode::write : BulkMode::messages, receives_.size() - reserved, kBlocks};
}

std::string LibfabricRail::description() const {
  return own_.provider + " on " + offer_.domain + (offer_.address.empty() ? "" : " (" + offer_.address + ")") + ", " +
         (writes_ ? "remote writes" : "messages") + ", " + endpoint_->library().name();
}

Status LibfabricRail::connect(Rank rank, std::span<const std::byte> address) {
  auto decoded = decode_address(address);
  if (!decoded) return decoded.status();
  if (Status status = compatible(own_, *decoded); !status) return status;
  if (const Peer* known = peers_.find(rank)) {
    if (known->address == *decoded && !known->is_lost) return {};
    disconnect(rank);  // a successor of the process that had this rank
  }
  const auto peer = peers_.add(rank, std::move(*decoded));
  if (!peer) return peer.status();
  if (early_.has(rank)) connected_late_.push_back(rank);
  return {};
}

bool LibfabricRail::is_connected(Rank rank) const {
  const Peer* peer = peers_.find(rank);
  return peer != nullptr && !peer->is_lost;
}

void LibfabricRail::disconnect(Rank rank) {
  Peer* peer = peers_.find(rank);
  if (peer == nullptr) return;
  std::erase(refusing_, peer);
  std::erase(losses_, rank);
  peers_.forget(rank);
}

SharedBlock LibfabricRail::share(const Block&) {
  NEURON_CHECK(false, "the fabric's blocks are written, never read in place");
}

TrafficCount LibfabricRail::traffic(Rank rank) const {
  const Peer* peer = peers_.find(rank);
  return peer == nullptr ? TrafficCount{} : peer->traffic;
}

// ---- posting ----

bool LibfabricRail::post_receive(Request* request) {
  const auto returned = fi_recv(endpoint_->ep(), request->buffer, kMessageBytes, message_memory_.descriptor(),
                                FI_ADDR_UNSPEC, &request->context);
  if (returned == 0) return true;
  unposted_receives_.push_back(request);
  if (returned != -FI_EAGAIN) {
    log_once(LogLevel::warning,
             "fi_recv of provider " + own_.provider + " failed: " + endpoint_->library().error_text(returned));
  }
  return false;
}

void LibfabricRail::post_missing_receives() {
  while (!unposted_receives_.empty()) {
    Request* request = unposted_receives_.back();
    unposted_receives_.pop_back();
    if (!post_receive(request)) return;
  }
}

Posted LibfabricRail::send(Rank rank, const Header& header, std::span<const std::byte> payload) {
  NEURON_CHECK(payload.size() <= kEagerBytes, "larger payloads are announced");
  Peer* peer = peers_.find(rank);
  if (peer == nullptr || peer->is_lost) return Posted::lost;
  Request* request = peer->sends < sends_.size() / kShareOfSends ? sends_.take() : nullptr;
  if (request == nullptr) {
    if (peer->sends > 0) note_refusal(*peer);
    return Posted::again;
  }

  const std::size_t bytes = sizeof header + payload.size();
  std::memcpy(request->buffer, &header, sizeof header);
  if (!payload.empty()) std::memcpy(request->buffer + sizeof header, payload.data(), payload.size());
  const auto returned =
      fi_send(endpoint_->ep(), request->buffer, bytes, message_memory_.descriptor(), peer->handle, &request->context);
  if (returned != 0) {
    sends_.give_back(request);
    return settle(*peer, returned, "fi_send");
  }
  request->peer = peer;
  ++peer->sends;
  ++peer->traffic.messages;
  peer->traffic.bytes += payload.size();
  return settle(*peer, returned, "fi_send");
}

Posted LibfabricRail::write(Rank rank, const Block& from, std::size_t bytes, const RemoteBlock& to,
                            std::uint32_t immediate, std::uint64_t cookie) {
  NEURON_CHECK(writes_, "a rail in messages mode does not write");
  NEURON_CHECK(from.index < blocks_.size() && bytes <= kBlockBytes, "a write leaves from one block of this rail");
  Peer* peer = peers_.find(rank);
  if (peer == nullptr || peer->is_lost) return Posted::lost;
  Request* request = write_requests_.take();
  if (request == nullptr) {
    if (peer->writes > 0) note_refusal(*peer);
    return Posted::again;
  }

  const auto returned = fi_writedata(endpoint_->ep(), from.address, bytes, blocks_.descriptor(from.index), immediate,
                                     peer->handle, to.address, to.key, &request->context);
  if (returned != 0) {
    write_requests_.give_back(request);
    return settle(*peer, returned, "fi_writedata");
  }
  request->peer = peer;
  request->cookie = cookie;
  request->block = from.index;
  ++peer->writes;
  blocks_.begin_write(from.index);
  peer->traffic.bytes += bytes;
  return settle(*peer, returned, "fi_writedata");
}

Posted LibfabricRail::settle(Peer& peer, long returned, const char* call) {
  if (returned == 0) {
    peer.refused_since = 0;
    return Posted::done;
  }
  if (returned == -FI_EAGAIN) {
    note_refusal(peer);
    return Posted::again;
  }
  lose(peer,
       {Code::peer_lost, std::string(call) + " to rank " + std::to_string(peer.rank) + " over " + own_.provider +
                             " failed: " + endpoint_->library().error_text(returned) + "."},
       false);
  return Posted::lost;
}

void LibfabricRail::note_refusal(Peer& peer) {
  if (peer.refused_since != 0) return;
  peer.refused_since = clock_.now();
  if (std::find(refusing_.begin(), refusing_.end(), &peer) == refusing_.end()) refusing_.push_back(&peer);
}

}  // namespace neuron::fabric
