#include "collectives/run/tuner.h"

#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.h"
#include "transport/base/check.h"
#include "transport/header.h"

namespace neuron {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr Rank kAnyWorld = INT32_MAX;

// Small messages: as few message latencies as possible, while everyone's copy of everything costs less than a latency.
// Large ones: each byte crosses each link once; the ring has one neighbour at a time, direct exchange takes all
// operands in one pass (one rounding, fewer memory passes) but needs a path to everyone.
// clang-format off
constexpr std::array kTable = {
    //         collective                  up to bytes   up to world  algorithm                  two steps  segment
    TuningRule{Collective::all_reduce,     16 * kKiB,    8,           Algorithm::direct,         false,     kBlockBytes},
    TuningRule{Collective::all_reduce,     1 * kKiB,     32,          Algorithm::direct,         false,     kBlockBytes},
    TuningRule{Collective::all_reduce,     SIZE_MAX,     8,           Algorithm::direct,         true,      128 * kKiB},
    TuningRule{Collective::all_reduce,     256 * kKiB,   64,          Algorithm::direct,         true,      64 * kKiB},
    TuningRule{Collective::all_reduce,     SIZE_MAX,     kAnyWorld,   Algorithm::ring,           false,     kBlockBytes},
    TuningRule{Collective::all_gather,     1 * kMiB,     64,          Algorithm::direct,         false,     128 * kKiB},
    TuningRule{Collective::all_gather,     SIZE_MAX,     8,           Algorithm::direct,         false,     128 * kKiB},
    TuningRule{Collective::all_gather,     SIZE_MAX,     kAnyWorld,   Algorithm::ring,           false,     kBlockBytes},
    TuningRule{Collective::reduce_scatter, 1 * kMiB,     64,          Algorithm::direct,         false,     64 * kKiB},
    TuningRule{Collective::reduce_scatter, SIZE_MAX,     8,           Algorithm::direct,         false,     128 * kKiB},
    TuningRule{Collective::reduce_scatter, SIZE_MAX,     kAnyWorld,   Algorithm::ring,           false,     kBlockBytes},
    TuningRule{Collective::broadcast,      SIZE_MAX,     kAnyWorld,   Algorithm::binomial,       false,     128 * kKiB},
    TuningRule{Collective::reduce,         SIZE_MAX,     kAnyWorld,   Algorithm::direct,         false,     64 * kKiB},
    TuningRule{Collective::gather,         SIZE_MAX,     kAnyWorld,   Algorithm::direct,         false,     128 * kKiB},
    TuningRule{Collective::scatter,        SIZE_MAX,     kAnyWorld,   Algorithm::direct,         false,     128 * kKiB},
    TuningRule{Collective::all_to_all,     SIZE_MAX,     kAnyWorld,   Algorithm::pairwise,       false,     128 * kKiB},
    TuningRule{Collective::barrier,        SIZE_MAX,     kAnyWorld,   Algorithm::dissemination,  false,     kBlockBytes},
    TuningRule{Collective::send,           SIZE_MAX,     kAnyWorld,   Algorithm::point_to_point, false,     128 * kKiB},
    TuningRule{Collective::receive,        SIZE_MAX,     kAnyWorld,   Algorithm::point_to_point, false,     128 * kKiB},
};
// clang-format on

}  // namespace

Tuner::Tuner() : Tuner(std::vector<TuningRule>{}) {}

Tuner::Tuner(std::vector<TuningRule> overrides) : rules_(std::move(overrides)) {
  rules_.insert(rules_.end(), kTable.begin(), kTable.end());
}

Choice Tuner::choose(Collective collective, std::size_t bytes, const Topology& group) const {
  const auto rule = std::find_if(rules_.begin(), rules_.end(), [&](const TuningRule& candidate) {
    return candidate.collective == collective && bytes <= candidate.up_to_bytes &&
           group.world() <= candidate.up_to_world;
  });
  NEURON_CHECK(rule != rules_.end(), "no tuning rule for a collective");
  return {rule->algorithm, rule->two_step, std::min(rule->segment_bytes, kBlockBytes)};
}

Schedule Tuner::build(Collective collective, const Choice& choice, Rank rank, Rank world, Rank root) {
  using namespace algorithms;
  const bool is_ring = choice.algorithm == Algorithm::ring;
  switch (collective) {
    case Collective::all_reduce:
      if (is_ring) return ring_all_reduce(rank, world);
      return choice.two_step ? direct_two_step_all_reduce(rank, world) : direct_all_reduce(rank, world);
    case Collective::all_gather:
      return is_ring ? ring_all_gather(rank, world) : direct_all_gather(rank, world);
    case Collective::reduce_scatter:
      return is_ring ? ring_reduce_scatter(rank, world) : direct_reduce_scatter(rank, world);
    case Collective::broadcast:
      return binomial_broadcast(rank, world, root);
    case Collective::reduce:
      return direct_reduce(rank, world, root);
    case Collective::gather:
      return direct_gather(rank, world, root);
    case Collective::scatter:
      return direct_scatter(rank, world, root);
    case Collective::all_to_all:
      return pairwise_all_to_all(rank, world);
    case Collective::barrier:
      return dissemination_barrier(rank, world);
    case Collective::send:
      return point_to_point_send(rank, world, root);
    case Collective::receive:
      return point_to_point_receive(rank, world, root);
  }
  NEURON_CHECK(false, "unknown collective");
}

}  // namespace neuron
