// LoopbackJob: a Job over the loopback transport, with the hub at hand. A resource of a test.
#pragma once
#include "tests/collectives/run/job.h"
#include "transport/loopback/loopback.h"

namespace neuron::testing {

/// The hub comes before the job, which uses it to its end.
struct WithHub {
  WithHub(Rank world, loopback::Personality personality) : wire(world, personality) {}
  loopback::Hub wire;
};

class LoopbackJob : private WithHub, public Job {
 public:
  explicit LoopbackJob(Rank world, loopback::Personality personality = {}, const JobSettings& settings = {})
      : WithHub(world, personality),
        Job(
            world,
            [this](Rank rank, EngineOptions& options) { options.fabric = wire.endpoint(rank, options.doorbell); },
            settings) {}

  loopback::Hub& hub() { return wire; }
};

}  // namespace neuron::testing
