// Every algorithm, for tests that go through all of them.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"

namespace neuron {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kIsSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kIsSanitized = false;
#endif

struct Case {
  std::string name;
  Schedule (*build)(Rank rank, Rank world, Rank root);
  bool is_rooted = false;
  bool may_be_in_place = true;
};

inline Schedule build_point_to_point(Rank rank, Rank world, Rank root) {
  const Rank destination = (root + 1) % world;
  if (rank == root) return algorithms::point_to_point_send(rank, world, destination);
  if (rank == destination) return algorithms::point_to_point_receive(rank, world, root);
  return {.collective = Collective::send, .algorithm = Algorithm::point_to_point, .rank = rank, .world = world};
}

inline const std::vector<Case>& all_cases() {
  using namespace algorithms;
  static const std::vector<Case> kCases{
      {"ring_all_reduce", [](Rank r, Rank n, Rank) { return ring_all_reduce(r, n); }},
      {"direct_all_reduce", [](Rank r, Rank n, Rank) { return direct_all_reduce(r, n); }},
      {"direct_two_step_all_reduce", [](Rank r, Rank n, Rank) { return direct_two_step_all_reduce(r, n); }},
      {"ring_all_gather", [](Rank r, Rank n, Rank) { return ring_all_gather(r, n); }},
      {"direct_all_gather", [](Rank r, Rank n, Rank) { return direct_all_gather(r, n); }},
      {"ring_reduce_scatter", [](Rank r, Rank n, Rank) { return ring_reduce_scatter(r, n); }},
      {"direct_reduce_scatter", [](Rank r, Rank n, Rank) { return direct_reduce_scatter(r, n); }},
      {"binomial_broadcast", [](Rank r, Rank n, Rank root) { return binomial_broadcast(r, n, root); }, true},
      {"direct_reduce", [](Rank r, Rank n, Rank root) { return direct_reduce(r, n, root); }, true},
      {"direct_gather", [](Rank r, Rank n, Rank root) { return direct_gather(r, n, root); }, true},
      {"direct_scatter", [](Rank r, Rank n, Rank root) { return direct_scatter(r, n, root); }, true},
      {"pairwise_all_to_all", [](Rank r, Rank n, Rank) { return pairwise_all_to_all(r, n); }, false, false},
      {"dissemination_barrier", [](Rank r, Rank n, Rank) { return dissemination_barrier(r, n); }},
      {"point_to_point", build_point_to_point, true},
  };
  return kCases;
}

/// The roots worth trying: all that differ in kind.
inline std::vector<Rank> roots_of(const Case& algorithm, Rank world) {
  if (!algorithm.is_rooted) return {0};
  const std::set<Rank> roots{0, world > 1 ? 1 : 0, world / 2, world - 1};
  return {roots.begin(), roots.end()};
}

inline std::vector<Schedule> build_all(const Case& algorithm, Rank world, Rank root = 0) {
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < world; ++rank) schedules.push_back(algorithm.build(rank, world, root));
  return schedules;
}

}  // namespace neuron
