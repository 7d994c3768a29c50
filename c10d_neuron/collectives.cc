// The entry points of ProcessGroupNeuron: each checks its arguments, names the memory, and issues.
#include <c10/util/StringUtil.h>

#include "c10d_neuron/process_group_neuron.h"

namespace neuron {

namespace {

using c10d::OpType;

constexpr Entry kBroadcast{Collective::broadcast, OpType::BROADCAST, "broadcast", "neuron:broadcast"};
constexpr Entry kAllReduce{Collective::all_reduce, OpType::ALLREDUCE, "all_reduce", "neuron:all_reduce"};
constexpr Entry kReduce{Collective::reduce, OpType::REDUCE, "reduce", "neuron:reduce"};
constexpr Entry kAllGather{Collective::all_gather, OpType::ALLGATHER, "all_gather", "neuron:all_gather"};
constexpr Entry kAllGatherBase{Collective::all_gather, OpType::_ALLGATHER_BASE, "all_gather_into_tensor",
                               "neuron:_all_gather_base"};
constexpr Entry kGather{Collective::gather, OpType::GATHER, "gather", "neuron:gather"};
constexpr Entry kScatter{Collective::scatter, OpType::SCATTER, "scatter", "neuron:scatter"};
constexpr Entry kReduceScatter{Collective::reduce_scatter, OpType::REDUCE_SCATTER, "reduce_scatter",
                               "neuron:reduce_scatter"};
constexpr Entry kReduceScatterBase{Collective::reduce_scatter, OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor",
                                   "neuron:_reduce_scatter_base"};
constexpr Entry kAllToAll{Collective::all_to_all, OpType::ALLTOALL, "all_to_all", "neuron:all_to_all"};
constexpr Entry kAllToAllBase{Collective::all_to_all, OpType::ALLTOALL_BASE, "all_to_all_single", "neuron:all_to_all"};
constexpr Entry kSend{Collective::send, OpType::SEND, "send", "neuron:send"};
constexpr Entry kReceive{Collective::receive, OpType::RECV, "recv", "neuron:recv"};
constexpr Entry kReceiveAny{Collective::receive, OpType::RECVANYSOURCE, "recv from any source", "neuron:recvAnySource"};
constexpr Entry kBarrier{Collective::barrier, OpType::BARRIER, "barrier", "neuron:barrier"};

/// A synchronous caller waits at once and drives the engine itself.
Urgency urgency_of(bool async_op) { return async_op ? Urgency::background : Urgency::caller; }

void check_pairs(const Call& call, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  if (outputs.size() == inputs.size()) return;
  call.fail(c10::str("outputs holds ", outputs.size(), " tensors and inputs ", inputs.size(),
                     ": a coalesced call takes pairs of them"));
}

}  // namespace

using WorkPtr = ProcessGroupNeuron::WorkPtr;

WorkPtr ProcessGroupNeuron::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Call call = this->call(kBroadcast);
  const at::Tensor& tensor = call.only("tensors", tensors);
  call.set_root("src", options.rootRank);
  call.check_root_tensor(options.rootTensor);
  call.moves(tensor);
  if (call.is_root()) {
    // Only read: a copy of what is not contiguous suffices.
    call.request.output = Buffers::of(call.input("tensors", tensor));
    call.memory.results = {tensor};
  } else {
    call.request.output = Buffers::of(call.output("tensors", tensor));
  }
  call.request.input = call.request.output;
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Call call = this->call(kAllReduce);
  const at::Tensor& tensor = call.only("tensors", tensors);
  if (options.sparseIndices) call.fail_unsupported("sparse indices are not supported: reduce a dense tensor");
  call.reduces("tensors", tensor, options.reduceOp);
  call.request.output = Buffers::of(call.in_out("tensors", tensor));
  call.request.input = call.request.output;
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::allreduce_sparse(Tensors& /*tensors*/, const c10d::AllreduceOptions& /*options*/) {
  call(kAllReduce).fail_unsupported("sparse tensors are not supported: convert them with .to_dense()");
}

WorkPtr ProcessGroupNeuron::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  std::vector<Call> calls;
  calls.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    Call call = this->call(kAllReduce);
    call.check_tensor("tensors", tensor);
    call.check_same_type("tensors", tensor, tensors.front());
    call.reduces("tensors", tensor, options.reduceOp);
    call.request.output = Buffers::of(call.in_out("tensors", tensor));
    call.request.input = call.request.output;
    calls.push_back(std::move(call));
  }
  return issue_together(OpType::ALLREDUCE_COALESCED, std::move(calls), options.timeout, options.asyncOp);
}

WorkPtr ProcessGroupNeuron::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call = this->call(kReduce);
  const at::Tensor& tensor = call.only("tensors", tensors);
  call.set_root("dst", options.rootRank);
  call.check_root_tensor(options.rootTensor);
  call.reduces("tensors", tensor, options.reduceOp);
  if (call.is_root()) {
    call.request.output = Buffers::of(call.in_out("tensors", tensor));
    call.request.input = call.request.output;
  } else {
    call.request.input = Buffers::of(call.input("tensors", tensor));
    call.memory.results = {tensor};
  }
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) {
  Call call = this->call(kAllGather);
  const at::Tensor& input = call.only("tensor", inputs);
  const Tensors& list = call.list("tensor_list", outputs);
  call.check_same_shape("tensor_list", list, input);
  call.moves(input);
  call.request.input = Buffers::of(call.input("tensor", input));
  call.request.output = Buffers::of(call.outputs("tensor_list", list));
  call.separate(true);
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

Call ProcessGroupNeuron::all_gather_call(const at::Tensor& output, const at::Tensor& input) const {
  Call call = this->call(kAllGatherBase);
  call.check_tensor("output_tensor", output);
  call.check_tensor("input_tensor", input);
  call.check_multiple("output_tensor", output, "input_tensor", input);
  call.moves(input);
  call.request.input = Buffers::of(call.input("input_tensor", input));
  call.request.output = Buffers::of(call.output("output_tensor", output));
  call.separate(true);
  return call;
}

WorkPtr ProcessGroupNeuron::_allgather_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& options) {
  return issue(all_gather_call(output, input), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  check_pairs(call(kAllGatherBase), outputs, inputs);
  std::vector<Call> calls;
  calls.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) calls.push_back(all_gather_call(outputs[i], inputs[i]));
  return issue_together(OpType::COALESCED, std::move(calls), options.timeout, options.asyncOp);
}

WorkPtr ProcessGroupNeuron::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Call call = this->call(kGather);
  const at::Tensor& input = call.only("tensor", inputs);
  call.set_root("dst", options.rootRank);
  call.moves(input);
  call.request.input = Buffers::of(call.input("tensor", input));
  if (call.is_root()) {
    const Tensors& list = call.list("gather_list", outputs);
    call.check_same_shape("gather_list", list, input);
    call.request.output = Buffers::of(call.outputs("gather_list", list));
    call.separate(true);
  } else {
    call.check_empty("gather_list", outputs, "the result goes to");
  }
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                    const c10d::ScatterOptions& options) {
  Call call = this->call(kScatter);
  const at::Tensor& output = call.only("tensor", outputs);
  call.set_root("src", options.rootRank);
  call.moves(output);
  call.request.output = Buffers::of(call.output("tensor", output));
  if (call.is_root()) {
    const Tensors& list = call.list("scatter_list", inputs);
    call.check_same_shape("scatter_list", list, output);
    call.request.input = Buffers::of(call.inputs("scatter_list", list));
    call.separate(true);
  } else {
    call.check_empty("scatter_list", inputs, "the values come from");
  }
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                           const c10d::ReduceScatterOptions& options) {
  Call call = this->call(kReduceScatter);
  const at::Tensor& output = call.only("output", outputs);
  const Tensors& list = call.list("input_list", inputs);
  call.check_same_shape("input_list", list, output);
  call.reduces("output", output, options.reduceOp);
  call.request.input = Buffers::of(call.inputs("input_list", list));
  call.request.output = Buffers::of(call.output("output", output));
  call.separate(true);
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

Call ProcessGroupNeuron::reduce_scatter_call(const at::Tensor& output, const at::Tensor& input,
                                             const c10d::ReduceOp& op) const {
  Call call = this->call(kReduceScatterBase);
  call.check_tensor("output", output);
  call.check_tensor("input", input);
  call.check_multiple("input", input, "output", output);
  call.reduces("output", output, op);
  call.request.input = Buffers::of(call.input("input", input));
  call.request.output = Buffers::of(call.output("output", output));
  call.separate(true);
  return call;
}

WorkPtr ProcessGroupNeuron::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) {
  return issue(reduce_scatter_call(output, input, options.reduceOp), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) {
  check_pairs(call(kReduceScatterBase), outputs, inputs);
  std::vector<Call> calls;
  calls.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    calls.push_back(reduce_scatter_call(outputs[i], inputs[i], options.reduceOp));
  }
  return issue_together(OpType::REDUCE_SCATTER_TENSOR_COALESCED, std::move(calls), options.timeout, options.asyncOp);
}

WorkPtr ProcessGroupNeuron::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Call call = this->call(kAllToAll);
  call.check_length("output_tensor_list", outputs);
  call.check_length("input_tensor_list", inputs);
  for (const at::Tensor& tensor : outputs) call.check_same_type("output_tensor_list", tensor, inputs.front());
  for (const at::Tensor& tensor : inputs) call.check_same_type("input_tensor_list", tensor, inputs.front());
  call.moves(inputs.front());
  call.request.input = Buffers::of(call.inputs("input_tensor_list", inputs));
  call.request.output = Buffers::of(call.outputs("output_tensor_list", outputs));
  call.separate(false);
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::alltoall_base(at::Tensor& output, at::Tensor& input,
                                          std::vector<std::int64_t>& output_splits,
                                          std::vector<std::int64_t>& input_splits,
                                          const c10d::AllToAllOptions& options) {
  Call call = this->call(kAllToAllBase);
  call.check_tensor("output", output);
  call.check_tensor("input", input);
  call.check_same_type("output", output, input);
  call.moves(input);
  const Buffer from = call.input("input", input);
  const Buffer to = call.output("output", output);
  call.request.input = Buffers::of(call.split("input", "input_split_sizes", input, from, input_splits));
  call.request.output = Buffers::of(call.split("output", "output_split_sizes", output, to, output_splits));
  call.separate(false);
  return issue(std::move(call), options.timeout, urgency_of(options.asyncOp));
}

WorkPtr ProcessGroupNeuron::send(Tensors& tensors, int destination, int tag) {
  Call call = this->call(kSend);
  const at::Tensor& tensor = call.only("tensor", tensors);
  call.set_peer("dst", destination, tag);
  call.moves(tensor);
  call.request.input = Buffers::of(call.input("tensor", tensor));
  call.memory.results = {tensor};
  return issue(std::move(call), c10d::kUnsetTimeout, Urgency::soon);
}

WorkPtr ProcessGroupNeuron::recv(Tensors& tensors, int source, int tag) {
  Call call = this->call(kReceive);
  const at::Tensor& tensor = call.only("tensor", tensors);
  call.set_peer("src", source, tag);
  call.moves(tensor);
  call.request.output = Buffers::of(call.output("tensor", tensor));
  return issue(std::move(call), c10d::kUnsetTimeout, Urgency::soon);
}

WorkPtr ProcessGroupNeuron::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  call(kReceiveAny)
      .fail_unsupported("src is None, but receiving from any source is not supported: name the source rank");
}

WorkPtr ProcessGroupNeuron::barrier(const c10d::BarrierOptions& options) {
  return issue(call(kBarrier), options.timeout, urgency_of(options.asyncOp));
}

void ProcessGroupNeuron::monitoredBarrier(const c10d::BarrierOptions& /*options*/, bool /*wait_all_ranks*/) {
  call(kBarrier).fail_unsupported(
      "monitored_barrier is not supported: use barrier(), whose timeout names the ranks that have not arrived, with "
      "host and pid");
}

}  // namespace neuron
