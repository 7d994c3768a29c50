// CommunicatorState: everything that the engine knows of one group. A resource shared by the Communicator and the
// engine. The first part may be used by any thread, the second only by the driver.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "collectives/run/communicator.h"
#include "collectives/run/execution.h"
#include "topology/topology.h"

namespace neuron {

class CommunicatorState {
 public:
  CommunicatorState(GroupSpec group_spec, Rank own_global_rank, const Topology& job);

  // ---- any thread ----
  const GroupSpec spec;
  const Topology topology;  // of the members
  const std::uint64_t topology_digest;
  const Rank rank;  // this process's, in the group
  std::atomic<Nanoseconds> timeout;
  std::atomic<bool> is_closed{false};
  /// What ended the operations last; ok if nothing has.
  [[nodiscard]] Status error() const;
  void set_error(Status error, bool tell_at_next_call, bool is_permanent);
  /// The error to raise at the next call: a poison that nobody has heard of yet, or a dead member.
  [[nodiscard]] Status take_pending_error();

  /// Epoch in the upper 24 bits, next sequence in the lower 40.
  std::atomic<std::uint64_t> epoch_and_sequence{0};
  std::atomic<std::uint64_t> point_to_point_count{0};
  static constexpr unsigned kSequenceBits = 40;
  static constexpr std::uint64_t kSequenceMask = (std::uint64_t{1} << kSequenceBits) - 1;

  [[nodiscard]] Rank world() const { return static_cast<Rank>(spec.members.size()); }
  [[nodiscard]] Rank global(Rank group_rank) const { return spec.members[static_cast<std::size_t>(group_rank)]; }
  /// kNoRank: not a member.
  [[nodiscard]] Rank group_rank_of(Rank global_rank) const;

  // ---- the driver ----
  static constexpr std::size_t kActiveCollectives = 32;
  std::uint32_t epoch = 0;
  std::uint64_t next_sequence = 0;   // of the next collective to start
  std::deque<OperationRef> waiting;  // collectives beyond the active ones, in order
  std::size_t active_collectives = 0;
  IntrusiveList<Execution> active;
  std::unordered_map<Rank, Schedule> send_schedules;  // by peer: thousands of sends may share one
  std::unordered_map<Rank, Schedule> receive_schedules;
  std::unordered_map<std::uint64_t, std::uint64_t> send_sequences;  // by (peer, tag)
  std::unordered_map<std::uint64_t, std::uint64_t> receive_sequences;

  /// The first arrival of each of the next collectives, to be compared once they are issued here.
  struct EarlyArrival {
    std::uint64_t sequence = UINT64_MAX;
    std::uint64_t fingerprint = 0;
    Rank source = kNoRank;
  };
  std::array<EarlyArrival, 64> early;

 private:
  mutable std::mutex error_mutex_;
  Status error_;
  Status pending_;
  bool is_permanent_ = false;  // a dead member
  std::atomic<bool> has_pending_{false};
  std::unordered_map<Rank, Rank> group_rank_;
};

}  // namespace neuron
