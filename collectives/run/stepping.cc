// The part of the Executor that walks schedules.
#include <algorithm>
#include <cstring>
#include <tuple>

#include "collectives/reduce/reducer.h"
#include "collectives/run/executor.h"
#include "transport/base/check.h"

namespace neuron {

/// Gives the lane its next segment. False: there is none left.
bool Executor::begin_segment(Execution& execution, Lane& lane) {
  lane.is_running = execution.next_segment < execution.segments;
  if (!lane.is_running) return false;
  lane.segment = execution.next_segment++;
  lane.completed = 0;
  lane.phase = 0;
  lane.step = 0;
  lane.iteration = 0;
  lane.completed_of.fill(0);
  lane.done.assign((execution.instances + 63) / 64, 0);
  return true;
}

void Executor::run(Execution& execution) {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t i = 0; i < execution.lanes.size(); ++i) {
      if (!execution.lanes[i].is_running) continue;
      moved |= walk(execution, i);
      if (execution.is_finished) return;
      Lane& lane = execution.lanes[i];
      if (lane.completed < execution.instances) continue;
      ++execution.segments_done;
      moved |= begin_segment(execution, lane);
    }
  }
  if (execution.segments_done == execution.segments) finish(execution, {});
}

/// Issues what is ready, in order. Returns whether anything was issued.
bool Executor::walk(Execution& execution, std::uint32_t lane_index) {
  const Schedule& schedule = *execution.schedule;
  bool issued = false;
  while (true) {
    Lane& lane = execution.lanes[lane_index];
    if (lane.phase == schedule.phase_count) return issued;
    const Phase& phase = schedule.phases[lane.phase];
    if (lane.iteration == phase.iterations) {
      ++lane.phase;
      lane.iteration = 0;
      lane.step = 0;
      continue;
    }
    const auto step_index = static_cast<std::uint8_t>(phase.first_step + lane.step);
    const std::uint32_t iteration = lane.iteration;
    if (!is_ready(execution, lane, schedule.steps[step_index], iteration)) return issued;
    if (++lane.step == phase.step_count) {
      lane.step = 0;
      ++lane.iteration;
    }
    issue(execution, lane_index, step_index, iteration);
    if (execution.is_finished) return true;  // a mismatch met on the way ended it
    issued = true;
  }
}

bool Executor::is_ready(const Execution& execution, const Lane& lane, const Step& step, std::uint32_t iteration) const {
  return std::all_of(step.after.begin(), step.after.end(), [&](const After& after) {
    const InstanceRange awaited = execution.schedule->awaited(after, iteration);
    if (awaited.count == 0) return true;
    if (after.scope == Scope::all) return lane.completed_of[after.step] == awaited.count;
    return (lane.done[awaited.first / 64] >> (awaited.first % 64) & 1) != 0;
  });
}

Buffer Executor::part_of(const Execution& execution, std::uint32_t lane_index, const Chunk& chunk,
                         std::uint32_t iteration, std::size_t* whole) {
  const std::uint32_t segment = execution.lanes[lane_index].segment;
  if (chunk.space == Space::scratch) {
    const std::size_t place =
        std::size_t{lane_index} * execution.schedule->scratch_chunks + execution.schedule->chunk_at(chunk, iteration);
    return execution.scratch.slice(place * execution.scratch_slot_bytes, execution.scratch_slot_bytes);
  }
  const ChunkMap& map = chunk.space == Space::input ? execution.input : execution.output;
  const Buffer all = map.at(execution.schedule->chunk_at(chunk, iteration));
  if (whole != nullptr) *whole = all.bytes;
  return ChunkMap::lane(all, segment, execution.segment_bytes);
}

/// Source and target of a step, both as long as the message: scratch takes the other side's length.
Executor::StepMemory Executor::memory_of(const Execution& execution, std::uint32_t lane, const Step& step,
                                         std::uint32_t iteration) {
  StepMemory memory;
  std::size_t source_bytes = 0;
  if (step.source.space != Space::none) memory.source = part_of(execution, lane, step.source, iteration, &memory.whole);
  source_bytes = memory.whole;
  if (step.target.space != Space::none) memory.target = part_of(execution, lane, step.target, iteration, &memory.whole);
  if (step.source.space == Space::scratch && step.target.space != Space::none && step.target.space != Space::scratch) {
    memory.source.bytes = memory.target.bytes;
  } else if (step.target.space == Space::scratch && step.source.space != Space::none &&
             step.source.space != Space::scratch) {
    memory.target.bytes = memory.source.bytes;
    memory.whole = source_bytes;
  } else if (memory.whole == 0 && (step.source.space == Space::scratch || step.target.space == Space::scratch)) {
    const std::size_t largest = std::max(execution.input.largest(), execution.output.largest());
    memory.whole = largest;
    const std::size_t bytes =
        ChunkMap::lane(Buffer{nullptr, largest}, execution.lanes[lane].segment, execution.segment_bytes).bytes;
    memory.source.bytes = std::min(memory.source.bytes, bytes);
    memory.target.bytes = std::min(memory.target.bytes, bytes);
  }
  return memory;
}

void Executor::issue(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration) {
  const Step& step = execution.schedule->steps[step_index];
  const StepMemory memory = memory_of(execution, lane, step, iteration);
  const std::size_t bytes = step.kind == StepKind::send ? memory.source.bytes : memory.target.bytes;
  const bool is_nothing = bytes == 0 && execution.lanes[lane].segment > 0;  // the first segment always says its size
  if (!is_nothing) {
    switch (step.kind) {
      case StepKind::send:
        return issue_send(execution, lane, step_index, iteration, memory);
      case StepKind::receive:
        return issue_receive(execution, lane, step_index, iteration, memory);
      case StepKind::reduce:
        return issue_reduce(execution, lane, step_index, iteration, memory);
      case StepKind::copy:
        if (memory.source.address != memory.target.address && bytes > 0) {
          std::memmove(memory.target.address, memory.source.address, std::min(bytes, memory.source.bytes));
        }
    }
  }
  complete(execution, lane, step_index, execution.instance_of(step_index, iteration));
}

MessageKey Executor::key_for(const Execution& execution, std::uint32_t lane, const Step& step, std::uint32_t iteration,
                             Rank peer) const {
  const CommunicatorState& group = *execution.operation->group_;
  const std::uint32_t label = execution.is_point_to_point ? execution.operation->request_.tag
                                                          : message_label(step.stage, step.label.at(iteration));
  MessageKey key;
  key.group = group.spec.id;
  key.sequence = execution.sequence;
  key.tag = (std::uint64_t{execution.lanes[lane].segment} << 32) | label;
  key.epoch = group.epoch;
  key.peer = group.global(peer);
  key.is_point_to_point = execution.is_point_to_point;
  return key;
}

void Executor::issue_send(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration,
                          const StepMemory& memory) {
  const Step& step = execution.schedule->steps[step_index];
  StepSend& send = sends_.take();
  send.key = key_for(execution, lane, step, iteration, execution.schedule->peer_at(step, iteration));
  send.fingerprint = execution.fingerprint;
  send.message_bytes = memory.whole;
  send.source = memory.source;
  send.execution = &execution;
  send.lane = lane;
  send.step = step_index;
  send.instance = execution.instance_of(step_index, iteration);
  send.place = static_cast<std::uint32_t>(execution.sends.size());
  execution.sends.push_back(&send);
  scheduled_bytes_[static_cast<std::size_t>(send.key.peer)] += memory.source.bytes;
  messenger_.post_send(send);
}

StepReceive& Executor::new_receive(Execution& execution, std::uint32_t lane, std::uint8_t step_index,
                                   std::uint32_t iteration, Rank peer, const StepMemory& memory) {
  StepReceive& receive = receives_.take();
  receive.key = key_for(execution, lane, execution.schedule->steps[step_index], iteration, peer);
  receive.fingerprint = execution.fingerprint;
  receive.message_bytes = memory.whole;
  receive.target = memory.target;
  receive.execution = &execution;
  receive.reduce = nullptr;
  receive.lane = lane;
  receive.step = step_index;
  receive.instance = execution.instance_of(step_index, iteration);
  receive.place = static_cast<std::uint32_t>(execution.receives.size());
  execution.receives.push_back(&receive);
  return receive;
}

void Executor::issue_receive(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration,
                             const StepMemory& memory) {
  const Rank peer = execution.schedule->peer_at(execution.schedule->steps[step_index], iteration);
  messenger_.post_receive(new_receive(execution, lane, step_index, iteration, peer, memory));
}

void Executor::issue_reduce(Execution& execution, std::uint32_t lane, std::uint8_t step_index, std::uint32_t iteration,
                            const StepMemory& memory) {
  const Step& step = execution.schedule->steps[step_index];
  PendingReduce& reduce = reduces_.take();
  reduce.operands.clear();
  reduce.kept.clear();
  reduce.missing = 0;
  reduce.target = memory.target;
  reduce.lane = lane;
  reduce.step = step_index;
  reduce.instance = execution.instance_of(step_index, iteration);
  reduce.completes = step.completes_reduction;
  reduce.place = static_cast<std::uint32_t>(execution.reduces.size());
  execution.reduces.push_back(&reduce);

  StepMemory lent = memory;
  lent.target.address = nullptr;
  bool has_local = step.source.space == Space::none;
  const std::size_t first_receive = execution.receives.size();
  for (std::uint32_t j = 0; j < step.fan; ++j) {
    const Rank peer = execution.schedule->peer_at(step, std::int64_t{iteration} * step.fan + j);
    if (peer == execution.schedule->rank) {
      reduce.operands.push_back(memory.source.address);
      has_local = true;
      continue;
    }
    StepReceive& receive = new_receive(execution, lane, step_index, iteration, peer, lent);
    receive.reduce = &reduce;
    receive.position = static_cast<std::uint32_t>(reduce.operands.size());
    reduce.operands.push_back(nullptr);
    ++reduce.missing;
  }
  if (!has_local) reduce.operands.push_back(memory.source.address);
  if (reduce.missing == 0) return combine(execution, reduce);
  // Posting may complete the reduction at once, which takes receives out of the list: collect them first.
  posting_.assign(execution.receives.begin() + static_cast<std::ptrdiff_t>(first_receive), execution.receives.end());
  for (StepReceive* receive : posting_) {
    messenger_.post_receive(*receive);
    if (execution.is_finished) return;
  }
}

void Executor::on_sent(SendPost& post) {
  auto& send = static_cast<StepSend&>(post);
  Execution& execution = *send.execution;
  execution.sends[send.place] = execution.sends.back();
  execution.sends[send.place]->place = send.place;
  execution.sends.pop_back();
  const auto [lane, step, instance] = std::tuple(send.lane, send.step, send.instance);
  sends_.give(send);
  complete(execution, lane, step, instance);
}

void Executor::end_receive(StepReceive& receive) {
  Execution& execution = *receive.execution;
  execution.receives[receive.place] = execution.receives.back();
  execution.receives[receive.place]->place = receive.place;
  execution.receives.pop_back();
  receives_.give(receive);
}

void Executor::on_received(ReceivePost& post, std::span<const std::byte> view) {
  auto& receive = static_cast<StepReceive&>(post);
  if (receive.reduce != nullptr) return take_operand(receive, view);
  Execution& execution = *receive.execution;
  const auto [lane, step, instance] = std::tuple(receive.lane, receive.step, receive.instance);
  end_receive(receive);
  complete(execution, lane, step, instance);
}

/// The last operand is used where it lies; the earlier ones are kept until it is there.
void Executor::take_operand(StepReceive& receive, std::span<const std::byte> view) {
  PendingReduce& reduce = *receive.reduce;
  Execution& execution = *receive.execution;
  if (--reduce.missing > 0) {
    reduce.operands[receive.position] = messenger_.keep(receive, view);
    reduce.kept.push_back(&receive);
    return;
  }
  reduce.operands[receive.position] = view.data();
  end_receive(receive);
  combine(execution, reduce);
}

void Executor::combine(Execution& execution, PendingReduce& pending) {
  const Request& request = execution.operation->request_;
  const std::size_t count = pending.target.bytes / bytes_of(request.data_type);
  const bool divides = pending.completes && request.reduce_op == ReduceOp::average;
  const double scale = divides ? 1.0 / execution.schedule->world : 1.0;
  if (count > 0) reduce(pending.target.address, pending.operands, count, request.data_type, request.reduce_op, scale);
  bool is_intact = true;
  for (StepReceive* receive : pending.kept) {
    is_intact &= messenger_.give_back(*receive);
    end_receive(*receive);
  }
  pending.kept.clear();
  execution.reduces[pending.place] = execution.reduces.back();
  execution.reduces[pending.place]->place = pending.place;
  execution.reduces.pop_back();
  const auto [lane, step, instance] = std::tuple(pending.lane, pending.step, pending.instance);
  reduces_.give(pending);
  if (is_intact) return complete(execution, lane, step, instance);
  poison(*execution.operation->group_, lost_view_error(execution), true);
}

Status Executor::lost_view_error(const Execution& execution) const {
  return {Code::aborted,
          execution.operation->describe() + ": a peer gave up the operation while its data was being read."};
}

void Executor::complete(Execution& execution, std::uint32_t lane_index, std::uint8_t step, std::uint32_t instance) {
  Lane& lane = execution.lanes[lane_index];
  lane.done[instance / 64] |= std::uint64_t{1} << (instance % 64);
  ++lane.completed_of[step];
  ++lane.completed;
  enqueue(execution);
}

}  // namespace neuron
