// The algorithms: pure functions from (rank, world, root) to a Schedule. No state, any thread, nanoseconds each.
// Buffers, by collective (n = world; chunk = the unit of Schedule::chunks):
//   all_reduce      input and output: n chunks (direct for small sizes: 1 chunk); in place allowed
//   all_gather      input: 1 chunk, output: n chunks; in place: input is output's chunk `rank`
//   reduce_scatter  input: n chunks, output: 1 chunk; in place: output is input's chunk `rank`
//   broadcast       input (root) and output: 1 chunk, the same memory
//   reduce          input: 1 chunk, output: 1 chunk at the root; in place allowed
//   gather          input: 1 chunk, output: n chunks at the root
//   scatter         input: n chunks at the root, output: 1 chunk
//   all_to_all      input: n chunks, output: n chunks, of any sizes; never in place
//   barrier         nothing
//   send, receive   input / output: 1 chunk
// `input` chunk index i of a one-chunk space is always 0. A step that would copy a chunk onto itself in place is
// skipped by the executor (same address).
#pragma once
#include "collectives/schedule/schedule.h"

namespace neuron::algorithms {

// all_reduce
Schedule ring_all_reduce(Rank rank, Rank world);
/// Everyone sends everything to everyone, one n-way reduction: one message latency.
Schedule direct_all_reduce(Rank rank, Rank world);
/// Direct reduce-scatter, then direct all-gather: two message latencies, 2(n-1)/n of the bytes.
Schedule direct_two_step_all_reduce(Rank rank, Rank world);
// all_gather
Schedule ring_all_gather(Rank rank, Rank world);
Schedule direct_all_gather(Rank rank, Rank world);
// reduce_scatter
Schedule ring_reduce_scatter(Rank rank, Rank world);
Schedule direct_reduce_scatter(Rank rank, Rank world);
// rooted
Schedule binomial_broadcast(Rank rank, Rank world, Rank root);
Schedule direct_reduce(Rank rank, Rank world, Rank root);
Schedule direct_gather(Rank rank, Rank world, Rank root);
Schedule direct_scatter(Rank rank, Rank world, Rank root);
// others
Schedule pairwise_all_to_all(Rank rank, Rank world);
Schedule dissemination_barrier(Rank rank, Rank world);
Schedule point_to_point_send(Rank rank, Rank world, Rank destination);
Schedule point_to_point_receive(Rank rank, Rank world, Rank source);

}  // namespace neuron::algorithms
