// verify: runs all ranks of a collective symbolically and says whether the schedules are right.
// A pure function of its arguments (the seed included). Any thread.
//
// What it proves, for the given world:
//   matching        every message has exactly one sender and one receiver, which agree on its size
//   memory          no slot is written while a send or reduction may still read it, or read before it is written.
//                   This check is exact: it holds at every interleaving (races.h)
//   progress        no deadlock, though a send may block until its receive is posted. Issuing and completing only ever
//                   enable more, so that every interleaving gets equally far and the first one decides. Every other
//                   one allows one eager message per pair
//   right result    every output chunk is the expected combination of the inputs, each exactly once (reductions are
//                   expression trees over random fingerprints); the step that completes a reduction says so, no other
//   same order      replicated reductions (all_reduce) have the identical tree on all ranks
// The results are computed at random interleavings, which also checks the reasoning behind the exact parts.
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
