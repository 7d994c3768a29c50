// The memory part of verify, exact rather than sampled. Pure functions, any thread.
//
// An instance A is known to be complete when B is issued iff an instance up to B comes after A: issue is in order, and
// nothing a peer does shows that A has completed here. So the worst interleaving completes nothing that is not awaited,
// and one walk along each rank's instances finds every slot that is used too early, at any interleaving.
#pragma once
#include <vector>

#include "collectives/schedule/job.h"
#include "collectives/schedule/symbolic.h"
#include "transport/base/status.h"

namespace neuron {

/// Errors: internal, naming both instances and the chunk.
Status check_memory(const Job& job, const std::vector<Memory>& memories);

}  // namespace neuron
