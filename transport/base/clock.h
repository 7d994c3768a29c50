// Clock: where the engine reads the time, so that tests can give their own. Monotonic nanoseconds.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace neuron {

using Nanoseconds = std::int64_t;
inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;
inline constexpr Nanoseconds kNever = INT64_MAX;

/// Resource, shared; `now` may be called by any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual Nanoseconds now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// Moves only when told; for tests.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() const override { return now_.load(std::memory_order_relaxed); }
  void advance(Nanoseconds by) { now_.fetch_add(by, std::memory_order_relaxed); }

 private:
  std::atomic<Nanoseconds> now_{1};
};

}  // namespace neuron
