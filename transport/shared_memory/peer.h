// Peer: everything that an endpoint holds of one connected process. A resource; made by the hand-over thread, then
// owned and used by the Endpoint on the engine's thread.
#pragma once
#include <cstdint>
#include <memory>

#include "transport/base/descriptor.h"
#include "transport/shared_memory/arena.h"
#include "transport/shared_memory/greeting.h"
#include "transport/shared_memory/ring.h"
#include "transport/shared_memory/slots.h"
#include "transport/transport.h"

namespace neuron::shared_memory {

struct Peer {
  /// `theirs` has been checked: its slot lies inside their arena.
  Peer(const Arena& ours, PeerArena their_arena, const Introduction& theirs, std::shared_ptr<const Slot> our_slot,
       Descriptor their_doorbell, Descriptor their_pidfd)
      : identity(our_slot->peer),
        arena(std::move(their_arena)),
        slot(std::move(our_slot)),
        doorbell(std::move(their_doorbell)),
        pidfd(std::move(their_pidfd)),
        asleep(arena.control().asleep),
        outbox(ours.at(ours.layout().ring_offset(slot->index)), slot->salt,
               word_at(arena.at(arena.layout().consumed_offset(theirs.slot)))),
        inbox(arena.at(arena.layout().ring_offset(theirs.slot)), theirs.salt,
              word_at(ours.at(ours.layout().consumed_offset(slot->index)))) {}

  Identity identity;
  PeerArena arena;
  std::shared_ptr<const Slot> slot;  // our outbox for it
  Descriptor doorbell;
  Descriptor pidfd;  // may be empty
  const Word& asleep;
  RingWriter outbox;                // in our arena
  RingReader inbox;                 // in its arena
  TrafficCount* traffic = nullptr;  // the Endpoint's; outlives the connection
  bool is_lost = false;             // disconnected, perhaps while its messages are being delivered
};

}  // namespace neuron::shared_memory
