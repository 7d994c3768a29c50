// Transport: the one interface to what moves bytes between processes (shared memory, libfabric, loopback).
// It knows peers, messages of at most kMessageBytes, and blocks; it knows nothing of groups, matching or credit: the
// Messenger above it does that, once for all transports.
//
// Ownership: the Engine owns its transports. Thread: all calls come from the holder of the engine's baton, one at a
// time, unless a comment says otherwise. Delivery between two ranks is reliable but may be reordered; nothing is
// delivered twice. Failure: a peer that cannot be reached any more is reported once through
// TransportEvents::on_peer_lost.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/rank.h"
#include "transport/base/status.h"
#include "transport/header.h"

namespace neuron {

/// How payloads above kEagerBytes travel.
enum class BulkMode : std::uint8_t {
  pull,      // the receiver reads the sender's block in place (shared memory)
  write,     // the sender writes into a block that the receiver granted, with a 32-bit immediate
  messages,  // the same grant, answered by `data` messages (no remote write)
};

struct TransportTraits {
  std::string name;  // "shared_memory", "net", "efa", ...
  BulkMode bulk = BulkMode::messages;
  std::size_t receive_slots = 256;  // messages that may arrive before the next poll, over all peers
  std::size_t blocks = 64;          // kBlockBytes each, in the pool
  bool rings_doorbell = false;      // arrivals wake a sleeping engine through its Doorbell
};

/// A piece of the transport's own memory of kBlockBytes: staging for what leaves, landing for what arrives. Value; the
/// pool owns the memory.
struct Block {
  std::byte* address = nullptr;
  std::uint32_t index = 0;
  [[nodiscard]] bool is_valid() const { return address != nullptr; }
};

/// What a grant carries so that the peer can write into a block of ours.
struct RemoteBlock {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
};

/// Where a block of ours lies for a peer that reads it (pull).
struct SharedBlock {
  std::uint32_t arena = 0;
  std::uint32_t reserved = 0;
  std::uint64_t offset = 0;      // of the payload, from the arena's start
  std::uint64_t generation = 0;  // of the block when it was announced
};
static_assert(sizeof(SharedBlock) == 24);

/// What the Messenger hears while it polls. Called on the polling thread only.
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  /// A message has arrived. `payload` is valid during the call only.
  virtual void on_message(Rank source, const Header& header, std::span<const std::byte> payload) = 0;
  /// A write of a peer into one of our blocks has landed completely.
  virtual void on_written(std::uint32_t immediate) = 0;
  /// Our own write has left its block, which may be used again. `cookie` as given to write().
  virtual void on_write_done(std::uint64_t cookie, const Status& status) = 0;
  /// `peer` is gone for this transport; no more events about it follow.
  virtual void on_peer_lost(Rank peer, const Status& why) = 0;
};

enum class Posted : std::uint8_t {
  done,   // taken over: the caller's memory is free again (send), or on_write_done follows (write)
  again,  // no room now: poll, then retry
  lost,   // the peer is gone or was never connected; on_peer_lost says why
};

/// Counters for tests and for the user's accounting, per peer.
struct TrafficCount {
  std::uint64_t messages = 0;  // sent, headers only included
  std::uint64_t bytes = 0;     // payload bytes sent: message payloads, writes, and blocks announced for reading
};

class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual TransportTraits traits() const = 0;

  // ---- peers ----
  /// What a peer needs to connect to us: opaque to everyone else, at most 1 KiB.
  [[nodiscard]] virtual std::vector<std::byte> address() const = 0;
  /// Starts to reach `peer`. Idempotent. Done when is_connected(peer); a failure is reported by on_peer_lost.
  virtual Status connect(Rank peer, std::span<const std::byte> address) = 0;
  [[nodiscard]] virtual bool is_connected(Rank peer) const = 0;
  /// Forgets a peer that has died: frees what it held.
  virtual void disconnect(Rank peer) = 0;

  // ---- messages ----
  /// Copies header and payload (at most kEagerBytes) and sends them.
  virtual Posted send(Rank peer, const Header& header, std::span<const std::byte> payload) = 0;

  // ---- blocks ----
  /// A free block, or none. Blocks come from one pool that is made lazily and never exceeds traits().blocks.
  virtual std::optional<Block> take_block() = 0;
  virtual void return_block(const Block& block) = 0;
  /// Pull: makes the block readable and names it; a new generation each time.
  virtual SharedBlock share(const Block& block) = 0;
  /// Pull: `bytes` of a shared block were announced to `peer`; for traffic().
  virtual void count_bulk(Rank /*peer*/, std::size_t /*bytes*/) {}
  /// Pull: the peer's bytes in place, or null when the reference is not inside a mapped arena of that peer.
  virtual const std::byte* view(Rank peer, const SharedBlock& block, std::size_t bytes) = 0;
  /// Pull: whether the owner still stands by that block; asked after the last read.
  virtual bool is_current(Rank peer, const SharedBlock& block) = 0;
  /// Write: what a peer must know to write into the block.
  virtual RemoteBlock expose(const Block& block) = 0;
  /// Write: sends `bytes` from the block's start into the peer's block; the peer hears on_written(immediate).
  virtual Posted write(Rank peer, const Block& from, std::size_t bytes, const RemoteBlock& to, std::uint32_t immediate,
                       std::uint64_t cookie) = 0;

  // ---- progress ----
  /// Delivers what has arrived; bounded work, at most about 50 us. Returns whether anything happened.
  virtual bool poll(TransportEvents& events) = 0;
  /// A descriptor that becomes readable when poll has work, or -1: then the caller polls with sleeps.
  [[nodiscard]] virtual int wait_descriptor() const = 0;
  /// Announces that the engine goes to sleep. False: something has arrived meanwhile, poll again instead.
  virtual bool arm() = 0;
  virtual void disarm() = 0;

  [[nodiscard]] virtual TrafficCount traffic(Rank peer) const = 0;
};

}  // namespace neuron
