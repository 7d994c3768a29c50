// The sending half of the Messenger.
#include <algorithm>
#include <cstring>

#include "transport/base/check.h"
#include "transport/base/decode.h"
#include "transport/messaging/inlet.h"
#include "transport/messaging/messenger.h"

namespace neuron {

void Messenger::post_send(SendPost& post) {
  NEURON_CHECK(post.state == SendPost::State::idle && post.source.bytes <= kBlockBytes,
               "send posted twice or too large");
  Peer& peer = peer_of(post.key.peer);
  post.is_wanted = false;
  if (peer.queue.is_empty() && start(peer, post)) return;
  if (wanted_.take(post.key)) {
    post.is_wanted = true;
    if (start(peer, post)) return;
  }
  enqueue(peer, post);
}

/// A wanted message goes first: those before it may wait for credit that only other operations return.
void Messenger::enqueue(Peer& peer, SendPost& post) {
  post.state = SendPost::State::queued;
  queued_.insert(post);
  if (post.is_wanted) {
    peer.queue.push_front(post);
  } else {
    peer.queue.push_back(post);
  }
  if (peer.route != nullptr || peer.connection_requested || peer.is_lost) return;
  peer.connection_requested = true;
  events_.on_connection_needed(peer.rank);
}

void Messenger::dequeue(SendPost& post) {
  if (post.state != SendPost::State::queued) return;
  queued_.erase(post);
  post.unlink();
  post.state = SendPost::State::idle;
}

bool Messenger::pump(Peer& peer) {
  bool moved = false;
  while (!peer.queue.is_empty() && start(peer, peer.queue.front())) moved = true;
  return moved;
}

/// Sends or announces the message if credit, quota and transport allow. True: it is out of the queue.
bool Messenger::start(Peer& peer, SendPost& post) {
  if (!peer.heard_hello || !peer.said_hello || peer.is_lost) return false;
  if (!post.is_wanted && peer.credits == 0) return false;
  if (post.source.bytes <= kEagerBytes) return start_eager(peer, post, !post.is_wanted);
  if (peer.bulk == BulkMode::pull) return start_pull(peer, post, !post.is_wanted);
  return start_announce(peer, post, !post.is_wanted);
}

namespace {

Header header_of(const SendPost& post, MessageKind kind, bool needs_credit) {
  Header header;
  header.kind = kind;
  header.length = post.message_bytes;
  header.fingerprint = post.fingerprint;
  post.key.write_to(header);
  if (!needs_credit) header.flags |= flag::kUncredited;
  return header;
}

}  // namespace

bool Messenger::start_eager(Peer& peer, SendPost& post, bool needs_credit) {
  Header header = header_of(post, MessageKind::eager, needs_credit);
  if (transmit(peer, header, {post.source.address, post.source.bytes}) != Posted::done) return false;
  if (needs_credit) --peer.credits;
  dequeue(post);
  events_.on_sent(post);
  return true;
}

/// A quarter of the pool is left for wanted messages, and half of it for landing where the transport needs landing.
std::optional<Block> Messenger::take_staging(Peer& peer, bool is_wanted) {
  Inlet& inlet = inlet_of(*peer.route);
  const std::size_t usable =
      peer.bulk == BulkMode::pull ? inlet.traits.blocks : inlet.traits.blocks - inlet.landing_limit();
  const std::size_t limit = is_wanted ? usable : usable - usable / 4;
  auto block = inlet.staging < limit ? peer.route->take_block() : std::nullopt;
  if (block) ++inlet.staging;
  return block;
}

bool Messenger::start_pull(Peer& peer, SendPost& post, bool needs_credit) {
  if (!post.block.is_valid()) {
    const std::size_t quota = needs_credit ? kBlocksInFlightPerPeer : 2 * kBlocksInFlightPerPeer;
    if (peer.blocks_staged >= quota) return false;
    const auto block = take_staging(peer, !needs_credit);
    if (!block) {
      if (peer.is_starved) return false;
      peer.is_starved = true;  // no block of this pool may come back before the peer has said what it waits for
      Header header;
      header.kind = MessageKind::credit;
      control(peer, header, {});
      return false;
    }
    post.block = *block;
    std::memcpy(post.block.address, post.source.address, post.source.bytes);
  }
  peer.is_starved = false;
  Header header = header_of(post, MessageKind::announce, needs_credit);
  const SharedBlock shared = peer.route->share(post.block);
  header.slot = outgoing_.insert({nullptr, peer.rank, peer.route, post.block});
  if (transmit(peer, header, std::as_bytes(std::span(&shared, 1))) != Posted::done) {
    outgoing_.erase(header.slot);
    return false;
  }
  if (needs_credit) --peer.credits;
  ++peer.blocks_staged;
  peer.route->count_bulk(peer.rank, post.source.bytes);
  post.block = {};
  dequeue(post);
  events_.on_sent(post);
  return true;
}

bool Messenger::start_announce(Peer& peer, SendPost& post, bool needs_credit) {
  if (outgoing_.is_full()) return false;
  Header header = header_of(post, MessageKind::announce, needs_credit);
  header.slot = outgoing_.insert({&post, peer.rank, peer.route, {}});
  if (transmit(peer, header, {}) != Posted::done) {
    outgoing_.erase(header.slot);
    return false;
  }
  if (needs_credit) --peer.credits;
  dequeue(post);
  post.state = SendPost::State::announced;
  post.transfer = header.slot;
  return true;
}

void Messenger::on_want(Peer& peer, const Header& header) {
  const MessageKey key = MessageKey::of(header, peer.rank);
  SendPost* post = queued_.find(key);
  if (post == nullptr) {
    wanted_.add(key);
    return;
  }
  post->is_wanted = true;
  if (start(peer, *post)) return;
  post->unlink();  // no room in the transport: first in the queue
  peer.queue.push_front(*post);
}

void Messenger::on_grant(Peer& peer, Transport& route, const Header& header, std::span<const std::byte> payload) {
  Decoder decoder(payload);
  Writing writing;
  writing.peer = peer.rank;
  writing.route = &route;
  writing.remote.address = decoder.number<std::uint64_t>();
  writing.remote.key = decoder.number<std::uint64_t>();
  writing.transfer = header.slot;
  const auto handle = decoder.number<std::uint32_t>();
  Outgoing* outgoing = decoder.is_finished() ? outgoing_.find(handle) : nullptr;
  if (outgoing == nullptr || outgoing->post == nullptr || outgoing->peer != peer.rank) {
    return withdraw(peer, writing.transfer);  // cancelled meanwhile
  }
  SendPost& post = *outgoing->post;
  outgoing_.erase(handle);
  writing.bytes = post.source.bytes;
  post.state = SendPost::State::granted;
  if (!start_writing(post, writing)) waiting_for_staging_.push_back({&post, writing});
}

/// Tells the receiver that its granted block stays empty, so that it can use it again.
void Messenger::withdraw(Peer& peer, std::uint32_t transfer) {
  Header header;
  header.kind = MessageKind::data;
  header.slot = transfer;
  control(peer, header, {});
}

bool Messenger::start_writing(SendPost& post, Writing writing) {
  const auto block = take_staging(peer_of(writing.peer), true);
  if (!block) return false;
  writing.block = *block;
  std::memcpy(block->address, post.source.address, writing.bytes);
  post.state = SendPost::State::idle;
  events_.on_sent(post);
  if (!advance(writing)) writings_.push_back(writing);
  return true;
}

/// True: nothing is left to do for it here.
bool Messenger::advance(Writing& writing) {
  Inlet& inlet = inlet_of(*writing.route);
  const auto finish = [&] {
    writing.route->return_block(writing.block);
    --inlet.staging;
    return true;
  };
  Peer& peer = peer_of(writing.peer);
  if (peer.is_lost) return finish();
  if (inlet.traits.bulk == BulkMode::write) {
    if (posted_writes_.is_full()) return false;
    const std::uint32_t cookie = posted_writes_.insert(writing.block);
    const std::uint32_t immediate = writing.transfer << 8;  // stripe 0: one stripe a block
    switch (writing.route->write(writing.peer, writing.block, writing.bytes, writing.remote, immediate, cookie)) {
      case Posted::done:
        return true;
      case Posted::again:
        posted_writes_.erase(cookie);
        return false;
      case Posted::lost:
        posted_writes_.erase(cookie);
        return finish();
    }
  }
  while (writing.offset < writing.bytes) {
    Header header;
    header.kind = MessageKind::data;
    header.slot = writing.transfer;
    header.tag = writing.offset;
    const std::size_t piece = std::min(kEagerBytes, writing.bytes - writing.offset);
    header.length = piece;
    const Posted posted = transmit(peer, header, {writing.block.address + writing.offset, piece});
    if (posted == Posted::again) return false;
    if (posted == Posted::lost) break;
    writing.offset += piece;
  }
  return finish();
}

bool Messenger::advance_writings() {
  bool moved = false;
  for (std::size_t left = writings_.size(); left > 0; --left) {
    Writing writing = writings_.front();
    writings_.pop_front();
    const std::size_t before = writing.offset;
    if (advance(writing)) {
      moved = true;
    } else {
      moved |= writing.offset != before;
      writings_.push_back(writing);
    }
  }
  while (!waiting_for_staging_.empty()) {
    const Granted granted = waiting_for_staging_.front();
    if (!start_writing(*granted.post, granted.writing)) break;
    waiting_for_staging_.pop_front();
    moved = true;
  }
  return moved;
}

void Messenger::on_write_done(Transport& route, std::uint64_t cookie) {
  Block* block = posted_writes_.find(static_cast<std::uint32_t>(cookie));
  if (block == nullptr) return;
  route.return_block(*block);
  --inlet_of(route).staging;
  posted_writes_.erase(static_cast<std::uint32_t>(cookie));
}

void Messenger::on_done(Peer& peer, Transport& route, const Header& header) {
  Outgoing* outgoing = outgoing_.find(header.slot);
  if (outgoing == nullptr || outgoing->peer != peer.rank || !outgoing->block.is_valid()) return;
  route.return_block(outgoing->block);
  --inlet_of(route).staging;
  --peer.blocks_staged;
  outgoing_.erase(header.slot);
}

void Messenger::cancel(SendPost& post) {
  Peer& peer = peer_of(post.key.peer);
  if (post.state == SendPost::State::announced && outgoing_.find(post.transfer) != nullptr)
    outgoing_.erase(post.transfer);
  std::erase_if(waiting_for_staging_, [&](const Granted& granted) {
    if (granted.post == &post) withdraw(peer, granted.writing.transfer);
    return granted.post == &post;
  });
  dequeue(post);
  if (post.block.is_valid()) {
    peer.route->return_block(post.block);
    --inlet_of(*peer.route).staging;
    post.block = {};
  }
  post.state = SendPost::State::idle;
}

}  // namespace neuron
