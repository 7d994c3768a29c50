// How long a 4-byte message takes one way while both sides spin; printed, and recorded as a test property. The bounds
// are generous: they catch a system call or a lock on the path, not noise.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>

#include "tests/transport/shared_memory/node.h"
#include "tests/transport/shared_memory/processes.h"

namespace neuron::shared_memory {
namespace {

constexpr std::uint64_t kRounds =
    20;  // of one batch: much shorter than a time slice, as the machine has other work too
constexpr Nanoseconds kLongEnough = 300 * kMillisecond;
constexpr double kBound = 20'000;
const std::array<std::byte, 4> kPayload{};

class Counter final : public TransportEvents {
 public:
  void on_message(Rank, const Header&, std::span<const std::byte> payload) override {
    ++heard;
    is_over = payload.empty();
  }
  void on_written(std::uint32_t) override {}
  void on_write_done(std::uint64_t, const Status&) override {}
  void on_peer_lost(Rank, const Status&) override {}
  std::uint64_t heard = 0;
  bool is_over = false;
};

void answer(Endpoint& endpoint, Rank other) {
  Counter counter;
  for (std::uint64_t round = 1; !counter.is_over; ++round) {
    while (counter.heard < round) endpoint.poll(counter);
    endpoint.send(other, Header{}, kPayload);
  }
}

// The best batch. On a busy machine the two sides seldom run at the same time: goes on until they did.
double ping(Endpoint& endpoint, Rank other) {
  const SteadyClock clock;
  Counter counter;
  double best = 1e9;
  std::uint64_t round = 0;
  const Nanoseconds begin = clock.now();
  while (clock.now() < begin + kLongEnough || (best > kBound && clock.now() < begin + kPatience)) {
    const Nanoseconds start = clock.now();
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      endpoint.send(other, Header{}, kPayload);
      ++round;
      while (counter.heard < round) endpoint.poll(counter);
    }
    best = std::min(best, static_cast<double>(clock.now() - start) / (2.0 * kRounds));
  }
  endpoint.send(other, Header{}, {});
  return best;
}

void report(const char* what, double nanoseconds) {
  std::printf("    %s: %.0f ns\n", what, nanoseconds);
  ::testing::Test::RecordProperty("nanoseconds", std::to_string(nanoseconds));
}

bool has_two_processors() { return std::thread::hardware_concurrency() >= 2; }

TEST(Latency, StaysLow_BetweenThreads) {
  if (!has_two_processors()) GTEST_SKIP() << "needs two processors";
  Node a(0);
  Node b(1);
  ASSERT_TRUE(connect(a, 0, b, 1));
  std::thread other([&] { answer(*b.endpoint, 0); });
  const double nanoseconds = ping(*a.endpoint, 1);
  other.join();
  report("threads", nanoseconds);
  EXPECT_LT(nanoseconds, kBound);
}

TEST(Latency, StaysLow_BetweenProcesses) {
  if (!has_two_processors()) GTEST_SKIP() << "needs two processors";
  Channel to_child;
  Channel to_parent;
  Child child([&] {
    Node node(1);
    to_parent.put(node.endpoint->address());
    if (!node.endpoint->connect(0, to_child.get()).is_ok()) return false;
    answer(*node.endpoint, 0);
    return true;
  });
  Node node(0);
  to_child.put(node.endpoint->address());
  ASSERT_TRUE(node.endpoint->connect(1, to_parent.get()).is_ok());
  ASSERT_TRUE(eventually([&] { return node.poll(), node.endpoint->is_connected(1); }));
  const double nanoseconds = ping(*node.endpoint, 1);
  EXPECT_TRUE(child.succeeded());
  report("processes", nanoseconds);
  EXPECT_LT(nanoseconds, kBound);
}

TEST(Latency, CostsLittle_ToSendAndToPoll) {
  Node a(0);
  Node b(1);
  ASSERT_TRUE(connect(a, 0, b, 1));
  const SteadyClock clock;
  Counter counter;
  double sending = 1e9;
  double delivering = 1e9;
  for (std::uint64_t batch = 1; batch <= 1000; ++batch) {
    const Nanoseconds start = clock.now();
    for (std::uint64_t i = 0; i < kRounds; ++i) a.endpoint->send(1, Header{}, kPayload);
    const Nanoseconds middle = clock.now();
    while (counter.heard < batch * kRounds) b.endpoint->poll(counter);
    sending = std::min(sending, static_cast<double>(middle - start) / kRounds);
    delivering = std::min(delivering, static_cast<double>(clock.now() - middle) / kRounds);
  }
  report("send, one thread", sending);
  report("deliver, one thread", delivering);
  EXPECT_LT(sending + delivering, kBound);
}

}  // namespace
}  // namespace neuron::shared_memory
