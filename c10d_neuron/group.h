// Group: one process's membership in one group: its communicator and the engine below it. A resource, shared by the
// process group and by whoever waits for one of its operations. GroupSource makes groups: the process-wide engine in a
// job, several engines in one process in tests. Any thread.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/run/engine.h"
#include "transport/base/fork_guard.h"

namespace neuron {

struct Group {
  /// Throws in a forked child: engine and transports belong to the parent.
  void check_process() const;

  const std::uint32_t forks = fork_count();
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Communicator> communicator;
  std::shared_ptr<void> lease;  // given back when the group is closed: the last one ends this process's part of the job
  std::vector<std::int64_t> global_ranks;  // as torch counts them; index = group rank
};

/// What the factory is told about a group that this process is a member of. A value.
struct GroupRequest {
  c10::intrusive_ptr<c10d::Store> store;  // of the group alone (prefixed by c10d)
  int rank = 0;
  int size = 1;
  std::string name;
  std::vector<std::int64_t> global_ranks;  // empty: 0..size-1
  std::chrono::milliseconds timeout{0};
};

class GroupSource {
 public:
  virtual ~GroupSource() = default;
  /// Blocks until the members have found each other, at most the request's timeout. Throws only what a signal handler
  /// raises.
  virtual Result<std::shared_ptr<Group>> join(const GroupRequest& request) = 0;
};

}  // namespace neuron
