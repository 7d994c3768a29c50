// The receiving half of the Messenger.
#include <algorithm>
#include <cstring>

#include "transport/base/check.h"
#include "transport/base/decode.h"
#include "transport/base/log.h"
#include "transport/messaging/inlet.h"
#include "transport/messaging/messenger.h"

namespace neuron {
namespace {

/// The pieces that a granted message of `bytes` arrives in, one bit each.
std::uint64_t all_pieces(BulkMode bulk, std::size_t bytes) {
  if (bulk == BulkMode::write) return 1;  // one stripe
  const std::size_t pieces = (bytes + kEagerBytes - 1) / kEagerBytes;
  return pieces >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << pieces) - 1;
}
static_assert(kBlockBytes <= 64 * kEagerBytes);

}  // namespace

void Messenger::on_message(Transport& route, Rank source, const Header& header, std::span<const std::byte> payload) {
  if (source < 0 || static_cast<std::size_t>(source) >= peers_.size()) return;
  const auto own_check = static_cast<std::uint32_t>(options_.nonces[static_cast<std::size_t>(options_.rank)]);
  if (header.nonce_check != own_check) return;  // meant for a process that is no more
  Peer& peer = peer_of(source);
  if (peer.is_lost) return;
  if (header.kind == MessageKind::hello) {
    if (peer.hello_route != nullptr && peer.hello_route != &route) peer.credits = 0;  // that was for the other way
    peer.hello_route = &route;
  }
  // The way by which a peer greets works; one that has not been greeted by may not.
  if (peer.route == nullptr || (header.kind == MessageKind::hello && !peer.heard_hello)) use_route(source, route);
  peer.credits += header.credits;
  peer.says_starved = (header.flags & flag::kStarved) != 0;
  switch (header.kind) {
    case MessageKind::hello:
      peer.heard_hello = peer.route == &route;
      break;
    case MessageKind::eager:
    case MessageKind::announce:
      on_arrival(peer, route, header, payload);
      break;
    case MessageKind::grant:
      on_grant(peer, route, header, payload);
      break;
    case MessageKind::data:
      on_data(peer, header, payload);
      break;
    case MessageKind::done:
      on_done(peer, route, header);
      break;
    case MessageKind::credit:
      break;
    case MessageKind::want:
      on_want(peer, header);
      break;
    case MessageKind::question:
      events_.on_question(source, header, payload);
      break;
    case MessageKind::answer:
      events_.on_answer(source, header, payload);
      break;
    case MessageKind::refuse:
      events_.on_refused(source, header, payload);
      break;
    case MessageKind::invalid:
      break;
  }
  if (peer.says_starved) peer.posted.for_each([&](ReceivePost& post) { want(peer, post); });
}

void Messenger::on_arrival(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload) {
  const MessageKey key = MessageKey::of(header, peer.rank);
  if (ReceivePost* post = posted_.find(key)) {
    unpost(peer, *post);
    release_slot(peer, header, true);
    meet(peer, *post, route, header, payload);
    return;
  }
  const bool is_late = late_.take(key);
  if (is_late || events_.on_unmatched(peer.rank, header) == Disposition::drop) {
    release_slot(peer, header, false);
    drop(peer, route, header, payload, is_late);
    return;
  }
  if (arrivals_.find(key) == nullptr) hold_unmatched(peer, route, header, payload);
}

void Messenger::hold_unmatched(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload) {
  const bool was_under_pressure = peer.is_under_pressure();
  arrivals_.add(route, peer.rank, header, payload);
  ++peer.unmatched;
  if (header.kind == MessageKind::announce) ++peer.unmatched_blocks;
  if (!was_under_pressure && peer.is_under_pressure()) {
    peer.posted.for_each([&](ReceivePost& post) { want(peer, post); });
  }
}

void Messenger::release_slot(Peer& peer, const Header& header, bool was_prompt) {
  if ((header.flags & flag::kUncredited) != 0) return;
  ++peer.owed;
  if (was_prompt) ++peer.promptly_matched;
}

void Messenger::unpost(Peer& /*peer*/, ReceivePost& post) {
  posted_.erase(post);
  post.unlink();
  post.state = ReceivePost::State::idle;
}

void Messenger::post_receive(ReceivePost& post) {
  NEURON_CHECK(post.state == ReceivePost::State::idle && post.target.bytes <= kBlockBytes,
               "receive posted twice or too large");
  Peer& peer = peer_of(post.key.peer);
  post.was_wanted = false;
  if (Unexpected* found = arrivals_.find(post.key)) {
    auto message = arrivals_.take(*found);
    --peer.unmatched;
    if (message->header.kind == MessageKind::announce) --peer.unmatched_blocks;
    release_slot(peer, message->header, false);
    meet(peer, post, *message->route, message->header, message->payload);
    arrivals_.recycle(std::move(message));
    return;
  }
  post.state = ReceivePost::State::posted;
  posted_.insert(post);
  peer.posted.push_back(post);
  if (peer.is_under_pressure()) want(peer, post);
  if (peer.route != nullptr || peer.connection_requested || peer.is_lost) return;
  peer.connection_requested = true;  // the sender may be waiting for us to be reachable
  events_.on_connection_needed(peer.rank);
}

void Messenger::want(Peer& peer, ReceivePost& post) {
  if (post.was_wanted) return;
  post.was_wanted = true;
  Header header;
  header.kind = MessageKind::want;
  post.key.write_to(header);
  control(peer, header, {});
}

/// A message and its receive are together.
void Messenger::meet(Peer& peer, ReceivePost& post, Transport& route, const Header& header,
                     std::span<const std::byte> payload) {
  const bool is_announced = header.kind == MessageKind::announce;
  post.route = &route;
  post.header = header;
  if (header.length != post.message_bytes || header.fingerprint != post.fingerprint ||
      (!is_announced && payload.size() != post.target.bytes)) {
    drop(peer, route, header, payload, false);
    events_.on_mismatch(post, header);
    return;
  }
  if (!is_announced) {
    if (!post.is_lent() && !payload.empty()) std::memcpy(post.target.address, payload.data(), payload.size());
    events_.on_received(post, payload);
    return;
  }
  if (inlet_of(route).traits.bulk == BulkMode::pull) {
    read_shared(peer, post, payload);
  } else {
    request_landing(peer, post);
  }
}

/// Pull: reads the sender's block in place.
void Messenger::read_shared(Peer& peer, ReceivePost& post, std::span<const std::byte> payload) {
  Transport& route = *post.route;
  const std::size_t bytes = post.target.bytes;
  if (payload.size() != sizeof(SharedBlock)) return events_.on_view_lost(post);
  std::memcpy(&post.shared, payload.data(), sizeof(SharedBlock));
  const std::byte* view = route.view(peer.rank, post.shared, bytes);
  if (view == nullptr) {
    events_.on_view_lost(post);
    return;
  }
  if (!post.is_lent()) std::memcpy(post.target.address, view, bytes);
  bool is_current = post.is_lent() || route.is_current(peer.rank, post.shared);
  if (is_current) events_.on_received(post, {view, bytes});
  if (post.state == ReceivePost::State::kept && post.copy == nullptr) return;
  is_current = is_current && route.is_current(peer.rank, post.shared);
  send_done(peer, route, post.header, post.shared);
  if (!is_current) events_.on_view_lost(post);
}

void Messenger::send_done(Peer& peer, Transport& /*route*/, const Header& announce, const SharedBlock& shared) {
  Header header;
  header.kind = MessageKind::done;
  header.slot = announce.slot;
  header.sequence = shared.generation;
  control(peer, header, {});
}

void Messenger::request_landing(Peer& peer, ReceivePost& post) {
  if (peer.waiting_for_block.is_empty() && grant_landing(peer, post)) return;
  post.state = ReceivePost::State::waiting_for_block;
  peer.waiting_for_block.push_back(post);
}

bool Messenger::grant_landing(Peer& peer, ReceivePost& post) {
  Inlet& inlet = inlet_of(*post.route);
  if (peer.blocks_granted >= kBlocksInFlightPerPeer || inlet.landing >= inlet.landing_limit() || incoming_.is_full()) {
    return false;
  }
  const auto block = post.route->take_block();
  if (!block) return false;
  ++inlet.landing;
  ++peer.blocks_granted;
  post.landing =
      incoming_.insert({&post, peer.rank, post.route, *block, 0, all_pieces(inlet.traits.bulk, post.target.bytes)});
  post.state = ReceivePost::State::landing;
  const RemoteBlock remote = inlet.traits.bulk == BulkMode::write ? post.route->expose(*block) : RemoteBlock{};
  Header header;
  header.kind = MessageKind::grant;
  header.slot = post.landing;
  std::array<std::byte, 20> payload{};
  std::memcpy(payload.data(), &remote.address, 8);
  std::memcpy(payload.data() + 8, &remote.key, 8);
  std::memcpy(payload.data() + 16, &post.header.slot, 4);
  control(peer, header, payload);
  return true;
}

void Messenger::on_written(Transport& /*route*/, std::uint32_t immediate) {
  const std::uint32_t handle = immediate >> 8;
  Incoming* incoming = incoming_.find(handle);
  if (incoming == nullptr) return;
  incoming->arrived |= std::uint64_t{1} << (immediate & 0x3F);
  if (incoming->arrived == incoming->expected) land(handle, *incoming);
}

void Messenger::on_data(Peer& peer, const Header& header, std::span<const std::byte> payload) {
  Incoming* incoming = incoming_.find(header.slot);
  if (incoming == nullptr || incoming->peer != peer.rank) return;
  if (header.length == 0) return on_withdrawn(peer, header.slot, *incoming);
  const std::uint64_t piece = header.tag / kEagerBytes;
  const bool is_piece = header.tag < kBlockBytes && header.tag % kEagerBytes == 0 && payload.size() == header.length;
  if (!is_piece || payload.size() > kBlockBytes - header.tag) return;
  std::memcpy(incoming->block.address + header.tag, payload.data(), payload.size());
  incoming->arrived |= std::uint64_t{1} << piece;
  if (incoming->arrived == incoming->expected) land(header.slot, *incoming);
}

void Messenger::on_withdrawn(Peer& peer, std::uint32_t handle, const Incoming& incoming) {
  ReceivePost* post = incoming.post;
  finish_landing(peer, *incoming.route, incoming.block);
  incoming_.erase(handle);
  if (post == nullptr) return;
  post->state = ReceivePost::State::idle;
  events_.on_withdrawn(*post);
}

/// Everything of a granted transfer is in its block.
void Messenger::land(std::uint32_t handle, Incoming& incoming) {
  const Block block = incoming.block;
  Transport& route = *incoming.route;
  Peer& peer = peer_of(incoming.peer);
  ReceivePost* post = incoming.post;
  incoming_.erase(handle);
  if (post == nullptr) return finish_landing(peer, route, block);
  post->state = ReceivePost::State::idle;
  post->block = block;
  const std::size_t bytes = post->target.bytes;
  if (!post->is_lent()) std::memcpy(post->target.address, block.address, bytes);
  events_.on_received(*post, {block.address, bytes});
  if (post->state == ReceivePost::State::kept && post->copy == nullptr) return;
  post->block = {};
  finish_landing(peer, route, block);
}

void Messenger::finish_landing(Peer& peer, Transport& route, const Block& block) {
  route.return_block(block);
  --inlet_of(route).landing;
  --peer.blocks_granted;
}

const std::byte* Messenger::keep(ReceivePost& post, std::span<const std::byte> view) {
  Peer& peer = peer_of(post.key.peer);
  Inlet& inlet = inlet_of(*post.route);
  post.state = ReceivePost::State::kept;
  const bool is_in_block = post.header.kind == MessageKind::announce;
  if (is_in_block && peer.kept * 2 < kBlocksInFlightPerPeer && inlet.kept * 2 < inlet.landing_limit()) {
    ++peer.kept;
    ++inlet.kept;
    post.copy = nullptr;
    return post.view = view.data();
  }
  if (view.size() <= post.small_copy.size()) {
    post.copy = post.small_copy.data();
  } else {
    post.copy = new std::byte[view.size()];
    kept_copies_bytes_ += view.size();
  }
  std::copy(view.begin(), view.end(), post.copy);
  return post.view = post.copy;
}

bool Messenger::give_back(ReceivePost& post) {
  if (post.state != ReceivePost::State::kept) return true;
  post.state = ReceivePost::State::idle;
  if (post.copy != nullptr) {
    if (post.copy != post.small_copy.data()) {
      kept_copies_bytes_ -= post.target.bytes;
      delete[] post.copy;
    }
    post.copy = nullptr;
    return true;
  }
  Peer& peer = peer_of(post.key.peer);
  --peer.kept;
  --inlet_of(*post.route).kept;
  if (post.block.is_valid()) {
    finish_landing(peer, *post.route, post.block);
    post.block = {};
    return true;
  }
  const bool is_current = !peer.is_lost && post.route->is_current(peer.rank, post.shared);
  send_done(peer, *post.route, post.header, post.shared);
  return is_current;
}

void Messenger::cancel(ReceivePost& post) {
  Peer& peer = peer_of(post.key.peer);
  switch (post.state) {
    case ReceivePost::State::idle:
      break;
    case ReceivePost::State::posted:
      unpost(peer, post);
      break;
    case ReceivePost::State::waiting_for_block:
      post.unlink();
      break;
    case ReceivePost::State::landing:
      if (Incoming* incoming = incoming_.find(post.landing))
        incoming->post = nullptr;  // quarantined until it has landed
      break;
    case ReceivePost::State::kept:
      [[maybe_unused]] const bool ignored = give_back(post);
      break;
  }
  post.state = ReceivePost::State::idle;
}

/// Lets go of a message that meets no receive.
void Messenger::drop(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload,
                     bool tell) {
  if (header.kind == MessageKind::announce && inlet_of(route).traits.bulk == BulkMode::pull &&
      payload.size() == sizeof(SharedBlock)) {
    SharedBlock shared;
    std::memcpy(&shared, payload.data(), sizeof shared);
    send_done(peer, route, header, shared);
  }
  if (!tell) return;
  Header answer;
  answer.kind = MessageKind::refuse;
  MessageKey::of(header, peer.rank).write_to(answer);
  answer.slot = 1;
  control(peer, answer, {});
}

void Messenger::drop_arrivals(std::uint64_t group, std::uint32_t epoch) {
  const auto stale = arrivals_.select(
      [&](const Unexpected& message) { return message.key.group == group && message.key.epoch <= epoch; });
  for (Unexpected* found : stale) {
    auto message = arrivals_.take(*found);
    Peer& peer = peer_of(message->key.peer);
    --peer.unmatched;
    if (message->header.kind == MessageKind::announce) --peer.unmatched_blocks;
    if (!peer.is_lost) {
      release_slot(peer, message->header, false);
      drop(peer, *message->route, message->header, message->payload, false);
    }
    arrivals_.recycle(std::move(message));
  }
}

void Messenger::refuse_late(const MessageKey& key) {
  if (Unexpected* found = arrivals_.find(key)) {
    auto message = arrivals_.take(*found);
    Peer& peer = peer_of(key.peer);
    --peer.unmatched;
    if (message->header.kind == MessageKind::announce) --peer.unmatched_blocks;
    release_slot(peer, message->header, false);
    drop(peer, *message->route, message->header, message->payload, true);
    arrivals_.recycle(std::move(message));
    return;
  }
  late_.add(key);
}

}  // namespace neuron
