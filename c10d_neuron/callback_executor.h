// CallbackExecutor: runs what follows the end of an operation (completing a future, copying a staged result back,
// freeing kept memory) on threads of its own, so that the engine's driver runs no user code, takes no GIL and frees no
// tensor. A resource; one per process (PerProcess). Any thread may call it; completed() only queues. Its threads block
// all signals, start when there is work and end when idle. A callback may wait for another operation: when one has run
// for 10 ms, the next gets another thread (at most kMaxThreads). Failure: an action must not throw; what escapes is
// logged.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "collectives/run/engine.h"

namespace neuron {

class CallbackExecutor final : public CompletionSink {
 public:
  using Action = std::function<void()>;
  static constexpr std::size_t kMaxThreads = 32;
  static constexpr std::chrono::milliseconds kPatience{10};  // after that a running action counts as blocked
  static constexpr std::chrono::seconds kIdleLife{5};

  CallbackExecutor() = default;
  CallbackExecutor(const CallbackExecutor&) = delete;
  CallbackExecutor& operator=(const CallbackExecutor&) = delete;

  /// Runs `action` once `operation` is done, on a thread of the executor, never inside this call.
  void when_done(const OperationRef& operation, Action action);
  void completed(OperationRef operation) override;
  /// At the interpreter's exit: nothing starts any more (what is queued is leaked), and what runs is waited for, at
  /// most `patience`. To be called without the GIL.
  void stop(std::chrono::milliseconds patience);

 private:
  using Moment = std::chrono::steady_clock::time_point;
  struct Entry {
    std::vector<Action> actions;
    OperationRef operation;  // released after the actions
    Moment queued;
  };

  void push(std::vector<Action> actions, OperationRef operation, std::unique_lock<std::mutex>& lock);
  void start_thread();
  void run();
  /// Until when the front of the queue should be left to the threads that are running; now or earlier: take it.
  [[nodiscard]] Moment front_may_start() const;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable ended_;
  std::deque<Entry> queue_;
  std::list<Moment> running_;  // when each running entry was started
  std::unordered_map<Operation*, std::vector<Action>> waiting_;
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;
  bool stopped_ = false;
};

}  // namespace neuron
