#include <array>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"

namespace neuron::algorithms {
namespace {

Schedule start(Collective collective, Rank rank, Rank world, Rank root = kNoRank) {
  return {.collective = collective,
          .algorithm = Algorithm::direct,
          .rank = rank,
          .world = world,
          .root = root,
          .chunks = static_cast<std::uint32_t>(world)};
}

Schedule copy_only(Schedule schedule) { return schedule.loop(1, std::array{copy(input(), output())}); }

/// The other ranks, each starting at its own successor, so that not everyone sends to the same rank first.
Index others_up(Rank rank) { return linear(rank + 1, 1); }
Index others_down(Rank rank) { return linear(rank - 1, -1); }

}  // namespace

//     0 <--> 1     everyone sends its whole input to everyone and combines n operands in rank order.
//      \    /      What is sent is a copy: in place, the result overwrites the input as soon as all operands are
//       \  /       there, while slower peers may not have fetched theirs.
//        2                         The sends wait for the copy by their place behind the reduction, which waits for it.
Schedule direct_all_reduce(Rank rank, Rank world) {
  Schedule direct = start(Collective::all_reduce, rank, world);
  direct.chunks = 1;
  if (world == 1) return copy_only(direct);
  direct.scratch_chunks = 1;
  enum : std::uint8_t { kCopy };

  direct.loop(1, std::array{copy(input(), scratch()), reduce_all(world, input(), output(), {{kCopy, Scope::same}})});
  direct.loop(static_cast<std::uint32_t>(world - 1), std::array{send(scratch(), others_up(rank), {})});
  return direct;
}

//     step 1: chunk p of every rank -> rank p, which combines     step 2: the result of rank p -> every rank
//
//        0: a0 b0 c0      rank 0: A = a0+a1+a2                       0: A B C
//        1: a1 b1 c1      rank 1: B = b0+b1+b2                       1: A B C
//        2: a2 b2 c2      rank 2: C = c0+c1+c2                       2: A B C
Schedule direct_two_step_all_reduce(Rank rank, Rank world) {
  Schedule direct = start(Collective::all_reduce, rank, world);
  if (world == 1) return copy_only(direct);
  const Index others = others_up(rank);
  const Index own = linear(rank);
  const auto peers = static_cast<std::uint32_t>(world - 1);
  enum : std::uint8_t { kReduce, kSendPart, kSendResult, kReceive };

  direct.loop(1, std::array{reduce_all(world, input(own), output(own))});
  direct.loop(peers, std::array{send(input(others), others, {0, {}})});
  direct.loop(peers, std::array{send(output(own), others, {1, {}}, {{kReduce, Scope::last}})});
  direct.loop(peers, std::array{receive(output(others), others, {1, {}}, {{kSendPart, Scope::same}})});
  return direct;
}

//     0: a        a b c      everyone sends its chunk to everyone
//     1: b   -->  a b c
//     2: c        a b c
Schedule direct_all_gather(Rank rank, Rank world) {
  Schedule direct = start(Collective::all_gather, rank, world);
  direct.loop(static_cast<std::uint32_t>(world - 1),
              std::array{receive(output(others_down(rank)), others_down(rank), {}),  //
                         send(input(), others_up(rank), {})});
  direct.loop(1, std::array{copy(input(), output(linear(rank)))});
  return direct;
}

//     0: a0 b0 c0        a0+a1+a2      chunk p of every rank goes to rank p, which combines n operands at once
//     1: a1 b1 c1   -->  b0+b1+b2
//     2: a2 b2 c2        c0+c1+c2
Schedule direct_reduce_scatter(Rank rank, Rank world) {
  Schedule direct = start(Collective::reduce_scatter, rank, world);
  if (world == 1) return copy_only(direct);
  direct.loop(1, std::array{reduce_all(world, input(linear(rank)), output())});
  direct.loop(static_cast<std::uint32_t>(world - 1), std::array{send(input(others_up(rank)), others_up(rank), {})});
  return direct;
}

//     0: a
//     1: b   -->  root: a+b+c      everyone sends to the root, which combines n operands at once, in rank order
//     2: c
Schedule direct_reduce(Rank rank, Rank world, Rank root) {
  Schedule direct = start(Collective::reduce, rank, world, root);
  direct.chunks = 1;
  if (world == 1) return copy_only(direct);
  if (rank == root) return direct.loop(1, std::array{reduce_all(world, input(), output())});
  return direct.loop(1, std::array{send(input(), linear(root), {})});
}

//     0: a
//     1: b   -->  root: a b c      everyone sends to the root
//     2: c
Schedule direct_gather(Rank rank, Rank world, Rank root) {
  Schedule direct = start(Collective::gather, rank, world, root);
  if (rank != root) return direct.loop(1, std::array{send(input(), linear(root), {})});
  direct.loop(static_cast<std::uint32_t>(world - 1), std::array{receive(output(others_up(rank)), others_up(rank), {})});
  return direct.loop(1, std::array{copy(input(), output(linear(rank)))});
}

//                       0: a
//     root: a b c  -->  1: b      the root sends everyone its chunk
//                       2: c
Schedule direct_scatter(Rank rank, Rank world, Rank root) {
  Schedule direct = start(Collective::scatter, rank, world, root);
  if (rank != root) return direct.loop(1, std::array{receive(output(), linear(root), {})});
  direct.loop(static_cast<std::uint32_t>(world - 1), std::array{send(input(others_up(rank)), others_up(rank), {})});
  return direct.loop(1, std::array{copy(input(linear(rank)), output())});
}

}  // namespace neuron::algorithms
