// WorkNeuron: one operation as c10d sees it; CoalescedWork: several that are waited for together.
// Resources, shared through intrusive_ptr by c10d and the user. Any thread, with or without the GIL (wait releases it).
// wait throws what ended the operation (see errors.h), or KeyboardInterrupt, which ends the wait and not the operation.
#pragma once
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "c10d_neuron/group.h"
#include "collectives/run/operation.h"

namespace neuron {

/// The tensors of an operation. A value; lives until the operation is done.
struct WorkMemory {
  std::vector<at::Tensor> results;                             // the user's outputs, in the order of the call
  std::vector<at::Tensor> held;                                // inputs and contiguous copies
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_back;  // (user's output, its contiguous copy)

  void copy_back();
};

/// The end of the profiler's record of an operation: written by whoever comes first, the waiter or the callback
/// executor. wait() returns after it, so that a profiler which is stopped then has nothing pending.
class ProfilerRecord {
 public:
  explicit ProfilerRecord(std::function<void()> end) : end_(std::move(end)) {}
  void finish();

 private:
  std::mutex mutex_;
  std::function<void()> end_;
};

/// What describes a Work to c10d and its profiler. A value.
struct WorkTitle {
  int rank = -1;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = nullptr;  // static; null: not profiled
};

class WorkNeuron final : public c10d::Work {
 public:
  WorkNeuron(const WorkTitle& title, std::weak_ptr<Group> group, OperationRef operation, WorkMemory memory);
  ~WorkNeuron() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  /// Zero or a negative timeout: only the operation's own deadline counts.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  /// Ends the operations of the whole group, on every rank.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  /// Milliseconds from the call to the end.
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override;

 private:
  friend class CoalescedWork;

  /// After the end, once: copies staged results back, ends the profiler's record, lets inputs go.
  void settle();
  /// The Work goes before its operation: inputs and outputs must stay, and staged results must still arrive.
  void leave_memory_to_operation();
  void wait_until_done(std::chrono::milliseconds timeout);
  void complete_future();
  [[nodiscard]] Status status() const;

  const std::weak_ptr<Group> group_;
  const OperationRef operation_;
  WorkMemory memory_;
  std::shared_ptr<ProfilerRecord> record_;  // null: not profiled
  std::atomic<bool> settled_{false};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_
};

class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(const WorkTitle& title, std::vector<c10::intrusive_ptr<WorkNeuron>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  /// Completes with the outputs of all parts, in order, after the last part, or with the first part's error.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override;

 private:
  void complete_future();
  void unregister();

  const std::vector<c10::intrusive_ptr<WorkNeuron>> parts_;
  std::atomic<std::size_t> unfinished_{0};          // parts that the future still waits for
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_
};

}  // namespace neuron
