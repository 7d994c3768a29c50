// cost: how long a collective takes by the alpha-beta model, with ports: the tuner picks by it, `explain` explains by
// it. Pure functions of their arguments, any thread. Fail (internal) where the schedules are malformed or deadlock.
//
// The model (after Hockney 1994 and the one-port model): a message of b bytes leaves through its sender's port in
// b*beta, arrives alpha later and takes b*beta of its receiver's port; ports serve one message at a time. Combining
// takes gamma for each byte of each operand, copying gamma for each byte, one after the other on a rank. Sends do not
// wait for receives.
#pragma once
#include <cstdint>
#include <vector>

#include "collectives/schedule/job.h"
#include "collectives/schedule/schedule.h"
#include "transport/base/status.h"

namespace neuron {

struct CostModel {
  double alpha = 0;  // seconds per message
  double beta = 0;   // seconds per byte on the way
  double gamma = 0;  // seconds per byte that is combined or copied
};

struct Cost {
  double seconds = 0;          // until the last rank is done
  std::uint64_t messages = 0;  // of all ranks
  double bytes = 0;            // sent by all ranks
  double most_bytes = 0;       // sent by the rank that sends most
};

/// When an instance was issued and when it was complete, in seconds.
struct Span {
  double issued = 0;
  double completed = 0;
};
/// By rank, by instance.
using Timeline = std::vector<std::vector<Span>>;

/// `bytes`: of the larger of input and output, that is of all Schedule::chunks together.
Result<Timeline> timeline(const Job& job, const CostModel& model, double bytes);
Result<Cost> cost(const std::vector<Schedule>& schedules, const CostModel& model, double bytes);

}  // namespace neuron
