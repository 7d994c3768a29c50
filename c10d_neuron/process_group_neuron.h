// ProcessGroupNeuron: the c10d backend: one process's view of one group. Checks and translates each call (Call), issues
// it (Communicator) and hands out a Work (WorkNeuron). A resource, owned by c10d through intrusive_ptr. Any thread; no
// call but construction and split blocks on peers. Errors: see call.h (bad arguments) and errors.h (what ended an
// operation, a closed group).
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "c10d_neuron/call.h"
#include "c10d_neuron/group.h"
#include "c10d_neuron/work_neuron.h"

namespace neuron {

class ProcessGroupNeuron final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    explicit Options(const std::string& name = "neuron", std::chrono::milliseconds limit = kBackendDefaultTimeout)
        : c10d::Backend::Options(name, limit) {}
  };

  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `source` makes the groups that split() asks for. `store` is kept for them.
  ProcessGroupNeuron(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::shared_ptr<Group> group,
                     std::shared_ptr<GroupSource> source, c10::intrusive_ptr<Options> options);
  /// Closes the group on this rank; never waits for peers.
  ~ProcessGroupNeuron() override;

  const std::string getBackendName() const override { return options_->backend; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setGroupUid(const std::string& uid) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  /// Nothing to agree on: every group counts from 0.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  /// Durations are always measured.
  void enableCollectivesTiming() override {}

  /// The group of `ranks` (of this group); null on a rank that is not among them. Collective over `ranks` only.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  [[nodiscard]] std::uint64_t split_count() const { return splits_; }

  /// Ends the group's operations on every reachable rank, then closes the group here.
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;

  [[nodiscard]] const Group& group() const { return *group_; }

 private:
  using WorkNeuronPtr = c10::intrusive_ptr<WorkNeuron>;

  Call call(const Entry& entry) const { return {entry, where_, rank_, size_}; }
  WorkNeuronPtr issue(Call call, std::chrono::milliseconds timeout, Urgency urgency);
  /// Issues each with one doorbell for all and waits for none.
  WorkPtr issue_together(c10d::OpType type, std::vector<Call> calls, std::chrono::milliseconds timeout, bool async_op);
  Call all_gather_call(const at::Tensor& output, const at::Tensor& input) const;
  Call reduce_scatter_call(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) const;
  void tell_profiler(const Call& call, std::uint64_t sequence, bool async_op) const;
  [[nodiscard]] bool is_coalescing_here() const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  const std::shared_ptr<GroupSource> source_;
  std::shared_ptr<Group> group_;
  std::string where_;  // how messages call the group
  std::atomic<std::uint64_t> splits_{0};
  std::mutex closing_;

  mutable std::mutex coalescing_mutex_;
  std::atomic<bool> coalescing_{false};
  std::thread::id coalescing_thread_;
  std::vector<WorkNeuronPtr> coalesced_;
};

}  // namespace neuron
