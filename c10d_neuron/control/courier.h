// Courier: messages from this rank to single others, in order and exactly once, over a network that may lose what is
// under way while a host changes its leader. Keeps each message until its destination has confirmed it, and says it
// again if it does not. A plain object of the mesh, used on Control's thread; time is passed in. Nothing fails; a
// destination that takes nothing while more than kMostQueuedBytes wait loses the newest.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/rank.h"

namespace neuron::control {

class Courier {
 public:
  static constexpr std::size_t kWindow = 256;  // messages under way per destination
  static constexpr std::size_t kWindowBytes = 4 << 20;
  static constexpr std::size_t kMostQueuedBytes = 64 << 20;
  static constexpr Nanoseconds kFirstRepeat = 200 * kMillisecond;
  static constexpr Nanoseconds kLastRepeat = 3 * kSecond;
  static constexpr int kMostUnconfirmed = 64;

  struct Outlet {
    std::function<void(Rank to, std::uint64_t sequence, std::span<const std::byte>)> transmit;
    std::function<void(Rank to, std::uint64_t next)> confirm;
    std::function<void(Rank from, std::span<const std::byte>)> deliver;
  };
  explicit Courier(Outlet outlet) : outlet_(std::move(outlet)) {}

  /// False when too much is waiting for this destination already.
  bool send(Rank to, std::vector<std::byte> bytes, Nanoseconds now);
  void on_message(Rank from, std::uint64_t sequence, std::span<const std::byte> bytes);
  void on_confirmation(Rank from, std::uint64_t next, Nanoseconds now);
  /// Sends the confirmations that are due.
  void confirm_all();
  /// Says again what has not been confirmed for too long.
  void repeat_due(Nanoseconds now);
  /// Says everything unconfirmed again: a way to its destination has just come up.
  void repeat(Rank to, Nanoseconds now);
  void repeat_all(Nanoseconds now);
  /// The rank is gone.
  void forget(Rank rank);

  [[nodiscard]] bool owes_confirmations() const { return !unconfirmed_.empty(); }
  /// When repeat_due should be called next; kNever: nothing is waiting.
  [[nodiscard]] Nanoseconds next_repeat() const;
  /// Whether some destination has not confirmed everything.
  [[nodiscard]] bool is_waiting() const { return next_repeat() != kNever; }

 private:
  struct Parcel {
    std::uint64_t sequence;
    std::vector<std::byte> bytes;
  };
  struct Outbox {
    std::uint64_t next_sequence = 0;
    std::deque<Parcel> parcels;  // unconfirmed; the first `under_way` of them have been said
    std::size_t under_way = 0;
    std::size_t bytes_under_way = 0;
    std::size_t bytes = 0;
    Nanoseconds repeat_at = kNever;
    Nanoseconds patience = kFirstRepeat;
  };
  void pump(Rank to, Outbox& outbox, Nanoseconds now);

  Outlet outlet_;
  std::map<Rank, Outbox> outboxes_;
  std::map<Rank, std::uint64_t> expected_;
  std::map<Rank, int> unconfirmed_;  // source: how many of its messages we have not confirmed
};

}  // namespace neuron::control
