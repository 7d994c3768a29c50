#include "transport/base/wait_set.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace neuron {
namespace {

using Wake = WaitSet::Wake;

TEST(WaitSet, WakesForADoorbell_UntilItIsSilenced) {
  Doorbell doorbell;
  WaitSet waits;
  waits.add(doorbell.descriptor());
  EXPECT_EQ(waits.wait(0), Wake::timeout);
  doorbell.ring();
  doorbell.ring();
  EXPECT_EQ(waits.wait(kNever), Wake::readable);
  EXPECT_EQ(waits.wait(kNever), Wake::readable);
  doorbell.silence();
  EXPECT_EQ(waits.wait(0), Wake::timeout);
  doorbell.silence();  // nothing to take
}

TEST(WaitSet, WakesForARingFromAnotherThread) {
  Doorbell doorbell;
  WaitSet waits;
  waits.add(doorbell.descriptor());
  std::thread other([&] { Doorbell::ring(doorbell.descriptor()); });
  EXPECT_EQ(waits.wait(20 * kSecond), Wake::readable);
  other.join();
}

TEST(WaitSet, ForgetsWhatIsRemoved) {
  Doorbell doorbell;
  WaitSet waits;
  waits.add(doorbell.descriptor());
  doorbell.ring();
  waits.remove(doorbell.descriptor());
  EXPECT_EQ(waits.wait(0), Wake::timeout);
}

TEST(WaitSet, ReturnsAtItsTimeout) {
  WaitSet waits;
  const SteadyClock clock;
  const Nanoseconds before = clock.now();
  EXPECT_EQ(waits.wait(3 * kMillisecond), Wake::timeout);
  EXPECT_GE(clock.now() - before, 3 * kMillisecond);
}

TEST(WaitSet, SaysThatASignalCame) {
  struct sigaction action{};
  struct sigaction former{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &former), 0);
  std::atomic<bool> is_over{false};
  std::thread sender([&, waiter = pthread_self()] {
    while (!is_over.load()) {  // until one meets the wait
      pthread_kill(waiter, SIGUSR1);
      std::this_thread::yield();
    }
  });
  WaitSet waits;
  EXPECT_EQ(waits.wait(20 * kSecond), Wake::signal);
  is_over.store(true);
  sender.join();
  EXPECT_EQ(waits.wait(0), Wake::timeout) << "the next wait knows nothing of it";
  sigaction(SIGUSR1, &former, nullptr);
}

TEST(Timer, BecomesReadableOnce_UntilItIsStopped) {
  Timer timer;
  WaitSet waits;
  waits.add(timer.descriptor());
  timer.start(kMillisecond);
  EXPECT_EQ(waits.wait(20 * kSecond), Wake::readable);
  timer.stop();
  EXPECT_EQ(waits.wait(0), Wake::timeout);
  timer.start(kSecond);
  timer.stop();
  EXPECT_EQ(waits.wait(0), Wake::timeout);
}

}  // namespace
}  // namespace neuron
