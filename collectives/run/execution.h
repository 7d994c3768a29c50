// Execution: an operation on its way: its schedule, its memory and how far each lane is. A resource of the Executor;
// only the driver touches it. Lanes are slots: each runs the schedule for one segment of every chunk, then takes the
// next.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/run/chunk_map.h"
#include "collectives/run/operation.h"
#include "collectives/schedule/schedule.h"
#include "transport/messaging/posts.h"

namespace neuron {

class Execution;

/// A send of a step.
struct StepSend : SendPost {
  Execution* execution = nullptr;
  std::uint32_t lane = 0;
  std::uint32_t instance = 0;
  std::uint32_t place = 0;  // in Execution::sends
  std::uint8_t step = 0;
};

struct PendingReduce;

/// A receive of a step; of a reduce step, one operand.
struct StepReceive : ReceivePost {
  Execution* execution = nullptr;
  PendingReduce* reduce = nullptr;
  std::uint32_t lane = 0;
  std::uint32_t instance = 0;
  std::uint32_t place = 0;     // in Execution::receives
  std::uint32_t position = 0;  // of the operand
  std::uint8_t step = 0;
};

/// A reduce step that waits for its operands.
struct PendingReduce {
  std::vector<const std::byte*> operands;  // in the order of combination
  std::vector<StepReceive*> kept;
  std::uint32_t missing = 0;
  Buffer target;
  std::uint32_t lane = 0;
  std::uint32_t instance = 0;
  std::uint32_t place = 0;  // in Execution::reduces
  std::uint8_t step = 0;
  bool completes = false;
};

/// Where one segment's walk through the schedule stands.
struct Lane {
  std::uint32_t segment = 0;
  std::uint32_t next = 0;  // instance to issue
  std::uint32_t completed = 0;
  std::uint8_t phase = 0;
  std::uint8_t step = 0;  // within the phase
  std::uint32_t iteration = 0;
  bool is_running = false;
  std::array<std::uint32_t, kMaxSteps> completed_of{};  // by step
  std::vector<std::uint64_t> done;                      // bit per instance
};

struct ReadyTag;

/// What a peer has said about this operation.
struct PeerAnswer {
  enum class State : std::uint8_t { none, not_there, other_operation, in_it, done, gone };
  State state = State::none;
  Nanoseconds since = 0;          // when it first said this state
  std::uint64_t at_sequence = 0;  // not there: the collective that it will issue next
  std::string text;
};

class Execution : public ListLink<>, public ListLink<ReadyTag> {
 public:
  OperationRef operation;
  const Schedule* schedule = nullptr;  // own_schedule, or the group's for point-to-point
  Schedule* own_schedule = nullptr;    // from the executor's pool
  ChunkMap input;
  ChunkMap output;
  std::unique_ptr<std::byte[]> scratch_storage;
  Buffer scratch;  // per lane, scratch_chunks slots
  std::size_t scratch_slot_bytes = 0;
  std::size_t segment_bytes = 0;
  std::uint32_t segments = 1;
  std::uint32_t next_segment = 0;
  std::uint32_t segments_done = 0;
  std::uint32_t instances = 0;
  std::array<std::uint32_t, kMaxPhases> first_instance{};
  std::array<std::uint8_t, kMaxSteps> phase_of{};
  std::vector<Lane> lanes;

  std::uint64_t fingerprint = 0;
  std::uint64_t sequence = 0;  // on the wire: point-to-point counts per peer and tag
  bool is_point_to_point = false;
  bool is_finished = false;
  Nanoseconds next_question = 0;
  Nanoseconds question_interval = 0;
  Nanoseconds gathers_until = 0;    // its deadline has passed: waiting for the last answers until then
  std::vector<PeerAnswer> answers;  // index = group rank; empty until the first question

  std::vector<StepSend*> sends;        // posted and not complete
  std::vector<StepReceive*> receives;  // posted, or kept
  std::vector<PendingReduce*> reduces;

  [[nodiscard]] std::uint32_t instance_of(std::uint8_t step, std::uint32_t iteration) const {
    const Phase& phase = schedule->phases[phase_of[step]];
    return first_instance[phase_of[step]] + iteration * phase.step_count + (step - phase.first_step);
  }
};

}  // namespace neuron
