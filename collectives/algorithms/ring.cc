#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"

namespace neuron::algorithms {
namespace {

Schedule start(Collective collective, Rank rank, Rank world) {
  return {.collective = collective,
          .algorithm = Algorithm::ring,
          .rank = rank,
          .world = world,
          .chunks = static_cast<std::uint32_t>(world)};
}

std::uint32_t at_least_0(Rank iterations) { return static_cast<std::uint32_t>(std::max(iterations, 0)); }

Schedule copy_only(Schedule schedule) { return schedule.loop(1, std::array{copy(input(), output())}); }

}  // namespace

//   reduce-scatter: n-1 hops, each adds the own chunk     all-gather: the finished chunk goes round, n-1 hops
//
//     0 --c0--> 1 --c0--> 2 --c0--> 3                       3 ==C0==> 0 ==C0==> 1 ==C0==> 2
//               +         +         + = C0                  (all n chunks are on their way at once)
//
// A chunk may be overwritten by its finished value only when the hop that carried its partial sum has left.
Schedule ring_all_reduce(Rank rank, Rank world) {
  Schedule ring = start(Collective::all_reduce, rank, world);
  if (world == 1) return copy_only(ring);
  const Index next = linear(rank + 1);
  const Index previous = linear(rank - 1);
  enum : std::uint8_t { kSendOwn, kReduce, kSendPartial, kReduceLast, kReceive, kSend };
  const Index partial = linear(rank - 1, -1);
  const Index own = linear(rank + 1);

  ring.loop(1, std::array{send(input(linear(rank)), next, {0, linear(0)})});
  ring.loop(at_least_0(world - 2),
            std::array{reduce(input(partial), output(partial), previous, {0, linear(0, 1)}, false),
                       send(output(partial), next, {0, linear(1, 1)}, {{kReduce, Scope::same}})});
  ring.loop(1, std::array{reduce(input(own), output(own), previous, {0, linear(world - 2)}, true)});
  ring.loop(at_least_0(world - 1), std::array{receive(output(linear(rank, -1)), previous, {1, linear(0, 1)},
                                                      {{kSendOwn, Scope::last}, {kSendPartial, Scope::previous}}),
                                              send(output(linear(rank + 1, -1)), next, {1, linear(0, 1)},
                                                   {{kReceive, Scope::previous}, {kReduceLast, Scope::last}})});
  return ring;
}

//     0 --a--> 1 --a--> 2 --a--> 3      each rank passes on what it has just received, n-1 times;
//     3 --d--> 0 --d--> 1 --d--> 2      the next receive is posted before
Schedule ring_all_gather(Rank rank, Rank world) {
  Schedule ring = start(Collective::all_gather, rank, world);
  if (world == 1) return copy_only(ring);
  const Index next = linear(rank + 1);
  const Index previous = linear(rank - 1);
  enum : std::uint8_t { kReceiveFirst, kSendOwn, kCopy, kReceive, kSend };

  ring.loop(1, std::array{receive(output(previous), previous, {0, linear(0)}),  //
                          send(input(), next, {0, linear(0)}),                  //
                          copy(input(), output(linear(rank)))});
  ring.loop(at_least_0(world - 2), std::array{receive(output(linear(rank - 2, -1)), previous, {0, linear(1, 1)}),
                                              send(output(linear(rank - 1, -1)), next, {0, linear(1, 1)},
                                                   {{kReceiveFirst, Scope::last}, {kReceive, Scope::previous}})});
  return ring;
}

//     1 --c0--> 2 --c0--> 3 --c0--> 0     chunk c starts at rank c+1 and ends, complete, at rank c
//               +         +         = C0  partial sums alternate between two scratch chunks: one arrives while the
//                                         other leaves; a chunk is filled again only when its send is done
Schedule ring_reduce_scatter(Rank rank, Rank world) {
  Schedule ring = start(Collective::reduce_scatter, rank, world);
  if (world == 1) return copy_only(ring);
  ring.scratch_chunks = world == 2 ? 0 : 2;
  const bool is_pair = world == 2;
  const Index next = linear(rank + 1);
  const Index previous = linear(rank - 1);
  enum : std::uint8_t { kReduceFirst, kSendOwn, kReduce, kSend, kReduceLast, kSendLast };
  const Afters reduced{{kReduceFirst, Scope::last}, {kReduce, Scope::previous}};

  ring.loop(1, std::array{reduce(input(linear(rank - 2)), is_pair ? output() : scratch(), previous, {}, is_pair),
                          send(input(previous), next, {})});
  ring.loop(at_least_0(world - 3), std::array{reduce(input(linear(rank - 3, -1)), scratch(linear(1, 1)), previous,
                                                     {0, linear(1, 1)}, false, {{kSend, Scope::previous}}),
                                              send(scratch(linear(0, 1)), next, {0, linear(1, 1)}, reduced)});
  ring.loop(is_pair ? 0 : 1, std::array{reduce(input(linear(rank)), output(), previous, {0, linear(world - 2)}, true),
                                        send(scratch(linear(world - 3)), next, {0, linear(world - 2)},
                                             {{kReduceFirst, Scope::last}, {kReduce, Scope::last}})});
  return ring;
}

}  // namespace neuron::algorithms
