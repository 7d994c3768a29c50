#include "c10d_neuron/work_neuron.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "c10d_neuron/callback_executor.h"
#include "c10d_neuron/errors.h"
#include "c10d_neuron/gil.h"
#include "c10d_neuron/per_process.h"
#include "transport/base/log.h"

namespace neuron {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> make_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

template <typename T>
c10::intrusive_ptr<T> self_of(T* work) {
  return c10::intrusive_ptr<T>::unsafe_reclaim_from_nonowning(work);
}

/// Torch's registry of works that functional code may still wait for must not keep a finished one.
void unregister(const c10::intrusive_ptr<c10d::Work>& work) {
  if (c10d::allow_inflight_collective_as_graph_input()) c10d::unregister_work(work);
}

}  // namespace

void WorkMemory::copy_back() {
  if (copies_back.empty()) return;
  // Below autograd: outputs may be leaves that require gradients, or inference tensors.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (auto& [user, copy] : copies_back) user.copy_(copy);
  copies_back.clear();
}

void ProfilerRecord::finish() {
  const std::lock_guard lock(mutex_);
  if (const auto end = std::exchange(end_, {})) end();
}

WorkNeuron::WorkNeuron(const WorkTitle& title, std::weak_ptr<Group> group, OperationRef operation, WorkMemory memory)
    : Work(title.rank, title.type, title.title,
           title.title == nullptr ? std::nullopt : std::optional<std::vector<at::Tensor>>(memory.held)),
      group_(std::move(group)),
      operation_(std::move(operation)),
      memory_(std::move(memory)) {
  if (recordFunctionEndCallback_) {
    record_ = std::make_shared<ProfilerRecord>(std::exchange(recordFunctionEndCallback_, {}));
    PerProcess<CallbackExecutor>::get().when_done(operation_, [record = record_] { record->finish(); });
  }
}

WorkNeuron::~WorkNeuron() {
  if (settled_.load(std::memory_order_acquire)) return;
  try {
    if (operation_->is_done()) {
      settle();
    } else {
      leave_memory_to_operation();
    }
  } catch (const std::exception& error) {
    log(LogLevel::error, std::string("a result could not be copied to its tensor: ") + error.what());
  }
}

void WorkNeuron::leave_memory_to_operation() {
  const bool copies = !memory_.copies_back.empty();
  auto memory = std::make_shared<WorkMemory>(std::move(memory_));
  if (!copies) {
    operation_->keep_until_done(std::move(memory));
    return;
  }
  PerProcess<CallbackExecutor>::get().when_done(operation_, [operation = operation_.get(), memory] {
    if (operation->status().is_ok()) memory->copy_back();
  });
}

Status WorkNeuron::status() const { return operation_->is_done() ? operation_->status() : Status(); }

bool WorkNeuron::isCompleted() {
  if (!operation_->is_done()) return false;
  settle();
  return true;
}

bool WorkNeuron::isSuccess() const { return operation_->is_done() && operation_->status().is_ok(); }

std::exception_ptr WorkNeuron::exception() const {
  const Status end = status();
  return end.is_ok() ? nullptr : as_exception(end);
}

int WorkNeuron::sourceRank() const {
  TORCH_CHECK(operation_->collective() == Collective::receive, "source_rank() is known for a receive only, this is ",
              operation_->describe());
  return operation_->source_rank();
}

std::vector<at::Tensor> WorkNeuron::result() { return memory_.results; }

void WorkNeuron::synchronize() {
  if (operation_->is_done()) settle();
  unregister(self_of<c10d::Work>(this));
}

void WorkNeuron::wait_until_done(std::chrono::milliseconds timeout) {
  if (operation_->is_done()) return;
  const std::shared_ptr<Group> group = group_.lock();
  // Without its group the operation has been ended by the group's closing.
  if (group == nullptr) return;
  group->check_process();
  Engine& engine = *group->engine;
  const Nanoseconds until = timeout.count() > 0 ? engine.now() + timeout.count() * kMillisecond : kNever;
  while (!operation_->is_done()) {
    const WaitOutcome outcome = engine.wait(*operation_, until);
    if (outcome == WaitOutcome::done) return;
    if (outcome == WaitOutcome::look_up) {
      if (engine.config().interrupts && is_main_thread()) raise_pending_interrupt();
      continue;
    }
    raise(Status(Code::timeout, "wait(" + std::to_string(timeout.count()) + " ms) has expired for " +
                                    operation_->describe() +
                                    ". The operation itself goes on: wait again, or abort the group to end it."));
  }
}

bool WorkNeuron::wait(std::chrono::milliseconds timeout) {
  const ReleaseGil no_gil;
  wait_until_done(timeout);
  stay_if_exiting();
  settle();
  unregister(self_of<c10d::Work>(this));
  if (!operation_->status().is_ok()) raise(operation_->status());
  return true;
}

void WorkNeuron::abort() {
  const ReleaseGil no_gil;
  if (const auto group = group_.lock())
    group->communicator->abort("abort() was called on the work of " + operation_->describe() + ".");
}

void WorkNeuron::settle() {
  if (settled_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (settled_.load(std::memory_order_relaxed)) return;
  if (operation_->status().is_ok()) memory_.copy_back();
  memory_.copies_back.clear();
  memory_.held.clear();
  if (record_) record_->finish();
  settled_.store(true, std::memory_order_release);
}

c10::intrusive_ptr<c10::ivalue::Future> WorkNeuron::getFuture() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = make_future();
  auto future = future_;
  lock.unlock();
  if (operation_->is_done()) {
    complete_future();
    return future;
  }
  PerProcess<CallbackExecutor>::get().when_done(operation_, [self = self_of(this)] { self->complete_future(); });
  // Nobody may ever wait: the background thread has to carry it.
  if (const auto group = group_.lock()) group->engine->ring();
  return future;
}

void WorkNeuron::complete_future() {
  try {
    settle();
    if (!operation_->status().is_ok()) raise(operation_->status());
    future_->markCompleted(c10::IValue(memory_.results));
  } catch (const std::exception&) {
    future_->setErrorIfNeeded(std::current_exception());
  }
}

float WorkNeuron::getDuration() const {
  TORCH_CHECK(operation_->is_done(), "the duration is known once the operation is done: ", operation_->describe());
  return static_cast<float>(operation_->finished_at() - operation_->issued_at()) / static_cast<float>(kMillisecond);
}

std::uint64_t WorkNeuron::getSequencenumber() const { return operation_->sequence(); }

CoalescedWork::CoalescedWork(const WorkTitle& title, std::vector<c10::intrusive_ptr<WorkNeuron>> parts)
    : Work(title.rank, title.type), parts_(std::move(parts)) {}

bool CoalescedWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& part : parts_) {
    if (auto error = part->exception()) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) all.insert(all.end(), part->memory_.results.begin(), part->memory_.results.end());
  return all;
}

void CoalescedWork::unregister() {
  for (const auto& part : parts_) neuron::unregister(part);
  neuron::unregister(self_of<c10d::Work>(this));
}

void CoalescedWork::synchronize() {
  for (const auto& part : parts_) part->synchronize();
  unregister();
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const ReleaseGil no_gil;
  const auto start = std::chrono::steady_clock::now();
  for (const auto& part : parts_) {
    auto left = timeout;
    if (timeout.count() > 0) {
      const auto spent =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
      left = std::max(timeout - spent, std::chrono::milliseconds(1));
    }
    part->wait(left);
  }
  unregister();
  return true;
}

void CoalescedWork::abort() {
  if (!parts_.empty()) parts_.front()->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = make_future();
  auto future = future_;
  lock.unlock();
  unfinished_.store(parts_.size() + 1, std::memory_order_relaxed);
  const auto finish_one = [self = self_of(this)] {
    if (self->unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) self->complete_future();
  };
  for (const auto& part : parts_) {
    PerProcess<CallbackExecutor>::get().when_done(part->operation_, finish_one);
    if (const auto group = part->group_.lock()) group->engine->ring();
  }
  finish_one();
  return future;
}

void CoalescedWork::complete_future() {
  try {
    for (const auto& part : parts_) {
      part->settle();
      if (!part->status().is_ok()) raise(part->status());
    }
    future_->markCompleted(c10::IValue(result()));
  } catch (const std::exception&) {
    future_->setErrorIfNeeded(std::current_exception());
  }
}

float CoalescedWork::getDuration() const {
  float longest = 0;
  for (const auto& part : parts_) longest = std::max(longest, part->getDuration());
  return longest;
}

std::uint64_t CoalescedWork::getSequencenumber() const {
  return parts_.empty() ? 0 : parts_.front()->getSequencenumber();
}

}  // namespace neuron
