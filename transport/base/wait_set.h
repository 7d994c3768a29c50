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

/// A timerfd that fires once. A resource; any thread.
class Timer {
 public:
  Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Becomes readable after `delay` and stays so until stop().
  void start(Nanoseconds delay) const;
  void stop() const { start(0); }
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
  enum class Wake : std::uint8_t { readable, timeout, signal };
  /// Blocks until a descriptor is readable, `timeout` has passed or a signal came.
  Wake wait(Nanoseconds timeout);

 private:
  Descriptor epoll_;
};

}  // namespace neuron
