#include "collectives/run/communicator.h"

#include "collectives/run/engine_impl.h"
#include "collectives/run/group.h"
#include "collectives/run/request_check.h"

namespace neuron {

Communicator::Communicator(Engine& engine, std::shared_ptr<CommunicatorState> state)
    : engine_(engine), state_(std::move(state)) {}

Communicator::~Communicator() { close(); }

Rank Communicator::rank() const { return state_->rank; }
Rank Communicator::world() const { return state_->world(); }
const GroupSpec& Communicator::spec() const { return state_->spec; }
Status Communicator::error() const { return state_->error(); }
void Communicator::set_timeout(Nanoseconds timeout) { state_->timeout.store(timeout); }
Nanoseconds Communicator::timeout() const { return state_->timeout.load(); }

std::uint64_t Communicator::sequence() const {
  return state_->epoch_and_sequence.load() & CommunicatorState::kSequenceMask;
}

void Communicator::set_sequence(std::uint64_t sequence) {
  const std::uint64_t epoch = state_->epoch_and_sequence.load() & ~CommunicatorState::kSequenceMask;
  state_->epoch_and_sequence.store(epoch | (sequence & CommunicatorState::kSequenceMask));
}

Result<OperationRef> Communicator::issue(Request request) {
  if (state_->is_closed.load(std::memory_order_acquire)) {
    return Status(Code::aborted, "Group " + state_->spec.name +
                                     " has been destroyed on this rank; make a new group to go on communicating.");
  }
  if (Status pending = state_->take_pending_error(); !pending) return pending;
  if (Status status = check(request, state_->rank, state_->world()); !status) return status;
  return engine_.impl_->issue(state_, std::move(request));
}

void Communicator::abort(const std::string& reason) {
  // At once: who aborts often leaves right after it, and the others are to hear of it first.
  engine_.impl_->run_exclusively([this, &reason] {
    const Status why{Code::aborted, "Group " + state_->spec.name + " was aborted: " + reason};
    engine_.impl_->executor().poison(*state_, why, true);
  });
}

void Communicator::close() {
  if (state_->is_closed.exchange(true)) return;
  engine_.impl_->post([state = state_](Executor& executor) {
    executor.close_group(state, {Code::aborted, "Group " + state->spec.name +
                                                    " was destroyed on this rank while the operation was in flight."});
  });
}

}  // namespace neuron
