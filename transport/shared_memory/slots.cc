#include "transport/shared_memory/slots.h"

#include <algorithm>
#include <string>

#include "transport/base/random.h"

namespace neuron::shared_memory {

Result<std::shared_ptr<const Slot>> SlotBook::lease(const Identity& peer) {
  const std::lock_guard lock(mutex_);
  for (const auto& lease : leases_) {
    auto held = lease.lock();
    if (held == nullptr || held->peer.rank != peer.rank) continue;
    if (held->peer == peer) return held;
    return Status(Code::refused, "rank " + std::to_string(peer.rank) + " is still connected here as another process");
  }
  const auto free = std::find_if(leases_.begin(), leases_.end(), [](const auto& lease) { return lease.expired(); });
  if (free == leases_.end()) {
    return Status(Code::unavailable, "all " + std::to_string(leases_.size()) +
                                         " outboxes are taken: more processes on this host than the job announced");
  }
  const auto index = static_cast<std::uint32_t>(free - leases_.begin());
  clear_(index);
  // Two fixed bits: a stamp, salt + position, is never 0 ("nothing here") and does not overflow before 2^62 bytes.
  const std::uint64_t salt = (random_nonce() | (1ULL << 63)) & ~(1ULL << 62);
  const auto slot = std::make_shared<const Slot>(Slot{index, salt, peer});
  *free = slot;
  return slot;
}

}  // namespace neuron::shared_memory
