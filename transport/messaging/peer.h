// Peer: what the Messenger knows of one other rank: how to reach it, credit in both directions, what waits. A resource
// of the Messenger; one thread: the driver.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "transport/messaging/posts.h"

namespace neuron {

/// A message of our own protocol that the transport had no room for, or that came before the connection.
struct PendingControl {
  Header header;
  std::vector<std::byte> payload;
};

struct Peer {
  Rank rank = kNoRank;
  std::uint32_t nonce_check = 0;
  Transport* route = nullptr;          // by which we send; null: not connected
  BulkMode bulk = BulkMode::messages;  // of the route
  bool connection_requested = false;
  bool said_hello = false;
  bool heard_hello = false;          // on the route
  Transport* hello_route = nullptr;  // by which the peer greeted last
  bool is_lost = false;
  Status loss;

  // Outgoing.
  std::uint32_t credits = 0;        // landing slots that we may use
  bool is_starved = false;          // we have told it that we have no block to stage in
  std::uint32_t blocks_staged = 0;  // pull: announced and not yet read
  IntrusiveList<SendPost> queue;    // without credit, quota or connection, in order
  std::deque<PendingControl> control;

  // Incoming.
  std::uint32_t window = 0;            // landing slots granted in all
  std::uint32_t owed = 0;              // slots free again, not yet told
  std::uint32_t promptly_matched = 0;  // arrivals that found their receive, since the window grew
  std::uint32_t unmatched = 0;         // arrivals held, each with one slot
  std::uint32_t unmatched_blocks = 0;  // of them, announcements that hold a block at the sender
  std::uint32_t blocks_granted = 0;    // landing or kept
  std::uint32_t kept = 0;              // lent views not yet given back
  bool says_starved = false;           // it has no block to stage in until somebody reads
  IntrusiveList<ReceivePost> posted;   // receives without a message
  IntrusiveList<ReceivePost> waiting_for_block;

  /// So many of its messages are unmatched here that it may have no credit left for the ones we wait for.
  [[nodiscard]] bool is_under_pressure() const {
    return says_starved ||
           (unmatched > 0 && (unmatched * 2 >= window || unmatched_blocks * 2 >= kBlocksInFlightPerPeer));
  }
};

}  // namespace neuron
