#include "c10d_neuron/process_group_neuron.h"

#include <ATen/record_function.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <algorithm>

#include "c10d_neuron/errors.h"
#include "c10d_neuron/gil.h"

namespace neuron {

void Group::check_process() const {
  if (forks == fork_count()) return;
  raise(Status(Code::unsupported,
               "group \"" + communicator->spec().name +
                   "\" belongs to the process that this one was forked from and cannot be "
                   "used here: call init_process_group in the child, or start it with the \"spawn\" method."));
}

ProcessGroupNeuron::ProcessGroupNeuron(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                       std::shared_ptr<Group> group, std::shared_ptr<GroupSource> source,
                                       c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      store_(std::move(store)),
      options_(std::move(options)),
      source_(std::move(source)),
      group_(std::move(group)),
      where_(c10::str(options_->backend, " group \"", group_->communicator->spec().name, "\"")) {
  options_->global_ranks_in_group.assign(group_->global_ranks.begin(), group_->global_ranks.end());
  options_->group_name = group_->communicator->spec().name;
}

ProcessGroupNeuron::~ProcessGroupNeuron() {
  if (group_->forks != fork_count()) {
    // A forked child: threads and locks of the engine stayed with the parent.
    new auto(std::move(group_));
    return;
  }
  shutdown();
  const ReleaseGil no_gil;
  group_.reset();
}

void ProcessGroupNeuron::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  group_->communicator->set_timeout(timeout.count() * kMillisecond);
}

void ProcessGroupNeuron::setGroupUid(const std::string& uid) { Backend::setGroupUid(uid); }

// ---- issuing ----

bool ProcessGroupNeuron::is_coalescing_here() const {
  if (!coalescing_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(coalescing_mutex_);
  return coalescing_thread_ == std::this_thread::get_id();
}

ProcessGroupNeuron::WorkNeuronPtr ProcessGroupNeuron::issue(Call call, std::chrono::milliseconds timeout,
                                                            Urgency urgency) {
  group_->check_process();
  const bool coalescing = is_coalescing_here();
  call.request.urgency = coalescing ? Urgency::deferred : urgency;
  if (timeout.count() > 0) call.request.timeout = timeout.count() * kMillisecond;
  const bool profiled = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value();
  if (profiled) tell_profiler(call, group_->communicator->sequence(), urgency != Urgency::caller);
  OperationRef operation = value_or_raise(group_->communicator->issue(std::move(call.request)));
  const WorkTitle title{rank_, call.entry.type, profiled ? call.entry.title : nullptr};
  auto work = c10::make_intrusive<WorkNeuron>(title, group_, std::move(operation), std::move(call.memory));
  if (coalescing) {
    const std::lock_guard lock(coalescing_mutex_);
    coalesced_.push_back(work);
  }
  return work;
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::issue_together(c10d::OpType type, std::vector<Call> calls,
                                                               std::chrono::milliseconds timeout, bool async_op) {
  std::vector<WorkNeuronPtr> parts;
  parts.reserve(calls.size());
  for (Call& each : calls) parts.push_back(issue(std::move(each), timeout, Urgency::deferred));
  if (async_op && !is_coalescing_here()) group_->engine->ring();
  return c10::make_intrusive<CoalescedWork>(WorkTitle{rank_, type, nullptr}, std::move(parts));
}

void ProcessGroupNeuron::tell_profiler(const Call& call, std::uint64_t sequence, bool async_op) const {
  const auto elements = [](const Tensors& tensors) {
    std::int64_t count = 0;
    for (const at::Tensor& tensor : tensors) count += tensor.numel();
    return count;
  };
  const auto& global = group_->global_ranks;
  const Tensors& any = call.memory.held.empty() ? call.memory.results : call.memory.held;
  const auto first = static_cast<int>(global.front());
  const auto stride = global.size() > 1 ? static_cast<int>(global[1] - global[0]) : 1;
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
      std::make_tuple(static_cast<std::int64_t>(sequence), c10d::isP2POp(call.entry.type)),
      std::make_tuple(getGroupUid(), getGroupDesc()), any, call.memory.results, rank_, std::string(call.entry.name),
      elements(any), elements(call.memory.results), any.empty() ? at::kByte : any.front().scalar_type(),
      std::vector<std::int64_t>(), std::vector<std::int64_t>(), first, stride, size_, async_op);
}

void ProcessGroupNeuron::startCoalescing() {
  bool left_over = false;
  {
    const std::lock_guard lock(coalescing_mutex_);
    left_over = !coalesced_.empty();
    coalesced_.clear();
    coalescing_thread_ = std::this_thread::get_id();
    coalescing_.store(true, std::memory_order_release);
  }
  // A block that was left by an exception has issued operations and never rung for them.
  if (left_over) group_->engine->ring();
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::endCoalescing() {
  std::vector<WorkNeuronPtr> parts;
  {
    const std::lock_guard lock(coalescing_mutex_);
    parts.swap(coalesced_);
    coalescing_.store(false, std::memory_order_release);
  }
  group_->check_process();
  group_->engine->ring();
  return c10::make_intrusive<CoalescedWork>(WorkTitle{rank_, c10d::OpType::COALESCED, nullptr}, std::move(parts));
}

// ---- the group's life ----

std::uint64_t ProcessGroupNeuron::getSequenceNumberForGroup() { return group_->communicator->sequence(); }

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                            const std::vector<int>& ranks,
                                                            const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  group_->check_process();
  ++splits_;
  GroupRequest request;
  request.store = store ? store : store_;
  request.size = static_cast<int>(ranks.size());
  request.rank = -1;
  request.timeout = options ? options->timeout : options_->timeout;
  request.name = options && !options->group_name.empty() ? options->group_name
                                                         : c10::str(options_->group_name, ":split:", splits_.load());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size_) {
      raise(Status(Code::invalid_argument, c10::str("split of ", where_, ": ranks[", i, "] is ", ranks[i],
                                                    ", the group has ranks 0 to ", size_ - 1)));
    }
    if (ranks[i] == rank_) request.rank = static_cast<int>(i);
    request.global_ranks.push_back(group_->global_ranks[static_cast<std::size_t>(ranks[i])]);
  }
  if (request.rank < 0) return nullptr;
  auto child_options = c10::make_intrusive<Options>(options_->backend, request.timeout);
  if (options) child_options->group_desc = options->group_desc;
  const ReleaseGil no_gil;
  auto group = value_or_raise(source_->join(request));
  return c10::make_intrusive<ProcessGroupNeuron>(request.store, request.rank, request.size, std::move(group), source_,
                                                 std::move(child_options));
}

void ProcessGroupNeuron::abort() {
  if (group_->forks != fork_count()) return;
  {
    const ReleaseGil no_gil;
    group_->communicator->abort(c10::str("abort() was called on rank ", rank_, "."));
  }
  shutdown();
}

void ProcessGroupNeuron::shutdown() {
  if (group_->forks != fork_count()) return;
  const ReleaseGil no_gil;
  const std::lock_guard lock(closing_);
  group_->communicator->close();
  group_->lease.reset();
}

c10d::ErrorType ProcessGroupNeuron::getError() {
  const Status error = group_->communicator->error();
  switch (error.code()) {
    case Code::ok:
      return c10d::ErrorType::SUCCESS;
    case Code::timeout:
      return c10d::ErrorType::TIMEOUT;
    case Code::peer_lost:
    case Code::mismatch:
      return c10d::ErrorType::REMOTE_ERROR;
    default:
      return c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace neuron
