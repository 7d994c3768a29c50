#include "collectives/run/executor.h"

#include <algorithm>

#include "transport/base/check.h"
#include "transport/base/log.h"

namespace neuron {
namespace {

constexpr std::uint32_t kLanes = 4;  // segments of an operation on their way at once
constexpr Nanoseconds kFirstQuestion = 20 * kMillisecond;
constexpr std::size_t kAlignment = 64;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return Random::mix(hash ^ (value + 0x9E3779B97F4A7C15ULL));
}

/// All-reduce cuts anywhere between elements, at cache lines; the others are cut evenly by definition.
std::size_t stride_of(const Buffers& buffers, std::uint32_t chunks, Collective collective) {
  const std::size_t bytes = buffers.whole.bytes;
  if (collective != Collective::all_reduce || chunks == 1) return bytes / chunks;
  const std::size_t lines = (bytes + kAlignment - 1) / kAlignment;
  return (lines + chunks - 1) / chunks * kAlignment;
}

std::size_t operation_bytes(const Request& request) { return std::max(request.input.bytes(), request.output.bytes()); }

}  // namespace

Executor::Executor(Options options, Tuner tuner, const Clock& clock, FlightRing& flight, ExecutorHost& host)
    : options_(std::move(options)),
      tuner_(std::move(tuner)),
      clock_(clock),
      flight_(flight),
      host_(host),
      messenger_(
          [this] {
            Messenger::Options messenger;
            messenger.rank = options_.rank;
            messenger.generation = options_.generation;
            for (const PeerInfo& peer : options_.peers) messenger.nonces.push_back(peer.nonce);
            messenger.transports = options_.transports;
            return messenger;
          }(),
          *this),
      deaths_(options_.peers.size()),
      left_at_(options_.peers.size(), 0),
      scheduled_bytes_(options_.peers.size(), 0) {}

Executor::~Executor() = default;

void Executor::submit(OperationRef operation) {
  CommunicatorState& group = *operation->group_;
  if (groups_.find(group.spec.id) == groups_.end()) {
    finish_operation(*operation, {Code::aborted, operation->describe() + ": the group has been closed on this rank."});
    return;
  }
  if (operation->epoch_ != group.epoch) {
    const Status reason = group.error();
    [[maybe_unused]] const Status heard = group.take_pending_error();  // by this operation: not at the next call too
    finish_operation(*operation, reason.is_ok() ? Status(Code::aborted, "The group was aborted.") : reason);
    return;
  }
  const bool is_collective =
      operation->collective() != Collective::send && operation->collective() != Collective::receive;
  if (is_collective && (group.active_collectives >= CommunicatorState::kActiveCollectives || !group.waiting.empty())) {
    group.waiting.push_back(std::move(operation));
    ++active_;
    return;
  }
  start(std::move(operation));
}

void Executor::start_waiting(CommunicatorState& group) {
  while (!group.waiting.empty() && group.active_collectives < CommunicatorState::kActiveCollectives) {
    OperationRef operation = std::move(group.waiting.front());
    group.waiting.pop_front();
    --active_;
    start(std::move(operation));
  }
}

void Executor::start(OperationRef operation) {
  CommunicatorState& group = *operation->group_;
  Execution& execution = executions_.take();
  const Choice choice = prepare(execution, operation);
  group.active.push_back(execution);
  ++active_;
  if (!execution.is_point_to_point) ++group.active_collectives;
  flight_.started(operation->record_, choice, group.topology_digest, clock_.now());
  if (!check_early_arrival(execution)) return;
  enqueue(execution);
}

/// Thousands of sends may be on their way: those to one peer share their schedule.
void Executor::prepare_schedule(Execution& execution, const Choice& choice) {
  CommunicatorState& group = *execution.operation->group_;
  const Request& request = execution.operation->request_;
  if (!execution.is_point_to_point) {
    execution.own_schedule = &schedules_.take();
    *execution.own_schedule = Tuner::build(request.collective, choice, group.rank, group.world(), request.root);
    execution.schedule = execution.own_schedule;
    return;
  }
  auto& schedules = request.collective == Collective::send ? group.send_schedules : group.receive_schedules;
  const auto [entry, is_new] = schedules.try_emplace(request.root);
  if (is_new) entry->second = Tuner::build(request.collective, choice, group.rank, group.world(), request.root);
  execution.schedule = &entry->second;
}

Choice Executor::prepare(Execution& execution, const OperationRef& operation) {
  const CommunicatorState& group = *operation->group_;
  const Request& request = operation->request_;
  const Choice choice = tuner_.choose(request.collective, operation_bytes(request), group.topology);
  execution.operation = operation;
  execution.segment_bytes = choice.segment_bytes;
  execution.is_finished = false;
  execution.is_point_to_point = request.collective == Collective::send || request.collective == Collective::receive;
  execution.question_interval = kFirstQuestion;
  execution.next_question = clock_.now() + kFirstQuestion;
  execution.gathers_until = 0;
  execution.answers.clear();
  prepare_schedule(execution, choice);
  prepare_memory(execution, request);
  prepare_sequence(execution, *operation);

  const Schedule& schedule = *execution.schedule;
  execution.instances = 0;
  for (std::uint8_t p = 0; p < schedule.phase_count; ++p) {
    const Phase& phase = schedule.phases[p];
    execution.first_instance[p] = execution.instances;
    execution.instances += phase.iterations * phase.step_count;
    for (std::uint8_t s = 0; s < phase.step_count; ++s) execution.phase_of[phase.first_step + s] = p;
  }
  execution.next_segment = execution.segments_done = 0;
  execution.lanes.resize(std::min(execution.segments, kLanes));
  for (Lane& lane : execution.lanes) begin_segment(execution, lane);
  return choice;
}

void Executor::prepare_memory(Execution& execution, const Request& request) {
  const Schedule& schedule = *execution.schedule;
  const Buffers& input = request.collective == Collective::broadcast ? request.output : request.input;
  const auto map = [&](const Buffers& buffers, Space space) {
    return ChunkMap(buffers, stride_of(buffers, schedule.chunks_in(space), request.collective));
  };
  execution.input = map(input, Space::input);
  execution.output = map(request.output, Space::output);
  const std::size_t largest = std::max(execution.input.largest(), execution.output.largest());
  execution.segments = static_cast<std::uint32_t>(
      std::max<std::size_t>(1, (largest + execution.segment_bytes - 1) / execution.segment_bytes));
  if (schedule.scratch_chunks == 0) return;
  const std::size_t slots = std::size_t{schedule.scratch_chunks} * std::min(execution.segments, kLanes);
  const std::size_t slot_bytes = std::min(largest, execution.segment_bytes);
  execution.scratch_storage.reset(new std::byte[std::max<std::size_t>(slots * slot_bytes, 1)]);
  execution.scratch = {execution.scratch_storage.get(), slots * slot_bytes, MemoryDomain::host};
  execution.scratch_slot_bytes = slot_bytes;
}

void Executor::prepare_sequence(Execution& execution, Operation& operation) {
  CommunicatorState& group = *operation.group_;
  const Request& request = operation.request_;
  if (execution.is_point_to_point) {
    auto& counters = request.collective == Collective::send ? group.send_sequences : group.receive_sequences;
    execution.sequence = counters[(static_cast<std::uint64_t>(request.root) << 32) | request.tag]++;
    execution.fingerprint = mix(0, 1);
    return;
  }
  execution.sequence = operation.sequence_;
  group.next_sequence = operation.sequence_ + 1;
  std::uint64_t hash = mix(2, static_cast<std::uint64_t>(request.collective));
  hash = mix(hash, static_cast<std::uint64_t>(execution.schedule->algorithm));
  hash = mix(hash, execution.schedule->chunks);
  hash = mix(hash, execution.segment_bytes);
  hash = mix(hash, static_cast<std::uint64_t>(request.data_type));
  hash = mix(hash, static_cast<std::uint64_t>(request.reduce_op));
  hash = mix(hash, static_cast<std::uint64_t>(request.root));
  hash = mix(hash, request.layout);
  // Of rooted collectives only the root has both sides, and all-to-all may be uneven: there the pairs compare.
  const bool has_equal_totals =
      request.collective == Collective::all_reduce || request.collective == Collective::all_gather ||
      request.collective == Collective::reduce_scatter || request.collective == Collective::broadcast;
  if (has_equal_totals) hash = mix(hash, operation_bytes(request));
  execution.fingerprint = hash;
}

/// Compares with what another rank has already said under this sequence. False: the operation has ended.
bool Executor::check_early_arrival(Execution& execution) {
  if (execution.is_point_to_point) {
    const bool is_receive = execution.operation->collective() == Collective::receive;
    if (!is_receive || !given_up_.take(message_key(execution))) return true;
    fail_point_to_point(execution, given_up_error(execution, "its send has ended in error"), false);
    return false;
  }
  CommunicatorState& group = *execution.operation->group_;
  const auto& early = group.early[execution.sequence % group.early.size()];
  if (early.sequence != execution.sequence || early.fingerprint == execution.fingerprint) return true;
  poison(group,
         {Code::mismatch,
          execution.operation->describe() + ": " + name_of_rank(early.source) +
              " issued a different operation as number " + std::to_string(execution.sequence) +
              " of this group (collective, dtype, reduce op, root or size differ). All ranks must issue the same "
              "collectives in the same order; compare what the two ranks call here."},
         true);
  return false;
}

void Executor::enqueue(Execution& execution) {
  auto& link = static_cast<ListLink<ReadyTag>&>(execution);
  if (!link.is_linked() && !execution.is_finished) ready_.push_back(execution);
}

bool Executor::run() {
  bool ran = false;
  do {
    while (Execution* execution = ready_.pop_front()) {
      ran = true;
      run(*execution);
    }
    retire();
  } while (!ready_.is_empty());
  return ran;
}

/// Executions end in the middle of calls that still look at them, so they are used again only from here.
void Executor::retire() {
  for (Execution* execution : retired_) executions_.give(*execution);
  retired_.clear();
  while (!to_refill_.empty()) {
    const auto group = std::move(to_refill_.back());
    to_refill_.pop_back();
    start_waiting(*group);
  }
}

void Executor::finish(Execution& execution, const Status& status) {
  if (execution.is_finished) return;
  execution.is_finished = true;
  release_posts(execution);
  static_cast<ListLink<ReadyTag>&>(execution).unlink();
  static_cast<ListLink<>&>(execution).unlink();
  --active_;
  const OperationRef operation = std::move(execution.operation);
  execution.operation = {};
  const auto group = operation->group_;
  if (!execution.is_point_to_point) --group->active_collectives;
  execution.scratch_storage.reset();
  if (execution.own_schedule != nullptr) schedules_.give(*execution.own_schedule);
  execution.own_schedule = nullptr;
  retired_.push_back(&execution);
  if (!group->waiting.empty()) to_refill_.push_back(group);
  finish_operation(*operation, status);
}

void Executor::finish_operation(Operation& operation, const Status& status) {
  operation.status_ = status;
  const Nanoseconds now = clock_.now();
  operation.finished_at_.store(now, std::memory_order_relaxed);
  flight_.finished(operation.record_, now, status.message());
  host_.on_finished(operation);
}

void Executor::release_posts(Execution& execution) {
  for (StepSend* send : execution.sends) {
    messenger_.cancel(*send);
    sends_.give(*send);
  }
  for (StepReceive* receive : execution.receives) {
    messenger_.cancel(*receive);
    receives_.give(*receive);
  }
  for (PendingReduce* reduce : execution.reduces) {
    reduce->kept.clear();
    reduces_.give(*reduce);
  }
  execution.sends.clear();
  execution.receives.clear();
  execution.reduces.clear();
}

std::size_t Executor::memory_in_use() const {
  return messenger_.memory_in_use() + executions_.bytes() + schedules_.bytes() + sends_.bytes() + receives_.bytes() +
         reduces_.bytes();
}

std::string Executor::name_of_rank(Rank global) const {
  const PeerInfo& peer = options_.peers[static_cast<std::size_t>(global)];
  return "rank " + std::to_string(global) + " (host " + peer.host_name + ", pid " + std::to_string(peer.pid) + ")";
}

}  // namespace neuron
