// WaitSet: the one place where a thread of the engine blocks, and Doorbell, what others ring to wake it.
// The Engine owns both. Doorbell::ring may be called by any thread or, through its descriptor, by another process.
#pragma once
#include <atomic>
#include <cstdint>

#include "transport/base/clock.h"
#include "transport/base/descriptor.h"

namespace neuron {

/// An eventfd. A resource.
class Doorbell {
 public:
  Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  void ring() const { ring(descriptor()); }
  /// Rings the doorbell of another process through the descriptor that it handed over.
  static void ring(int descriptor);
  /// Takes all rings so far.
  void silence() const;
  [[nodiscard]] int descriptor() const { return descriptor_.number(); }

 private:
  Descriptor descriptor_;
};

/// epoll over the doorbell and the transports' descriptors. A resource; one thread waits at a time.
class WaitSet {
 public:
  WaitSet();
  WaitSet(const WaitSet&) = delete;
  WaitSet& operator=(const WaitSet&) = delete;

  void add(int descriptor);
  void remove(int descriptor);
  /// Blocks until a descriptor is readable, `timeout` has passed or a signal came. True when something is readable.
  bool wait(Nanoseconds timeout);
  /// Whether the last wait ended by a signal (EINTR).
  [[nodiscard]] bool was_interrupted() const { return interrupted_; }

 private:
  Descriptor epoll_;
  bool interrupted_ = false;
};

}  // namespace neuron
