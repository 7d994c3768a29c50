// ProcessEngine: the composition root: the jobs that this process takes part in, and the groups made in them.
// A resource; one per process (PerProcess), never destroyed. Any thread.
//
// The first group of a process joins a job over that group's store. A later group whose members all are in a known job
// is made in it: of several, the largest, then that of the smallest generation, so that all members choose alike.
// Members that no known job covers join another one.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "c10d_neuron/group.h"
#include "c10d_neuron/job.h"

namespace neuron {

class ProcessEngine final : public GroupSource {
 public:
  /// Answers Ctrl-C when called on Python's main thread without the GIL: throws KeyboardInterrupt.
  Result<std::shared_ptr<Group>> join(const GroupRequest& request) override;
  /// At the interpreter's exit: tells the other ranks that this one leaves.
  void leave_all();
  /// Jobs that have not been left.
  std::vector<std::shared_ptr<const Job>> jobs();

 private:
  std::shared_ptr<Job> find(const std::vector<std::int64_t>& global_ranks);

  std::mutex mutex_;
  std::vector<std::weak_ptr<Job>> jobs_;
};

/// The process-wide one.
std::shared_ptr<ProcessEngine> process_engine();

}  // namespace neuron
