#include "transport/shared_memory/slots.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/random.h"

namespace neuron::shared_memory {

std::shared_ptr<SlotBook> SlotBook::create(std::uint32_t slots, std::function<void(std::uint32_t)> clear) {
  return std::shared_ptr<SlotBook>(new SlotBook(slots, std::move(clear)));
}

Result<std::shared_ptr<const Slot>> SlotBook::lease(const Identity& peer) {
  // Declared before the lock: the last holder may let go meanwhile, and then giving back takes the mutex.
  std::vector<std::shared_ptr<const Slot>> held;
  const std::lock_guard lock(mutex_);
  for (const auto& lease : leases_) {
    held.push_back(lease.lock());
    if (held.back() == nullptr || held.back()->peer.rank != peer.rank) continue;
    if (held.back()->peer == peer) return held.back();
    return Status(Code::refused, "rank " + std::to_string(peer.rank) + " is still connected here as another process");
  }
  const auto free = std::find(taken_.begin(), taken_.end(), false);
  if (free == taken_.end()) {
    return Status(Code::unavailable, "all " + std::to_string(taken_.size()) +
                                         " outboxes are taken: more processes on this host than the job announced");
  }
  *free = true;
  const auto index = static_cast<std::uint32_t>(free - taken_.begin());
  clear_(index);
  // Two fixed bits: a stamp, salt + position, is never 0 ("nothing here") and does not overflow before 2^62 bytes.
  const std::uint64_t salt = (random_nonce() | (1ULL << 63)) & ~(1ULL << 62);
  std::shared_ptr<const Slot> slot(new Slot{index, salt, peer}, [book = shared_from_this()](const Slot* ended) {
    book->give_back(ended->index);
    delete ended;
  });
  leases_[index] = slot;
  return slot;
}

void SlotBook::give_back(std::uint32_t index) {
  const std::lock_guard lock(mutex_);
  taken_[index] = false;
}

}  // namespace neuron::shared_memory
