// PerProcess: one T for the process, never destroyed, so that exit cannot run into threads that still use it; a forked
// child gets its own instead of its parent's, whose threads and locks it does not have. Any thread.
#pragma once
#include <atomic>
#include <cstdint>

#include "transport/base/fork_guard.h"

namespace neuron {

template <typename T>
class PerProcess {
 public:
  static T& get() {
    static std::atomic<Entry*> entry{nullptr};
    Entry* current = entry.load(std::memory_order_acquire);
    if (current != nullptr && current->forks == fork_count()) return current->value;
    auto* fresh = new Entry;
    if (entry.compare_exchange_strong(current, fresh, std::memory_order_acq_rel)) return fresh->value;
    delete fresh;
    return entry.load(std::memory_order_acquire)->value;
  }

 private:
  struct Entry {
    const std::uint32_t forks = fork_count();
    T value;
  };
};

}  // namespace neuron
