// What the tests of the engine ask for again and again. Pure functions.
#pragma once
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/run/job.h"

namespace neuron::testing {

inline Request all_reduce(std::vector<float>& data, Urgency urgency = Urgency::caller) {
  Request request;
  request.collective = Collective::all_reduce;
  request.data_type = DataType::float32;
  request.input = request.output = Buffers::of(buffer_of(data));
  request.urgency = urgency;
  return request;
}

inline Request rooted(Collective collective, Rank root, std::vector<float>& data) {
  Request request = all_reduce(data);
  request.collective = collective;
  request.root = root;
  return request;
}

template <typename T>
Request send_to(Rank peer, std::vector<T>& data, std::uint32_t tag = 0) {
  Request request;
  request.collective = Collective::send;
  request.input = Buffers::of(buffer_of(data));
  request.root = peer;
  request.tag = tag;
  request.urgency = Urgency::soon;
  return request;
}

template <typename T>
Request receive_from(Rank peer, std::vector<T>& data, std::uint32_t tag = 0) {
  Request request = send_to(peer, data, tag);
  request.collective = Collective::receive;
  request.output = std::exchange(request.input, {});
  return request;
}

inline Request barrier(Urgency urgency = Urgency::caller) {
  Request request;
  request.urgency = urgency;
  return request;
}

inline Request with_timeout(Request request, Nanoseconds timeout) {
  request.timeout = timeout;
  return request;
}

/// Whether `text` contains each part; a failure shows text and part.
inline ::testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << '"' << part << "\" is not in: " << text;
  }
  return ::testing::AssertionSuccess();
}

/// Runs like the steady clock and jumps ahead when told, so that deadlines need no waiting.
class JumpingClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() const override { return steady_.now() + ahead_.load(); }
  void jump(Nanoseconds by) { ahead_.fetch_add(by); }

 private:
  SteadyClock steady_;
  std::atomic<Nanoseconds> ahead_{0};
};

/// Calls `is_true` until it holds, at most `limit`; returns whether it did.
inline bool eventually(const std::function<bool()>& is_true, Nanoseconds limit = 10 * kSecond) {
  const SteadyClock clock;
  for (const Nanoseconds end = clock.now() + limit; clock.now() < end; std::this_thread::yield()) {
    if (is_true()) return true;
  }
  return false;
}

}  // namespace neuron::testing
