// SlotBook: which peer has which outbox in our arena. A Slot is a lease: while somebody holds it (a hand-over under
// way, a connected peer), the same process gets the same slot again, so that two hand-overs in opposite directions
// agree. Resource; the Endpoint owns it; any thread. Fails when all slots are taken.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transport/base/rank.h"
#include "transport/base/status.h"

namespace neuron::shared_memory {

/// Who a process of the job is: rank and nonce of its incarnation. Value.
struct Identity {
  Rank rank = kNoRank;
  std::uint64_t nonce = 0;

  friend bool operator==(const Identity&, const Identity&) = default;
};

struct Slot {
  std::uint32_t index = 0;
  std::uint64_t salt = 0;  // of the stamps in its outbox; new for each lease
  Identity peer;
};

class SlotBook {
 public:
  /// `clear(index)` prepares the slot's memory whenever it goes to another process; called under the book's lock.
  SlotBook(std::uint32_t slots, std::function<void(std::uint32_t)> clear) : clear_(std::move(clear)), leases_(slots) {}

  /// Errors: refused (the rank is still connected as another process), unavailable (no slot left).
  Result<std::shared_ptr<const Slot>> lease(const Identity& peer);

 private:
  const std::function<void(std::uint32_t)> clear_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<const Slot>> leases_;  // expired: free
};

}  // namespace neuron::shared_memory
