// Tuner: which algorithm and segment for which operation: one readable table. A value; any thread.
// Every rank must come to the same choice, so it depends only on what all ranks know: the collective, the size, the
// group's topology. The choice is part of the fingerprint: ranks with different tables are told so instead of hanging.
#pragma once
#include <cstddef>
#include <vector>

#include "collectives/schedule/schedule.h"
#include "topology/topology.h"

namespace neuron {

/// One row: the first that matches decides.
struct TuningRule {
  Collective collective = Collective::all_reduce;
  std::size_t up_to_bytes =
      SIZE_MAX;  // of the whole operation: all_gather output, reduce_scatter input, else the buffer
  Rank up_to_world = INT32_MAX;
  Algorithm algorithm = Algorithm::ring;
  bool two_step = false;          // direct all_reduce: reduce-scatter, then all-gather
  std::size_t segment_bytes = 0;  // at most kBlockBytes
};

struct Choice {
  Algorithm algorithm = Algorithm::direct;
  bool two_step = false;
  std::size_t segment_bytes = 0;
};

class Tuner {
 public:
  /// The built-in table.
  Tuner();
  /// Rules of the caller's, tried before the built-in ones.
  explicit Tuner(std::vector<TuningRule> overrides);

  [[nodiscard]] Choice choose(Collective collective, std::size_t bytes, const Topology& group) const;
  /// The schedule that a choice stands for.
  static Schedule build(Collective collective, const Choice& choice, Rank rank, Rank world, Rank root);

 private:
  std::vector<TuningRule> rules_;
};

}  // namespace neuron
