#include "transport/messaging/messenger.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/messaging/inlet.h"

namespace neuron {
namespace {

constexpr std::uint32_t kFirstWindow = 32;  // slots
constexpr std::uint32_t kLeastWindow = 2;

/// Half the receive queue over all peers, so that a burst from everyone finds posted slots.
std::uint32_t first_window(const TransportTraits& traits, std::size_t peers) {
  const auto share = static_cast<std::uint32_t>(traits.receive_slots / 2 / std::max<std::size_t>(peers, 1));
  return std::clamp(share, kLeastWindow, kFirstWindow);
}

}  // namespace

Messenger::Messenger(Options options, MessengerEvents& events)
    : options_(std::move(options)), events_(events), peers_(options_.nonces.size()) {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    peers_[rank].rank = static_cast<Rank>(rank);
    peers_[rank].nonce_check = static_cast<std::uint32_t>(options_.nonces[rank]);
  }
  for (Transport* transport : options_.transports) add_transport(*transport);
}

Messenger::~Messenger() = default;

void Messenger::add_transport(Transport& transport) { inlets_.push_back(std::make_unique<Inlet>(*this, transport)); }

Messenger::Inlet& Messenger::inlet_of(const Transport& route) {
  for (const auto& inlet : inlets_) {
    if (&inlet->route == &route) return *inlet;
  }
  NEURON_CHECK(false, "a transport that was not given at construction");
}

void Messenger::use_route(Rank rank, Transport& route) {
  Peer& peer = peer_of(rank);
  if (peer.route == &route || peer.is_lost) return;
  const bool is_other_way = peer.route != nullptr;
  if (!is_other_way) active_.push_back(rank);
  Inlet& inlet = inlet_of(route);
  peer.route = &route;
  peer.bulk = inlet.traits.bulk;
  peer.said_hello = false;
  peer.heard_hello = peer.hello_route == &route;  // the peer may have been quicker
  if (!peer.heard_hello) peer.credits = 0;
  if (peer.window == 0) {
    peer.window = peer.owed = first_window(inlet.traits, peers_.size() - 1);
    inlet.window += peer.window;
  } else if (is_other_way) {
    peer.owed = peer.window - std::min(peer.window, peer.unmatched);  // credit that was told the other way is void
  }
  greet(peer);
}

/// The first message says that we know the peer, and hands over its first credit.
void Messenger::greet(Peer& peer) {
  if (peer.said_hello || !peer.route->is_connected(peer.rank)) return;
  Header header;
  header.kind = MessageKind::hello;
  peer.said_hello = transmit(peer, header, {}) == Posted::done;
}

void Messenger::lose_peer(Rank rank, const Status& why) {
  Peer& peer = peer_of(rank);
  if (peer.is_lost) return;
  peer.is_lost = true;
  peer.loss = why;
  queued_control_ -= peer.control.size();
  peer.control.clear();
  outgoing_.for_each([&](std::uint32_t handle, Outgoing& outgoing) {
    if (outgoing.peer != rank) return;
    if (outgoing.block.is_valid()) {
      outgoing.route->return_block(outgoing.block);
      --inlet_of(*outgoing.route).staging;
    }
    if (outgoing.post != nullptr) outgoing.post->state = SendPost::State::idle;
    outgoing_.erase(handle);
  });
  incoming_.for_each([&](std::uint32_t handle, Incoming& incoming) {
    if (incoming.peer != rank) return;
    if (incoming.post != nullptr) incoming.post->state = ReceivePost::State::idle;
    finish_landing(peer, *incoming.route, incoming.block);
    incoming_.erase(handle);
  });
  std::erase_if(waiting_for_staging_, [&](const Granted& granted) {
    if (granted.writing.peer == rank) granted.post->state = SendPost::State::idle;
    return granted.writing.peer == rank;
  });
  for (const auto& inlet : inlets_) inlet->route.disconnect(rank);
  peer.blocks_staged = 0;
  if (peer.route != nullptr) inlet_of(*peer.route).window -= peer.window;
  peer.window = 0;
}

Posted Messenger::transmit(Peer& peer, Header& header, std::span<const std::byte> payload) {
  header.nonce_check = peer.nonce_check;
  header.source = static_cast<std::uint32_t>(options_.rank);
  header.generation = options_.generation;
  header.credits = static_cast<std::uint16_t>(std::min<std::uint32_t>(peer.owed, UINT16_MAX));
  if (peer.is_starved) header.flags |= flag::kStarved;
  const Posted posted = peer.route->send(peer.rank, header, payload);
  if (posted == Posted::done) peer.owed -= header.credits;
  return posted;
}

void Messenger::control(Peer& peer, Header header, std::span<const std::byte> payload) {
  if (peer.is_lost) return;
  if (peer.control.empty() && peer.said_hello && transmit(peer, header, payload) == Posted::done) return;
  peer.control.push_back({header, {payload.begin(), payload.end()}});
  ++queued_control_;
  if (peer.route != nullptr || peer.connection_requested) return;
  peer.connection_requested = true;
  events_.on_connection_needed(peer.rank);
}

void Messenger::send_control(Rank rank, const Header& header, std::span<const std::byte> payload) {
  control(peer_of(rank), header, payload);
}

bool Messenger::flush_control(Peer& peer) {
  bool moved = false;
  while (!peer.control.empty() && peer.said_hello) {
    PendingControl& pending = peer.control.front();
    if (transmit(peer, pending.header, pending.payload) != Posted::done) break;
    peer.control.pop_front();
    --queued_control_;
    moved = true;
  }
  return moved;
}

void Messenger::return_credit(Peer& peer) {
  grow_window(peer);
  if (peer.owed == 0 || peer.owed * 4 < peer.window || !peer.control.empty()) return;
  Header header;
  header.kind = MessageKind::credit;
  control(peer, header, {});
}

/// Credit doubles while arrivals find posted receives, up to half the receive queue over all peers.
void Messenger::grow_window(Peer& peer) {
  if (peer.promptly_matched < peer.window || peer.unmatched > 0 || peer.window * 2 > kMaxWindow) return;
  Inlet& inlet = inlet_of(*peer.route);
  if (inlet.window + peer.window > inlet.traits.receive_slots / 2) return;
  peer.promptly_matched = 0;
  peer.owed += peer.window;
  inlet.window += peer.window;
  peer.window *= 2;
}

bool Messenger::progress() {
  bool moved = false;
  // NOLINTBEGIN(modernize-loop-convert): both lists may grow meanwhile, which iterators do not survive
  for (std::size_t i = 0; i < inlets_.size(); ++i) {  // a lost peer may add a transport
    Inlet& inlet = *inlets_[i];
    moved |= inlet.route.poll(inlet);
  }
  moved |= advance_writings();
  for (std::size_t i = 0; i < active_.size(); ++i) {  // greeting may add peers
    Peer& peer = peer_of(active_[i]);
    if (!peer.is_lost) moved |= move_waiting(peer);
  }
  // NOLINTEND(modernize-loop-convert)
  return moved;
}

bool Messenger::move_waiting(Peer& peer) {
  if (!peer.said_hello) {
    greet(peer);
    if (!peer.said_hello) return false;
  }
  bool moved = false;
  if (!peer.control.empty()) moved |= flush_control(peer);
  if (!peer.queue.is_empty()) moved |= pump(peer);
  while (!peer.waiting_for_block.is_empty()) {
    ReceivePost& post = peer.waiting_for_block.front();
    post.unlink();
    if (!grant_landing(peer, post)) {
      peer.waiting_for_block.push_back(post);
      break;
    }
    moved = true;
  }
  if (peer.owed > 0) return_credit(peer);
  return moved;
}

}  // namespace neuron
