// Roster: who has joined so far, as rank 0 knows it, and whether they agree. A plain object of rank 0's join server,
// used on Control's thread. Errors: mismatch, invalid_argument; a failed roster stays failed, so that a late rank hears
// the same reason as the others.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "c10d_neuron/control/participant.h"
#include "transport/base/status.h"

namespace neuron::control {

class Roster {
 public:
  Roster(Rank world, std::string version) : world_(world), version_(std::move(version)) {}

  /// `stream`: over which leader's connection it came; when that breaks, its ranks are forgotten.
  Status add(std::uint64_t stream, Participant participant);
  void remove(Rank rank, std::uint64_t nonce);
  void remove_stream(std::uint64_t stream);
  void fail(Status failure) { failure_ = std::move(failure); }

  [[nodiscard]] bool is_complete() const { return failure_.is_ok() && joined() == world_; }
  [[nodiscard]] const Status& failure() const { return failure_; }
  [[nodiscard]] Rank joined() const { return static_cast<Rank>(entries_.size()); }
  [[nodiscard]] std::vector<Rank> missing() const;
  /// All participants in the order of their ranks.
  [[nodiscard]] std::vector<Participant> participants() const;

 private:
  struct Entry {
    std::uint64_t stream;
    Participant participant;
  };
  [[nodiscard]] Status check(const Participant& participant) const;

  Rank world_;
  std::string version_;
  std::map<Rank, Entry> entries_;
  Status failure_;
};

/// "ranks 3, 5-7"; long lists end with how many more there are.
std::string ranks_text(std::span<const Rank> ranks);

}  // namespace neuron::control
