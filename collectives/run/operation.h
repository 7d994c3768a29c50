// Operation: an issued request until its end; what a c10d Work stands on.
// A resource shared by the caller and the engine through OperationRef. The engine finishes it exactly once; every
// accessor may be called by any thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/run/request.h"
#include "transport/base/intrusive_list.h"
#include "transport/base/status.h"

namespace neuron {

class CommunicatorState;
class Execution;

class Operation {
 public:
  Operation(std::shared_ptr<CommunicatorState> group, Request request);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  [[nodiscard]] bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// ok, or why it ended in error. Only when done.
  [[nodiscard]] const Status& status() const { return status_; }

  [[nodiscard]] Collective collective() const { return request_.collective; }
  /// Counts the group's collectives from 0 in each epoch; point-to-point: counts this group's sends and receives.
  [[nodiscard]] std::uint64_t sequence() const { return sequence_; }
  [[nodiscard]] Nanoseconds issued_at() const { return issued_at_; }
  /// 0 until done.
  [[nodiscard]] Nanoseconds finished_at() const { return finished_at_.load(std::memory_order_relaxed); }
  /// Receive: group rank it came from, once done.
  [[nodiscard]] Rank source_rank() const { return request_.root; }
  /// "all_reduce 17 of group default (4 MiB, float32, sum)".
  [[nodiscard]] std::string describe() const;

  /// Asks for CompletionSink::completed once this operation is done. False: it is done already, no call follows.
  bool notify_when_done();
  /// Hands memory to the operation that must live until its end, because the caller's handle goes away. Released by the
  /// CompletionSink's owner, never by the thread that drives the engine; at once if the operation is done.
  void keep_until_done(std::shared_ptr<void> owner);

 private:
  friend class Engine;
  friend class Executor;
  friend class Communicator;
  friend class OperationRef;
  friend class CommunicatorState;

  enum NotifyBits : std::uint8_t { kWanted = 1, kFinished = 2 };

  const std::shared_ptr<CommunicatorState> group_;
  Request request_;
  std::uint64_t sequence_ = 0;
  std::uint32_t epoch_ = 0;
  Nanoseconds issued_at_ = 0;
  Nanoseconds deadline_ = kNever;
  std::uint64_t record_ = 0;  // its flight record
  Status status_;
  std::shared_ptr<void> kept_;
  std::atomic<Nanoseconds> finished_at_{0};
  std::atomic<bool> done_{false};
  std::atomic<std::uint8_t> notify_{0};
  std::atomic<std::uint32_t> references_{0};
  Operation* next_submitted_ = nullptr;  // the engine's submission queue
};

/// Shared ownership of an Operation. A value.
class OperationRef {
 public:
  OperationRef() = default;
  explicit OperationRef(Operation* operation) : operation_(operation) { retain(); }
  OperationRef(const OperationRef& other) : operation_(other.operation_) { retain(); }
  OperationRef(OperationRef&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  OperationRef& operator=(OperationRef other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~OperationRef() {
    if (operation_ != nullptr && operation_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete operation_;
  }

  Operation* operator->() const { return operation_; }
  Operation& operator*() const { return *operation_; }
  [[nodiscard]] Operation* get() const { return operation_; }
  explicit operator bool() const { return operation_ != nullptr; }

 private:
  void retain() {
    if (operation_ != nullptr) operation_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  Operation* operation_ = nullptr;
};

}  // namespace neuron
