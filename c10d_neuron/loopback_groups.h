// make_loopback_groups: N process groups in one process, one engine each, over the loopback transport: ranks are
// threads. For tests; the composition root of a job without control plane, shared memory or libfabric.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "c10d_neuron/process_group_neuron.h"

namespace neuron {

/// A value. `personality`: "in_order", "efa_direct" (reorders, refuses, writes twice) or "no_remote_write".
struct LoopbackOptions {
  Rank world = 2;
  std::uint64_t seed = 1;
  std::string personality = "efa_direct";
  std::vector<std::string> hosts;  // which host each rank pretends to be on; empty: all on one
  std::chrono::milliseconds timeout{30'000};
};

/// Index = rank. Throws ValueError.
std::vector<c10::intrusive_ptr<ProcessGroupNeuron>> make_loopback_groups(const LoopbackOptions& options);

}  // namespace neuron
