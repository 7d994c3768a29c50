// verify: runs all ranks of a collective symbolically and says whether the schedules are right.
// A pure function of its arguments (the seed included). Any thread.
//
// What it proves, for the given world, at random interleavings with an eager budget of one message per pair:
//   right result    every output chunk is the expected combination of the inputs (chunks are random fingerprints,
//                   reductions are expression trees, so a missing, doubled or foreign operand shows)
//   same order      replicated reductions (all_reduce) have the identical tree on all ranks
//   progress        no deadlock: every instance completes though a send may block until its receive is posted
//   matching        no message is left over, none has two candidates
//   memory          no slot is written while a send or reduction still reads it, or read before it is written
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "transport/base/status.h"

namespace neuron {

struct VerifyOptions {
  std::uint64_t seed = 1;
  int interleavings = 4;  // random executions of the whole job
  bool in_place = false;  // input and output share memory as the collective defines it
};

/// All ranks' schedules of one collective, index = rank. Errors: internal, with rank, phase, iteration, step and what
/// is wrong ("rank 3, phase 1, iteration 2, receive into output[5]: still being read by send ...").
Status verify(const std::vector<Schedule>& schedules, const VerifyOptions& options = {});

/// Convenience: builds all ranks' schedules and verifies them.
Status verify(Rank world, const std::function<Schedule(Rank rank)>& build, const VerifyOptions& options = {});

}  // namespace neuron
