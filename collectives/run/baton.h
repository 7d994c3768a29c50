// Baton: exactly one thread drives the engine. Whoever wants to drive takes it if it is free; otherwise it sleeps until
// it is handed the chance or the operation it waits for is finished. A resource of the Engine; any thread. Taking and
// giving back a free baton is one atomic operation, no system call.
//
// Rule that keeps the engine driven: a thread that gives the baton back while somebody sleeps in sleep() wakes one of
// them; otherwise it tells the caller (release returns false), who wakes the background thread if work is outstanding.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "transport/base/clock.h"

namespace neuron {

class Operation;

class Baton {
 public:
  [[nodiscard]] bool try_take() { return !held_.load() && !held_.exchange(true); }

  /// Returns whether a sleeper was woken to take it.
  bool release() {
    held_.store(false);
    return sleepers_.load() > 0 && wake([](const Sleeper&) { return true; }, false);
  }

  /// Somebody sleeps and would rather drive: a background holder gives the baton back.
  [[nodiscard]] bool is_wanted() const { return sleepers_.load(std::memory_order_relaxed) > 0; }

  /// Sleeps until woken, at most `timeout`. `is_done(): ` checked after registering, so that no wake-up is lost.
  template <typename IsDone>
  void sleep(const Operation* operation, Nanoseconds timeout, IsDone&& is_done) {
    Sleeper self;
    self.operation = operation;
    std::unique_lock lock(mutex_);
    sleeping_.push_back(&self);
    sleepers_.fetch_add(1);
    if (!is_done() && held_.load()) {
      self.condition.wait_for(lock, std::chrono::nanoseconds(timeout), [&] { return self.is_woken; });
    }
    sleepers_.fetch_sub(1);
    sleeping_.erase(std::find(sleeping_.begin(), sleeping_.end(), &self));
  }

  /// Wakes those who sleep for this operation.
  void notify(const Operation* operation) {
    if (sleepers_.load() == 0) return;
    wake([&](const Sleeper& sleeper) { return sleeper.operation == operation; }, true);
  }

 private:
  struct Sleeper {
    const Operation* operation = nullptr;
    std::condition_variable condition;
    bool is_woken = false;
  };

  template <typename Chosen>
  bool wake(Chosen&& is_chosen, bool all) {
    const std::lock_guard lock(mutex_);
    bool woke = false;
    for (Sleeper* sleeper : sleeping_) {
      if (sleeper->is_woken || !is_chosen(*sleeper)) continue;
      sleeper->is_woken = true;
      sleeper->condition.notify_one();
      woke = true;
      if (!all) break;
    }
    return woke;
  }

  std::atomic<bool> held_{false};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::vector<Sleeper*> sleeping_;
};

}  // namespace neuron
