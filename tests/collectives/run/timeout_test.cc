// Deadlines: who is told, and what.
#include <gtest/gtest.h>

#include "tests/collectives/run/loopback_job.h"
#include "tests/collectives/run/requests.h"

namespace neuron::testing {
namespace {

constexpr Nanoseconds kTimeout = 60 * kSecond;

/// Three ranks on a clock that jumps.
class Timeout : public ::testing::Test {
 protected:
  explicit Timeout(bool background_thread = true)
      : job_(3, loopback::Personality::in_order(), {kTimeout, background_thread, &clock_}) {}

  /// Whether rank `rank` has started so many operations.
  bool has_started(Rank rank, std::size_t operations) {
    return eventually([&] {
      std::size_t started = 0;
      for (const FlightRecord& record : job_.engine(rank).flight_records()) started += record.started_at != 0;
      return started >= operations;
    });
  }
  OperationRef issue(Rank rank, Request request) {
    request.urgency = Urgency::background;
    auto issued = job_.group(rank).issue(std::move(request));
    EXPECT_TRUE(issued) << issued.status().message();
    return *issued;
  }

  JumpingClock clock_;
  LoopbackJob job_;
  std::vector<float> data_ = std::vector<float>(100);
  std::vector<float> other_ = std::vector<float>(100);
};

TEST_F(Timeout, NamesOperationGroupAndWhoHasNotArrived) {
  const OperationRef first = issue(0, all_reduce(data_));
  const OperationRef second = issue(1, all_reduce(other_));
  ASSERT_TRUE(has_started(0, 1) && has_started(1, 1));
  clock_.jump(kTimeout);
  for (const auto& [rank, operation] : {std::pair{0, first}, std::pair{1, second}}) {
    const Status status = job_.local(rank).finish(operation);
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_TRUE(
        mentions(status.message(), {"all_reduce 0 of group default", "400 bytes", "float32", "timed out after 60.",
                                    "Not arrived: rank 2 (host host-2, pid 4002)", "issued 0 collectives"}));
    EXPECT_EQ(status.message().find("Not arrived: rank 0"), std::string::npos);
  }
  EXPECT_EQ(first->status().message(), second->status().message()) << "one message on all ranks";
}

TEST_F(Timeout, IsToldToTheRankThatNeverCame_OnceAtItsNextCall) {
  const OperationRef operation = issue(0, all_reduce(data_));
  ASSERT_TRUE(has_started(0, 1));
  clock_.jump(kTimeout);
  ASSERT_EQ(job_.local(0).finish(operation).code(), Code::timeout);
  for (const Rank rank : {1, 2}) {
    ASSERT_TRUE(eventually([&] { return !job_.group(rank).error().is_ok(); }));
    const Status told = job_.group(rank).issue(all_reduce(other_)).status();
    EXPECT_EQ(told.code(), Code::timeout);
    EXPECT_TRUE(mentions(told.message(), {"all_reduce 0 of group default", "Not arrived"}));
  }
  job_.run([](const LocalRank& rank) {  // the next epoch
    std::vector<float> ones(10, 1);
    EXPECT_EQ(rank.run(all_reduce(ones)), Status());
    EXPECT_EQ(ones, std::vector<float>(10, 3));
  });
}

TEST_F(Timeout, OfTheOperationComesBeforeTheGroups) {
  const OperationRef operation = issue(0, with_timeout(all_reduce(data_), kSecond));
  ASSERT_TRUE(has_started(0, 1));
  clock_.jump(kSecond);
  EXPECT_EQ(job_.local(0).finish(operation).code(), Code::timeout);
}

TEST_F(Timeout, IsTheGroupsNewOne_AfterSetTimeout) {
  job_.group(0).set_timeout(2 * kSecond);
  EXPECT_EQ(job_.group(0).timeout(), 2 * kSecond);
  const OperationRef operation = issue(0, all_reduce(data_));
  ASSERT_TRUE(has_started(0, 1));
  clock_.jump(2 * kSecond);
  EXPECT_EQ(job_.local(0).finish(operation).code(), Code::timeout);
}

TEST_F(Timeout, SaysWhichRankIsInAnEarlierOperation) {
  // Rank 2 waits for a message before it comes to the all-reduce.
  issue(2, receive_from(0, other_));
  issue(1, all_reduce(data_));
  const OperationRef operation = issue(0, all_reduce(data_));
  ASSERT_TRUE(has_started(0, 1) && has_started(1, 1) && has_started(2, 1));
  clock_.jump(kTimeout - kSecond);  // the receive of rank 2 and these end nearly at once
  clock_.jump(kSecond);
  const Status status = job_.local(0).finish(operation);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_TRUE(mentions(status.message(), {"rank 2 (host host-2, pid 4002)"}));
}

TEST_F(Timeout, OfOneReceiveLeavesTheGroupAlone) {
  const OperationRef receive = issue(0, with_timeout(receive_from(1, other_), kSecond));
  const OperationRef reduce = issue(0, all_reduce(data_));
  ASSERT_TRUE(has_started(0, 2));
  clock_.jump(kSecond);
  const Status status = job_.local(0).finish(receive);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_TRUE(mentions(status.message(), {"receive from rank 1 (tag 0) of group default",
                                          "rank 1 (host host-1, pid 4001)", "has not called send"}));
  EXPECT_FALSE(reduce->is_done());
  std::vector<float> one(100);
  std::vector<float> two(100);
  const OperationRef on_one = issue(1, all_reduce(one));
  const OperationRef on_two = issue(2, all_reduce(two));
  EXPECT_EQ(job_.local(0).finish(reduce), Status());
  EXPECT_EQ(job_.local(1).finish(on_one), Status());
  EXPECT_EQ(job_.local(2).finish(on_two), Status());
}

class LateMessage : public Timeout, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(LateMessage, IsDroppedAndTheNextOneMatches) {
  std::vector<float> late(GetParam(), 1);
  std::vector<float> next(GetParam(), 2);
  std::vector<float> got(GetParam(), 0);
  const OperationRef receive = issue(0, with_timeout(receive_from(1, got), kSecond));
  ASSERT_TRUE(has_started(0, 1));
  clock_.jump(kSecond);
  ASSERT_EQ(job_.local(0).finish(receive).code(), Code::timeout);
  const OperationRef sent_late = issue(1, send_to(0, late));
  const OperationRef sent_next = issue(1, send_to(0, next));
  EXPECT_EQ(job_.local(0).run(receive_from(1, got)), Status());
  EXPECT_EQ(got, next);
  EXPECT_EQ(job_.local(1).finish(sent_next), Status());
  const Status told = job_.local(1).finish(sent_late);
  if (GetParam() * sizeof(float) > kEagerBytes) {  // smaller ones have left long before
    EXPECT_EQ(told.code(), Code::aborted);
    EXPECT_TRUE(mentions(told.message(), {"send to rank 0 (tag 0)", "rank 0 (host host-0, pid 4000)", "given up"}));
  }
  EXPECT_TRUE(eventually([&] { return job_.engine(0).memory_in_use() < 1024 * 1024; }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, LateMessage, ::testing::Values(1, 1000, 50'000, 5'000'000));

TEST_F(Timeout, OfASendEndsTheReceiveOfTheOtherSide) {
  std::vector<float> large(100'000, 1);
  std::vector<float> got(100'000, 0);
  const OperationRef send = issue(1, with_timeout(send_to(0, large), kSecond));
  ASSERT_TRUE(has_started(1, 1));
  clock_.jump(kSecond);
  const Status status = job_.local(1).finish(send);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_TRUE(mentions(status.message(), {"send to rank 0", "rank 0 (host host-0, pid 4000)", "has not called recv"}));
  const OperationRef receive = issue(0, receive_from(1, got));
  ASSERT_TRUE(eventually([&] { return receive->is_done(); })) << "the receive waits for a message that was given up";
  EXPECT_EQ(receive->status().code(), Code::aborted);
  const OperationRef next = issue(1, send_to(0, large));
  EXPECT_EQ(job_.local(0).run(receive_from(1, got)), Status());
  EXPECT_EQ(job_.local(1).finish(next), Status());
  EXPECT_EQ(got, large);
}

TEST_F(Timeout, OfAReceiveLeavesTheOtherDirectionOfTheSameTagAlone) {
  std::vector<float> got(100, 0);
  std::vector<float> sent(100, 4);
  const OperationRef of_rank_1 = issue(1, receive_from(0, got));
  const OperationRef of_rank_0 = issue(0, with_timeout(receive_from(1, other_), kSecond));
  ASSERT_TRUE(has_started(0, 1) && has_started(1, 1));
  clock_.jump(kSecond);
  ASSERT_EQ(job_.local(0).finish(of_rank_0).code(), Code::timeout);
  ASSERT_EQ(job_.local(0).run(send_to(1, sent)), Status());
  EXPECT_EQ(job_.local(1).finish(of_rank_1), Status());
  EXPECT_EQ(got, sent);
}

TEST_F(Timeout, OfASendThatNeverLeftEndsTheReceiveOfTheOtherSide) {
  std::vector<std::vector<float>> many(300, std::vector<float>(10, 1));
  std::vector<OperationRef> sends;
  for (auto& one : many) sends.push_back(issue(1, with_timeout(send_to(0, one), kSecond)));
  ASSERT_TRUE(has_started(1, many.size()));
  clock_.jump(kSecond);
  std::vector<bool> has_left;
  for (const OperationRef& send : sends) has_left.push_back(job_.local(1).finish(send).is_ok());
  ASSERT_FALSE(has_left.back()) << "credit for all of them?";
  std::vector<float> got(10);
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const OperationRef receive = issue(0, receive_from(1, got));
    ASSERT_TRUE(eventually([&] { return receive->is_done(); })) << i;
    EXPECT_EQ(receive->status().is_ok(), has_left[i]) << i << ": " << receive->status().message();
  }
  std::vector<float> last(10, 5);
  ASSERT_EQ(job_.local(1).run(send_to(0, last)), Status());
  ASSERT_EQ(job_.local(0).run(receive_from(1, got)), Status());
  EXPECT_EQ(got, last);
}

/// Nobody drives rank 2.
class SilentRank : public Timeout {
 protected:
  SilentRank() : Timeout(false) {}
};

TEST_F(SilentRank, IsNamedAsOneThatDoesNotAnswer) {
  job_.run([](const LocalRank& rank) { ASSERT_EQ(rank.run(barrier()), Status()); });  // connected
  std::vector<float> other(100);
  std::thread companion([&] { EXPECT_EQ(job_.local(1).run(all_reduce(other)).code(), Code::timeout); });
  const OperationRef operation = issue(0, all_reduce(data_));
  EXPECT_EQ(job_.engine(0).wait(*operation, clock_.now() + 50 * kMillisecond), WaitOutcome::expired);
  clock_.jump(kTimeout);
  const Status status = job_.local(0).finish(operation);
  companion.join();
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_TRUE(mentions(status.message(), {"rank 2 (host host-2, pid 4002), which does not answer"}));
}

}  // namespace
}  // namespace neuron::testing
