#include "collectives/run/group.h"

#include <algorithm>

#include "transport/base/check.h"

namespace neuron {
namespace {

Rank position_of(const std::vector<Rank>& members, Rank global) {
  const auto found = std::find(members.begin(), members.end(), global);
  NEURON_CHECK(found != members.end(), "a group that this process is not a member of");
  return static_cast<Rank>(found - members.begin());
}

}  // namespace

CommunicatorState::CommunicatorState(GroupSpec group_spec, Rank own_global_rank, const Topology& job)
    : spec(std::move(group_spec)),
      topology(job.subset(spec.members)),
      topology_digest(topology.digest()),
      rank(position_of(spec.members, own_global_rank)),
      timeout(spec.timeout) {
  for (std::size_t i = 0; i < spec.members.size(); ++i) group_rank_[spec.members[i]] = static_cast<Rank>(i);
}

Rank CommunicatorState::group_rank_of(Rank global_rank) const {
  const auto found = group_rank_.find(global_rank);
  return found == group_rank_.end() ? kNoRank : found->second;
}

Status CommunicatorState::error() const {
  const std::lock_guard lock(error_mutex_);
  return error_;
}

void CommunicatorState::set_error(Status error, bool tell_at_next_call, bool is_permanent) {
  const std::lock_guard lock(error_mutex_);
  if (is_permanent_) return;
  error_ = error;
  is_permanent_ = is_permanent;
  if (tell_at_next_call) pending_ = std::move(error);
  has_pending_.store(is_permanent_ || !pending_.is_ok(), std::memory_order_release);
}

Status CommunicatorState::take_pending_error() {
  if (!has_pending_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(error_mutex_);
  if (is_permanent_) return error_;
  has_pending_.store(false, std::memory_order_release);
  return std::exchange(pending_, Status());
}

}  // namespace neuron
