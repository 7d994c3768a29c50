#include "transport/shared_memory/endpoint.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "transport/base/check.h"

namespace neuron::shared_memory {
namespace {

// One poll delivers at most this many messages, and from one peer at most so many in a row: with 8 KiB copied for each,
// about 50 us.
constexpr int kMessagesPerPoll = 64;
constexpr int kMessagesPerTurn = 16;

Status check(const Options& options) {
  if (options.token.empty()) return {Code::invalid_argument, "shared memory needs the job's token"};
  if (options.local_ranks >= 1 && options.local_ranks <= kMaxSlots + 1) return {};
  return {Code::unavailable, "shared memory serves at most " + std::to_string(kMaxSlots + 1) +
                                 " ranks on one host, this one has " + std::to_string(options.local_ranks)};
}

}  // namespace

Status probe() { return Arena::create(0, 1, Layout::for_slots(1)).status(); }

Result<std::unique_ptr<Endpoint>> Endpoint::create(Options options, const Doorbell& doorbell,
                                                   std::optional<Listener> listener) {
  const Status sane = check(options);
  if (!sane.is_ok()) return sane;
  const auto slots = std::max<std::uint32_t>(options.local_ranks - 1, 1);
  auto arena = Arena::create(options.rank, options.nonce, Layout::for_slots(slots));
  if (!arena.is_ok()) return arena.status();
  Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  const Nanoseconds timeout = options.handover_timeout;

  std::unique_ptr<Endpoint> made(new Endpoint(std::move(options), std::move(*arena), std::move(pidfd)));
  Host host{{made->options_.rank, made->options_.nonce},
            made->options_.token,
            made->arena_,
            made->slots_,
            doorbell.descriptor(),
            made->pidfd_.number()};
  auto handover = Handover::create(std::move(host), doorbell, timeout, std::move(listener));
  if (!handover.is_ok()) return handover.status();
  made->handover_ = std::move(*handover);
  return made;
}

Endpoint::Endpoint(Options options, Arena arena, Descriptor pidfd)
    : options_(std::move(options)),
      arena_(std::move(arena)),
      pidfd_(std::move(pidfd)),
      pool_(arena_),
      slots_(arena_.layout().slots, [this](std::uint32_t index) {
        word_at(arena_.at(arena_.layout().consumed_offset(index))).store(0, std::memory_order_relaxed);
        word_at(arena_.at(arena_.layout().ring_offset(index))).store(0, std::memory_order_relaxed);
      }) {}

Endpoint::~Endpoint() {
  if (!arena_.is_inherited()) return;
  // A forked child has neither the thread nor the memory, and a mutex may have been copied while it was held.
  [[maybe_unused]] auto* const thread = handover_.release();
  [[maybe_unused]] auto* const peers = new auto(std::move(peers_));
  [[maybe_unused]] auto* const buried = new auto(std::move(buried_));
}

TransportTraits Endpoint::traits() const {
  return {"shared_memory", BulkMode::pull, kMessagesPerRing * arena_.layout().slots, arena_.layout().blocks(), true};
}

Status Endpoint::connect(Rank peer, std::span<const std::byte> address) {
  const auto decoded = decode_address(address);
  if (!decoded.is_ok()) return decoded.status();
  if (decoded->owner.rank != peer || peer == options_.rank) {
    return {Code::invalid_argument,
            "this shared memory address belongs to rank " + std::to_string(decoded->owner.rank)};
  }
  if (!is_connected(peer)) handover_->connect(*decoded);
  return {};
}

void Endpoint::disconnect(Rank peer) {
  handover_->forget(peer);
  std::erase_if(losses_, [peer](const Loss& loss) { return loss.peer == peer; });
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  found->second->is_lost = true;
  buried_.push_back(std::move(found->second));
  peers_.erase(found);
  if (!is_polling_) bury();
}

void Endpoint::bury() {
  if (buried_.empty()) return;
  std::erase_if(polled_, [](const Peer* peer) { return peer->is_lost; });
  buried_.clear();
}

Posted Endpoint::send(Rank rank, const Header& header, std::span<const std::byte> payload) {
  NEURON_CHECK(payload.size() <= kEagerBytes, "a message is larger than kEagerBytes");
  const auto found = peers_.find(rank);
  if (found == peers_.end()) return Posted::lost;
  Peer& peer = *found->second;
  switch (peer.outbox.write(header, payload)) {
    case RingWriter::Outcome::full:
      return Posted::again;
    case RingWriter::Outcome::corrupted:
      lose(peer, {Code::peer_lost, "rank " + std::to_string(rank) + " says that it read what was never sent to it"});
      return Posted::lost;
    case RingWriter::Outcome::done:
      break;
  }
  if (peer.asleep.load(std::memory_order_seq_cst) != kAwake) Doorbell::ring(peer.doorbell.number());
  ++peer.traffic->messages;
  peer.traffic->bytes += payload.size();
  return Posted::done;
}

const std::byte* Endpoint::view(Rank peer, const SharedBlock& block, std::size_t bytes) {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : find_block(found->second->arena, block, bytes);
}

bool Endpoint::is_current(Rank peer, const SharedBlock& block) {
  const auto found = peers_.find(peer);
  return found != peers_.end() && is_block_current(found->second->arena, block);
}

RemoteBlock Endpoint::expose(const Block&) {
  NEURON_CHECK(false, "nobody writes into this process's shared memory: blocks are pulled");
}

Posted Endpoint::write(Rank, const Block&, std::size_t, const RemoteBlock&, std::uint32_t, std::uint64_t) {
  NEURON_CHECK(false, "a rank never writes another's shared memory: blocks are pulled");
}

bool Endpoint::poll(TransportEvents& events) {
  bool happened = !losses_.empty();
  is_polling_ = true;
  if (handover_->has_arrivals()) {
    take_arrivals();
    happened = true;
  }
  const std::size_t count = polled_.size();
  if (first_ >= count) first_ = 0;
  int budget = kMessagesPerPoll;
  for (std::size_t i = 0, at = first_; i < count && budget > 0; ++i) {
    Peer& peer = *polled_[at];
    if (++at == count) at = 0;
    const int delivered = drain(peer, events);
    if (delivered == 0) continue;
    happened = true;
    budget -= delivered;
    first_ = at;
  }
  report_losses(events);
  is_polling_ = false;
  bury();
  return happened;
}

// Returns how many messages were there; a broken one counts.
int Endpoint::drain(Peer& peer, TransportEvents& events) {
  int delivered = 0;
  for (; delivered < kMessagesPerTurn && !peer.is_lost; ++delivered) {
    Header header;
    std::span<const std::byte> payload;
    const auto outcome = peer.inbox.read(header, payload);
    if (outcome == RingReader::Outcome::none) break;
    if (outcome == RingReader::Outcome::corrupted) {
      lose(peer, {Code::peer_lost, "the outbox of rank " + std::to_string(peer.identity.rank) + " is corrupted"});
      return delivered + 1;
    }
    events.on_message(peer.identity.rank, header, payload);
    const bool has_told = peer.inbox.advance();
    if (has_told && peer.asleep.load(std::memory_order_seq_cst) == kAsleepForRoom)
      Doorbell::ring(peer.doorbell.number());
  }
  return delivered;
}

void Endpoint::lose(Peer& peer, const Status& why) {
  const Rank rank = peer.identity.rank;
  disconnect(rank);
  losses_.push_back({rank, why});
}

void Endpoint::report_losses(TransportEvents& events) {
  for (const auto& loss : std::exchange(losses_, {})) events.on_peer_lost(loss.peer, loss.why);
}

void Endpoint::take_arrivals() {
  for (auto& arrival : handover_->take_arrivals()) {
    if (arrival.peer != nullptr) {
      add(std::move(arrival.peer));
    } else {
      losses_.push_back({arrival.rank, std::move(arrival.why)});
    }
  }
}

void Endpoint::add(std::unique_ptr<Peer> peer) {
  const Rank rank = peer->identity.rank;
  if (peers_.contains(rank)) return;
  peer->traffic = &traffic_[rank];
  if (options_.on_pidfd && peer->pidfd.is_valid()) {
    const int copy = ::fcntl(peer->pidfd.number(), F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) options_.on_pidfd(rank, copy);
  }
  polled_.push_back(peer.get());
  peers_.emplace(rank, std::move(peer));
}

bool Endpoint::arm() {
  const bool wants_room =
      std::any_of(polled_.begin(), polled_.end(), [](const Peer* peer) { return peer->outbox.wants_room(); });
  arena_.control().asleep.store(wants_room ? kAsleepForRoom : kAsleep, std::memory_order_seq_cst);
  if (!has_something()) return true;
  disarm();
  return false;
}

void Endpoint::disarm() { arena_.control().asleep.store(kAwake, std::memory_order_seq_cst); }

bool Endpoint::has_something() {
  if (!losses_.empty() || handover_->has_arrivals()) return true;
  return std::any_of(polled_.begin(), polled_.end(),
                     [](Peer* peer) { return peer->inbox.has_record() || peer->outbox.has_found_room(); });
}

TrafficCount Endpoint::traffic(Rank peer) const {
  const auto found = traffic_.find(peer);
  return found == traffic_.end() ? TrafficCount{} : found->second;
}

}  // namespace neuron::shared_memory
