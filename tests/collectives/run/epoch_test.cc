// Epochs of a group: poison ends one everywhere, the next works; what belongs to another is dropped, kept or implies
// poison.
#include <gtest/gtest.h>

#include <barrier>

#include "tests/collectives/run/loopback_job.h"
#include "tests/collectives/run/requests.h"

namespace neuron::testing {
namespace {

/// Ones, reduced over all ranks of the job.
void expect_usable(LoopbackJob& job) {
  job.run([](const LocalRank& rank) {
    std::vector<float> ones(50'000, 1);
    ASSERT_EQ(rank.run(all_reduce(ones)), Status());
    ASSERT_EQ(ones, std::vector<float>(50'000, static_cast<float>(rank.world)));
  });
}

bool hears_of_error(Communicator& group) {
  return eventually([&] { return !group.error().is_ok(); });
}

TEST(Abort, EndsWhatIsInFlightOnAllRanks_AndTheGroupGoesOn) {
  for (const auto& personality : {loopback::Personality::in_order(), loopback::Personality::efa_direct(3),
                                  loopback::Personality::no_remote_write(4)}) {
    LoopbackJob job(3, personality);
    for (int round = 0; round < 2; ++round) {
      std::barrier all_have_issued(3);
      job.run([&](const LocalRank& rank) {
        std::vector<std::vector<float>> data(8, std::vector<float>(200'000, 1));
        std::vector<OperationRef> operations;
        for (auto& one : data) operations.push_back(*rank.group.issue(all_reduce(one, Urgency::background)));
        all_have_issued.arrive_and_wait();
        if (rank.rank == 1) rank.group.abort("the test says so");
        bool all_done = true;
        for (const OperationRef& operation : operations) {
          const Status status = rank.finish(operation);
          if (status.is_ok()) continue;
          all_done = false;
          EXPECT_EQ(status.code(), Code::aborted) << status.message();
          EXPECT_TRUE(mentions(status.message(), {"Group default was aborted: the test says so"}));
        }
        if (all_done) {  // it was faster than the abort: the error comes at the next call
          EXPECT_TRUE(eventually([&] { return !rank.group.error().is_ok(); }));
          std::vector<float> one(1);
          EXPECT_EQ(rank.group.issue(all_reduce(one)).status().code(), Code::aborted);
        }
      });
      expect_usable(job);
    }
  }
}

TEST(Abort, IsToldOnce_WhereNothingIsInFlight) {
  LoopbackJob job(2);
  job.group(0).abort("why not");
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(hears_of_error(job.group(rank)));
    EXPECT_TRUE(mentions(job.group(rank).issue(barrier()).status().message(), {"why not"}));
  }
  expect_usable(job);
  EXPECT_EQ(job.group(0).error().code(), Code::aborted) << "what ended the operations last stays readable";
}

TEST(Abort, IsToldOnce_WhenTheOperationWasIssuedAndNotYetStarted) {
  LoopbackJob job(2, {}, {20 * kSecond, false});
  std::vector<float> data(10);
  const OperationRef operation = *job.group(1).issue(all_reduce(data));  // nobody has driven rank 1 yet
  job.group(0).abort("early");
  EXPECT_EQ(job.local(1).finish(operation).code(), Code::aborted);
  const auto next = job.group(1).issue(barrier());
  EXPECT_TRUE(next) << "told twice: " << next.status().message();
}

TEST(Abort, RestartsSequences) {
  LoopbackJob job(2);
  expect_usable(job);
  EXPECT_EQ(job.group(0).sequence(), 1U);
  job.group(0).abort("again");
  ASSERT_TRUE(hears_of_error(job.group(0)) && hears_of_error(job.group(1)));
  EXPECT_EQ(job.group(0).sequence(), 0U);
  EXPECT_EQ(job.group(1).sequence(), 0U);
}

TEST(Epoch, DropsMessagesOfAnOlderOne) {
  LoopbackJob job(2);
  std::vector<float> old(4, 1);
  std::vector<float> fresh(4, 2);
  std::vector<float> got(4, 0);
  ASSERT_EQ(job.local(0).run(send_to(1, old)), Status());
  ASSERT_TRUE(eventually([&] { return job.engine(1).memory_in_use() > 0; }));
  job.group(0).abort("forget it");
  ASSERT_TRUE(hears_of_error(job.group(0)) && hears_of_error(job.group(1)));
  for (const Rank rank : {0, 1}) ASSERT_EQ(job.group(rank).issue(barrier()).status().code(), Code::aborted);
  ASSERT_EQ(job.local(0).run(send_to(1, fresh)), Status());
  ASSERT_EQ(job.local(1).run(receive_from(0, got)), Status());
  EXPECT_EQ(got, fresh);
}

class NewerEpoch : public ::testing::TestWithParam<int> {};

/// The poisons are slower than the messages that follow them.
TEST_P(NewerEpoch, ImpliesThePoisonsInBetween) {
  LoopbackJob job(2);
  std::vector<float> fresh(4, 2);
  std::vector<float> got(4, 0);
  job.control(0).withhold();
  const OperationRef waits = *job.group(1).issue(all_reduce(got, Urgency::background));
  for (int i = 0; i < GetParam(); ++i) {
    job.group(0).abort("number " + std::to_string(i));
    ASSERT_TRUE(eventually([&] { return mentions(job.group(0).error().message(), {"number " + std::to_string(i)}); }));
    ASSERT_EQ(job.group(0).issue(barrier()).status().code(), Code::aborted);
  }
  ASSERT_EQ(job.local(0).run(send_to(1, fresh)), Status());
  EXPECT_EQ(job.local(1).finish(waits).code(), Code::aborted);
  ASSERT_EQ(job.local(1).run(receive_from(0, got)), Status());
  EXPECT_EQ(got, fresh);
  job.control(0).release();  // late poisons of epochs that are over: no harm
  expect_usable(job);
}

INSTANTIATE_TEST_SUITE_P(Aborts, NewerEpoch, ::testing::Values(1, 2, 5));

TEST(Epoch, GoesOnAfterSeveralPoisonsThatArriveInAnyOrder) {
  LoopbackJob job(2);
  for (int i = 0; i < 3; ++i) job.group(0).abort("number " + std::to_string(i));
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(eventually([&] { return mentions(job.group(rank).error().message(), {"number 2"}); }));
    EXPECT_EQ(job.group(rank).issue(barrier()).status().code(), Code::aborted);
  }
  expect_usable(job);
}

TEST(Epoch, KnowsPoisonOfAGroupThatIsMadeLater) {
  LoopbackJob job(2);
  auto first = job.make_group(0, 99, "late");
  first->abort("before you came");
  ASSERT_TRUE(hears_of_error(*first));
  EXPECT_EQ(first->issue(barrier()).status().code(), Code::aborted);
  // Its arrival on rank 1 cannot be seen from outside; a message behind it can.
  job.group(0).abort("behind it");
  ASSERT_TRUE(hears_of_error(job.group(1)));
  auto second = job.make_group(1, 99, "late");
  ASSERT_TRUE(hears_of_error(*second));
  EXPECT_TRUE(mentions(second->issue(barrier()).status().message(), {"before you came"}));
  std::thread other([&] { EXPECT_EQ(job.local(0).finish(*first->issue(barrier())), Status()); });
  EXPECT_EQ(job.local(1).finish(*second->issue(barrier())), Status());
  other.join();
}

TEST(Close, EndsWhatIsInFlightHere) {
  LoopbackJob job(2);
  std::vector<float> data(100'000);
  auto group = job.make_group(0, 55, "short-lived");
  const OperationRef reduce = *group->issue(all_reduce(data, Urgency::background));
  const OperationRef receive = *group->issue(receive_from(1, data));
  group->close();
  for (const OperationRef& operation : {reduce, receive}) {
    const Status status = job.local(0).finish(operation);
    EXPECT_EQ(status.code(), Code::aborted);
    EXPECT_TRUE(mentions(status.message(), {"short-lived", "on this rank"}));
  }
  EXPECT_TRUE(mentions(group->issue(barrier()).status().message(), {"short-lived", "has been destroyed"}));
  expect_usable(job);
}

TEST(Close, IsSaidByThePeersTimeout) {
  JumpingClock clock;
  LoopbackJob job(2, {}, {60 * kSecond, true, &clock});
  auto here = job.make_group(0, 55, "short-lived", 60 * kSecond);
  auto there = job.make_group(1, 55, "short-lived", 60 * kSecond);
  const OperationRef waits = *there->issue(barrier(Urgency::background));
  here.reset();
  expect_usable(job);  // the close has been taken over by now
  clock.jump(60 * kSecond);
  const Status status = job.local(1).finish(waits);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_TRUE(mentions(status.message(), {"rank 0 (host host-0, pid 4000), which has destroyed this group"}));
}

TEST(Close, OfTheEngineEndsItsOperations) {
  LoopbackJob job(2);
  std::vector<float> data(100'000);
  const OperationRef operation = *job.group(0).issue(all_reduce(data, Urgency::background));
  job.destroy(0);
  ASSERT_TRUE(operation->is_done());
  EXPECT_EQ(operation->status().code(), Code::aborted);
}

}  // namespace
}  // namespace neuron::testing
