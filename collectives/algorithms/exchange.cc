// Trees, pairwise exchange, barrier and point-to-point.
#include <array>
#include <bit>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"

namespace neuron::algorithms {

//     round 0:  0 -> 1                        who has the data sends it to the rank at distance 2^round;
//     round 1:  0 -> 2   1 -> 3               ranks count from the root. A rank that received over distance d
//     round 2:  0 -> 4   1 -> 5   2 -> 6 ...  sends over 2d, 4d, ...
Schedule binomial_broadcast(Rank rank, Rank world, Rank root) {
  Schedule tree{.collective = Collective::broadcast,
                .algorithm = Algorithm::binomial,
                .rank = rank,
                .world = world,
                .root = root};
  const auto place = static_cast<std::uint32_t>(rank >= root ? rank - root : rank - root + world);
  const auto first = static_cast<Rank>(place == 0 ? 1 : 2 * std::bit_floor(place));
  std::uint32_t children = 0;
  while (static_cast<std::int64_t>(place) + (std::int64_t{first} << children) < world) ++children;
  enum : std::uint8_t { kReceive, kSend };

  tree.loop(place == 0 ? 0 : 1, std::array{receive(output(), linear(rank - first / 2), {})});
  tree.loop(children,
            std::array{send(place == 0 ? input() : output(), doubling(rank, first), {}, {{kReceive, Scope::last}})});
  return tree;
}

//     distance 1:  0 -> 1 -> 2 -> 3 -> 0      step i: send to the rank i+1 above, receive from the rank i+1 below,
//     distance 2:  0 -> 2 -> 0, 1 -> 3 -> 1   so that every rank has one sender at a time in mind; nothing waits
Schedule pairwise_all_to_all(Rank rank, Rank world) {
  Schedule pairwise{.collective = Collective::all_to_all,
                    .algorithm = Algorithm::pairwise,
                    .rank = rank,
                    .world = world,
                    .chunks = static_cast<std::uint32_t>(world)};
  const Index below = linear(rank - 1, -1);
  const Index above = linear(rank + 1, 1);
  pairwise.loop(static_cast<std::uint32_t>(world - 1),
                std::array{receive(output(below), below, {}), send(input(above), above, {})});
  pairwise.loop(1, std::array{copy(input(linear(rank)), output(linear(rank)))});
  return pairwise;
}

//     round k: signal the rank 2^k above, then wait for the rank 2^k below. After round k a rank has heard, directly or
//     not, of 2^(k+1) ranks; ceil(log2 n) rounds reach all.
//
//     0 -1-> 1 -1-> 2 -1-> 3      0 -2-> 2,  1 -2-> 3, ...
Schedule dissemination_barrier(Rank rank, Rank world) {
  Schedule barrier{
      .collective = Collective::barrier, .algorithm = Algorithm::dissemination, .rank = rank, .world = world};
  const auto rounds = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(world - 1)));
  enum : std::uint8_t { kReceive, kSend };
  barrier.loop(rounds, std::array{receive({}, doubling(rank, -1), {0, linear(0, 1)}),
                                  send({}, doubling(rank, 1), {0, linear(0, 1)}, {{kReceive, Scope::previous}})});
  return barrier;
}

//     rank: input --> destination: output
Schedule point_to_point_send(Rank rank, Rank world, Rank destination) {
  Schedule schedule{.collective = Collective::send,
                    .algorithm = Algorithm::point_to_point,
                    .rank = rank,
                    .world = world,
                    .root = destination};
  return schedule.loop(1, std::array{send(input(), linear(destination), {})});
}

//     source: input --> rank: output
Schedule point_to_point_receive(Rank rank, Rank world, Rank source) {
  Schedule schedule{.collective = Collective::receive,
                    .algorithm = Algorithm::point_to_point,
                    .rank = rank,
                    .world = world,
                    .root = source};
  return schedule.loop(1, std::array{receive(output(), linear(source), {})});
}

}  // namespace neuron::algorithms
