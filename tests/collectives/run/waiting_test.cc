// Who may wait for what, from which thread, and what it costs when nobody does.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/collectives/run/loopback_job.h"
#include "tests/collectives/run/requests.h"

namespace neuron::testing {
namespace {

const SteadyClock kClock;

TEST(Wait, MayBeCalledByManyThreads_OnDifferentOperations) {
  constexpr Rank kWorld = 2;
  constexpr std::size_t kThreads = 4;
  constexpr int kRounds = 150;
  LoopbackJob job(kWorld);
  std::vector<std::unique_ptr<Communicator>> groups;
  for (std::size_t i = 0; i < kThreads * kWorld; ++i) {
    groups.push_back(
        job.make_group(static_cast<Rank>(i % kWorld), 100 + i / kWorld, "thread " + std::to_string(i / kWorld)));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto rank = static_cast<Rank>(i % kWorld);
      const LocalRank local{rank, kWorld, job.engine(rank), *groups[i]};
      for (int round = 0; round < kRounds; ++round) {
        std::vector<float> data(round % 10 == 0 ? 50'000 : 10, 1);
        std::vector<float> later(10, 1);
        const OperationRef behind = *local.group.issue(all_reduce(later, Urgency::background));
        ASSERT_EQ(local.run(all_reduce(data)), Status());
        ASSERT_EQ(data, std::vector<float>(data.size(), 2));
        ASSERT_EQ(local.finish(behind), Status());
        ASSERT_EQ(later, std::vector<float>(10, 2));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  groups.clear();
}

TEST(Wait, MayBeCalledByManyThreads_OnOneOperation) {
  LoopbackJob job(2);
  std::vector<float> here(1000, 1);
  std::vector<float> there(1000, 1);
  const OperationRef operation = *job.group(0).issue(all_reduce(here));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_EQ(job.local(0).finish(operation), Status()); });
  ASSERT_EQ(job.local(1).run(all_reduce(there)), Status());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(job.local(0).finish(operation), Status()) << "and once more";
  EXPECT_EQ(here, there);
}

TEST(Wait, ExpiresForTheCallerOnly) {
  LoopbackJob job(2);
  std::vector<float> here(1000, 1);
  std::vector<float> there(1000, 1);
  const OperationRef operation = *job.group(0).issue(all_reduce(here));
  EXPECT_EQ(job.engine(0).wait(*operation, job.engine(0).now() + 5 * kMillisecond), WaitOutcome::expired);
  EXPECT_EQ(job.engine(0).wait(*operation, 0), WaitOutcome::expired);
  EXPECT_FALSE(operation->is_done());
  EXPECT_EQ(job.local(1).run(all_reduce(there)), Status());
  EXPECT_EQ(job.local(0).finish(operation), Status());
  EXPECT_EQ(job.engine(0).wait(*operation, 0), WaitOutcome::done);
}

TEST(Wait, LooksUpTenTimesASecond) {
  LoopbackJob job(2);
  std::vector<float> data(10);
  const OperationRef operation = *job.group(0).issue(all_reduce(data));
  const Nanoseconds before = kClock.now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(job.engine(0).wait(*operation, kNever), WaitOutcome::look_up);
  EXPECT_GE(kClock.now() - before, 290 * kMillisecond);
}

TEST(Wait, LooksUpAtASignal_AndThenWaitsOn) {
  LoopbackJob job(2);
  std::vector<float> data(10);
  const OperationRef operation = *job.group(0).issue(all_reduce(data));
  struct sigaction action{};
  struct sigaction former{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &former), 0);
  std::atomic<bool> is_over{false};
  std::thread sender([&, waiter = pthread_self()] {
    while (!is_over.load()) {  // until one meets the sleep
      pthread_kill(waiter, SIGUSR1);
      std::this_thread::yield();
    }
  });
  const Nanoseconds before = kClock.now();
  EXPECT_EQ(job.engine(0).wait(*operation, kNever), WaitOutcome::look_up);
  EXPECT_LT(kClock.now() - before, 90 * kMillisecond);
  is_over.store(true);
  sender.join();
  const Nanoseconds quiet = kClock.now();
  EXPECT_EQ(job.engine(0).wait(*operation, kNever), WaitOutcome::look_up);
  EXPECT_GE(kClock.now() - quiet, 90 * kMillisecond) << "the signal of before is heard again";
  sigaction(SIGUSR1, &former, nullptr);
}

class WhoeverWaits : public ::testing::TestWithParam<Urgency> {};

TEST_P(WhoeverWaits, OperationsEndByThemselves) {
  LoopbackJob job(2);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<float>> data(2, std::vector<float>(round % 5 == 0 ? 100'000 : 10, 1));
    std::vector<OperationRef> operations;
    for (const Rank rank : {0, 1}) {
      operations.push_back(*job.group(rank).issue(all_reduce(data[static_cast<std::size_t>(rank)], GetParam())));
      if (GetParam() == Urgency::deferred) job.engine(rank).ring();
    }
    for (const OperationRef& operation : operations) {
      ASSERT_TRUE(eventually([&] { return operation->is_done(); })) << "nobody drives";
      ASSERT_EQ(operation->status(), Status());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Urgencies, WhoeverWaits,
                         ::testing::Values(Urgency::background, Urgency::soon, Urgency::deferred));

/// Collects what the engines hand over.
class Sink final : public CompletionSink {
 public:
  void completed(OperationRef operation) override {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
  }
  [[nodiscard]] std::size_t count() {
    const std::lock_guard lock(mutex_);
    return operations_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<OperationRef> operations_;
};

TEST(Completion, IsToldOnce_IfItWasAskedForInTime) {
  Sink sink;
  LoopbackJob job(2, {}, {20 * kSecond, true, nullptr, &sink});
  std::vector<float> here(10, 1);
  std::vector<float> there(10, 1);
  const OperationRef asked = *job.group(0).issue(all_reduce(here, Urgency::background));
  EXPECT_TRUE(asked->notify_when_done());
  EXPECT_EQ(job.local(1).run(all_reduce(there)), Status());
  EXPECT_TRUE(eventually([&] { return sink.count() == 1; }));
  EXPECT_FALSE(asked->notify_when_done()) << "it is done already";
  EXPECT_EQ(sink.count(), 1U) << "the other rank's did not ask";
}

/// Time on a processor of this whole process.
Nanoseconds cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto nanoseconds = [](const timeval& time) { return time.tv_sec * kSecond + time.tv_usec * kMicrosecond; };
  return nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
}

/// Fails if the idle engines of this process use 0.2% of a core.
void expect_idle() {
  const auto calm_down = std::chrono::milliseconds(100);
  const auto measured = std::chrono::seconds(1);
  std::this_thread::sleep_for(calm_down);  // nothing to wait for: it is doing nothing that is tested
  const Nanoseconds before = cpu_time();
  std::this_thread::sleep_for(measured);
  EXPECT_LT(cpu_time() - before, 2 * kMillisecond);
}

TEST(Idle, EnginesUseNoProcessor) {
  LoopbackJob job(2);
  job.run([](const LocalRank& rank) {
    std::vector<float> data(100'000, 1);
    EXPECT_EQ(rank.run(all_reduce(data)), Status());
  });
  expect_idle();
}

TEST(Idle, EnginesUseNoProcessor_AfterManySendsFromManyThreads) {
  LoopbackJob job(2);
  std::vector<std::thread> threads;
  for (std::uint32_t tag = 0; tag < 6; ++tag) {
    threads.emplace_back([&, tag] {
      const auto rank = static_cast<Rank>(tag % 2);
      std::vector<float> out(10, 1);
      std::vector<float> in(10);
      for (int i = 0; i < 300; ++i) {  // tags 0 and 1 talk to each other, and so on
        const OperationRef send = *job.group(rank).issue(send_to(1 - rank, out, tag / 2));
        const OperationRef receive = *job.group(rank).issue(receive_from(1 - rank, in, tag / 2));
        ASSERT_EQ(job.local(rank).finish(receive), Status());
        ASSERT_EQ(job.local(rank).finish(send), Status());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_idle();
}

}  // namespace
}  // namespace neuron::testing
