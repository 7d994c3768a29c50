// A rank that dies or leaves: the others are told, by name.
#include <gtest/gtest.h>

#include "tests/collectives/run/loopback_job.h"
#include "tests/collectives/run/requests.h"

namespace neuron::testing {
namespace {

void expect_names_rank_1(const Status& status) {
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_TRUE(mentions(status.message(), {"rank 1 (host host-1, pid 4001) has died"}));
}

class Death : public ::testing::TestWithParam<bool> {
 protected:
  void kill(LoopbackJob& job) {
    job.hub().kill(1);
    if (!GetParam()) return;
    for (const Rank rank : {0, 2}) job.engine(rank).report_death(1, "killed by signal 9");
  }
};

TEST_P(Death, EndsAllOperationsWithTheName) {
  LoopbackJob job(3);
  std::vector<OperationRef> of_rank_0;
  std::vector<OperationRef> of_rank_2;
  std::vector<std::vector<float>> data(10, std::vector<float>(100'000));
  for (std::size_t i = 0; i < 5; ++i) {
    of_rank_0.push_back(*job.group(0).issue(all_reduce(data[i], Urgency::background)));
    of_rank_2.push_back(*job.group(2).issue(all_reduce(data[i + 5], Urgency::background)));
  }
  of_rank_0.push_back(*job.group(0).issue(receive_from(1, data[0])));
  kill(job);
  for (const OperationRef& operation : of_rank_0) expect_names_rank_1(job.local(0).finish(operation));
  for (const OperationRef& operation : of_rank_2) expect_names_rank_1(job.local(2).finish(operation));
  for (const Rank rank : {0, 2, 0, 2}) {  // a group with a dead member stays ended
    expect_names_rank_1(job.group(rank).issue(barrier()).status());
    expect_names_rank_1(job.group(rank).error());
  }
}

TEST_P(Death, LeavesGroupsOfOthersAlone) {
  LoopbackJob job(3);
  std::vector<std::unique_ptr<Communicator>> pair;
  for (const Rank rank : {0, 2})
    pair.push_back(job.engine(rank).make_communicator({31, "survivors", {0, 2}, 20 * kSecond}));
  std::vector<float> a(100'000, 1);
  std::vector<float> b(100'000, 1);
  const OperationRef early = *pair[0]->issue(all_reduce(a, Urgency::background));
  kill(job);
  ASSERT_TRUE(eventually([&] { return !job.group(0).error().is_ok() && !job.group(2).error().is_ok(); }));
  EXPECT_EQ(job.local(2).finish(*pair[1]->issue(all_reduce(b))), Status());
  EXPECT_EQ(job.local(0).finish(early), Status());
  EXPECT_EQ(a, std::vector<float>(100'000, 2));
  pair.clear();
}

TEST_P(Death, IsKnownToAGroupMadeAfterwards) {
  LoopbackJob job(3);
  kill(job);
  ASSERT_TRUE(eventually([&] { return !job.group(0).error().is_ok() || GetParam() == false; }));
  if (!GetParam()) {  // the transport tells only engines that poll: any operation will do
    expect_names_rank_1(job.local(0).run(barrier()));
  }
  auto later = job.make_group(0, 77, "later");
  ASSERT_TRUE(eventually([&] { return !later->error().is_ok(); }));
  expect_names_rank_1(later->issue(barrier()).status());
}

INSTANTIATE_TEST_SUITE_P(Told, Death, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "ByControlToo" : "ByTransport"; });

/// Rank 0 knows, at the time before any jump of the clock.
void leave(LoopbackJob& job) {
  job.engine(0).report_leave(1);
  [[maybe_unused]] const std::size_t taken_over = job.engine(0).memory_in_use();
}

TEST(Leave, EndsWhatWaitsForTheRank_AfterItsLastMessages) {
  JumpingClock clock;
  LoopbackJob job(2, {}, {600 * kSecond, true, &clock});
  std::vector<float> sent(1000, 3);
  std::vector<float> got(1000);
  ASSERT_EQ(job.local(1).run(send_to(0, sent)), Status());
  leave(job);
  EXPECT_EQ(job.local(0).run(receive_from(1, got)), Status()) << "what it sent before still counts";
  EXPECT_EQ(got, sent);
  const OperationRef operation = *job.group(0).issue(all_reduce(got, Urgency::background));
  clock.jump(5 * kSecond);
  const Status status = job.local(0).finish(operation);
  EXPECT_EQ(status.code(), Code::peer_lost);
  EXPECT_TRUE(mentions(status.message(), {"rank 1 (host host-1, pid 4001) has left the job", "all_reduce 0"}));
}

TEST(Leave, FailsOnlyThePairOfAReceive) {
  JumpingClock clock;
  LoopbackJob job(2, {}, {600 * kSecond, true, &clock});
  job.run([](const LocalRank& rank) { ASSERT_EQ(rank.run(barrier()), Status()); });  // connected
  std::vector<float> got(1000);
  const OperationRef operation = *job.group(0).issue(receive_from(1, got));
  leave(job);
  clock.jump(5 * kSecond);
  EXPECT_EQ(job.local(0).finish(operation).code(), Code::peer_lost);
  EXPECT_EQ(job.group(0).error(), Status());
}

}  // namespace
}  // namespace neuron::testing
