// verify catches each kind of mistake, and its message names the rank and the step where it shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "collectives/algorithms/steps.h"
#include "collectives/schedule/verify.h"
#include "tests/collectives/schedule/cases.h"

namespace neuron {
namespace {

using namespace algorithms;
using testing::AllOf;
using testing::HasSubstr;

using Build = Schedule (*)(Rank rank, Rank world);

std::vector<Schedule> all_ranks(Build build, Rank world) {
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < world; ++rank) schedules.push_back(build(rank, world));
  return schedules;
}

/// The message of a verification that must fail.
std::string complaint(const std::vector<Schedule>& schedules, bool in_place = false) {
  const Status status = verify(schedules, {.seed = 7, .in_place = in_place});
  EXPECT_FALSE(status) << "verify accepts a wrong schedule";
  EXPECT_TRUE(status.is_ok() || status.code() == Code::internal);
  return status.message();
}

TEST(VerifyMutation, NamesTheStep_WhenAWrongChunkIsSent) {
  std::vector<Schedule> job = all_ranks(pairwise_all_to_all, 4);
  job[2].steps[1].source.first.base += 1;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank "), HasSubstr("step 0 (receive into output[2] from rank 2)"),
                                    HasSubstr("another size")));
}

TEST(VerifyMutation, NamesTheStep_WhenAnOperandIsForgotten) {
  std::vector<Schedule> job;
  for (Rank rank = 0; rank < 2; ++rank) {
    job.push_back({.collective = Collective::reduce, .rank = rank, .world = 2, .root = 0});
  }
  job[0].loop(1, std::array{receive(output(), linear(1), {})});
  job[1].loop(1, std::array{send(input(), linear(0), {})});
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 0, phase 0, iteration 0, step 0 (receive into output[0] from rank 1)"),
                    HasSubstr("holds 1:0 (rank:chunk) at the end, instead of chunk 0 of every rank")));
}

TEST(VerifyMutation, NamesBothSteps_WhenADependencyIsMissing) {
  std::vector<Schedule> job = all_ranks(ring_all_gather, 5);
  job[3].steps[4].after = {};
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 3, phase 1, iteration 0, step 4 (send output[2] to rank 4)"),
                                    HasSubstr("still being written by rank 3, phase 0, iteration 0, step 0"),
                                    HasSubstr("a dependency is missing")));
}

TEST(VerifyMutation, SeesTheDependency_WhenOnlyInPlaceNeedsIt) {
  std::vector<Schedule> job = all_ranks(direct_two_step_all_reduce, 4);
  for (Schedule& schedule : job) schedule.steps[3].after = {};
  EXPECT_TRUE(verify(job, {.in_place = false}));
  EXPECT_THAT(complaint(job, true),
              AllOf(HasSubstr("rank 0, phase 3, iteration 0, step 3 (receive into output[1] from rank 1)"),
                    HasSubstr("still being read by rank 0, phase 1, iteration 0, step 1")));
}

TEST(VerifyMutation, FindsTheDeadlock_WhenSendsComeBeforeReceives) {
  std::vector<Schedule> job;
  for (Rank rank = 0; rank < 2; ++rank) {
    Schedule schedule{.collective = Collective::all_gather, .rank = rank, .world = 2, .chunks = 2};
    const Index peer = linear(1 - rank);
    schedule.loop(1, std::array{send(input(), peer, {}), receive(output(peer), peer, {}, {{0, Scope::same}}),
                                copy(input(), output(linear(rank)))});
    job.push_back(schedule);
  }
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 0, phase 0, iteration 0, step 1"), HasSubstr("deadlock"),
                                    HasSubstr("never posted: rank 1, phase 0, iteration 0, step 1")));
}

TEST(VerifyMutation, FindsTheDeadlock_WhenEveryoneWaitsForItsPredecessor) {
  std::vector<Schedule> job = all_ranks(dissemination_barrier, 4);
  for (Schedule& schedule : job) schedule.steps[1].after[0] = {0, Scope::same};
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 0, phase 0, iteration 0, step 1"), HasSubstr("deadlock"),
                                    HasSubstr("never sent: rank 3")));
}

TEST(VerifyMutation, FindsTheDeadlock_WhenAStepWaitsForALaterOne) {
  std::vector<Schedule> job = all_ranks(direct_all_gather, 3);
  job[1].steps[0].after[0] = {1, Scope::same};
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 1, phase 0, iteration 0, step 0"), HasSubstr("issued only after it")));
}

TEST(VerifyMutation, NamesTheSender_WhenAMessageIsUnmatched) {
  std::vector<Schedule> job;
  for (Rank rank = 0; rank < 4; ++rank) job.push_back(direct_scatter(rank, 4, 0));
  job[2].phase_count = 0;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 0, phase 0, iteration 1, step 0"),
                                    HasSubstr("unmatched message: rank 2 never receives it")));
}

TEST(VerifyMutation, NamesTheReceiver_WhenNobodySends) {
  std::vector<Schedule> job;
  for (Rank rank = 0; rank < 4; ++rank) job.push_back(direct_gather(rank, 4, 0));
  job[3].phase_count = 0;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 0, phase 0, iteration 2, step 0"),
                                    HasSubstr("unmatched receive: rank 3 never sends")));
}

TEST(VerifyMutation, NamesBothSteps_WhenALabelIsUsedTwice) {
  std::vector<Schedule> job = all_ranks(ring_all_gather, 4);
  for (Schedule& schedule : job) schedule.steps[3].label.step = schedule.steps[4].label.step = 0;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("phase 1, iteration 1, step 4"), HasSubstr("two candidates")));
}

TEST(VerifyMutation, NamesTheStep_WhenAScratchSlotIsReusedTooEarly) {
  std::vector<Schedule> job = all_ranks(ring_reduce_scatter, 6);
  job[4].steps[2].after = {};
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 4, phase 1, iteration 1, step 2"), HasSubstr("scratch[0]"),
                                    HasSubstr("still being read by rank 4, phase 1, iteration 0, step 3")));
}

TEST(VerifyMutation, NamesTheStep_WhenThereAreTooFewScratchSlots) {
  std::vector<Schedule> job = all_ranks(ring_reduce_scatter, 6);
  for (Schedule& schedule : job) schedule.scratch_chunks = 1;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 0"), HasSubstr("scratch[0]"), HasSubstr("still being written")));
}

TEST(VerifyMutation, ShowsBothOrders_WhenRanksReduceInDifferentOrders) {
  std::vector<Schedule> job = all_ranks(direct_all_reduce, 3);
  job[2].steps[1].peer.base = 1;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 2, phase 0, iteration 0, step 1"),
                                    HasSubstr("is combined as (1:0 + 2:0 + 0:0)!, on rank 0 as (0:0 + 1:0 + 2:0)!")));
}

TEST(VerifyMutation, NamesTheSender_WhenThePeerIsWrong) {
  std::vector<Schedule> job = all_ranks(pairwise_all_to_all, 5);
  job[1].steps[1].peer.base += 1;  // its own successor gets nothing, and the last message would go to itself
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 1, phase 0, iteration 3, step 1"), HasSubstr("sends to itself")));
  job = all_ranks(ring_all_reduce, 5);
  job[1].steps[2].peer.base += 1;
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 2, phase 1, iteration 1, step 1"), HasSubstr("rank 1 never sends")));
  job[1].steps[2].peer.base -= 3;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 1, phase 1, iteration 0, step 2 (send output[0] to rank 0)"),
                                    HasSubstr("never receives it")));
}

TEST(VerifyMutation, NamesTheStep_WhenOneRankDropsAnIteration) {
  std::vector<Schedule> job = all_ranks(ring_all_gather, 5);
  job[2].phases[1].iterations -= 1;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 1, phase 1, iteration 2, step 4"), HasSubstr("unmatched")));
}

TEST(VerifyMutation, NamesTheChunk_WhenAllRanksDropAnIteration) {
  std::vector<Schedule> job = all_ranks(ring_all_gather, 5);
  for (Schedule& schedule : job) schedule.phases[1].iterations -= 1;
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 0"), HasSubstr("output[1] holds undefined"), HasSubstr("instead of 1:0")));
}

TEST(VerifyMutation, NamesTheUnheardRank_WhenABarrierDropsARound) {
  std::vector<Schedule> job = all_ranks(dissemination_barrier, 8);
  for (Schedule& schedule : job) schedule.phases[0].iterations -= 1;
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 0, phase 0, iteration 1, step 1"), HasSubstr("having heard of rank 1")));
}

TEST(VerifyMutation, CountsTheInputs_WhenOneIsAddedTwice) {
  // The sum of both ranks is sent to and fro once more: every operand arrives twice.
  std::vector<Schedule> job;
  for (Rank rank = 0; rank < 2; ++rank) {
    Schedule schedule{.collective = Collective::all_reduce, .rank = rank, .world = 2, .scratch_chunks = 1};
    const Index peer = linear(1 - rank);
    schedule.loop(1, std::array{reduce(input(), scratch(), peer, {0, {}}, false), send(input(), peer, {0, {}}),
                                reduce(scratch(), output(), peer, {1, {}}, true, {{0, Scope::same}, {1, Scope::same}}),
                                send(scratch(), peer, {1, {}})});
    job.push_back(schedule);
  }
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 0, phase 0, iteration 0, step 2"),
                                    HasSubstr("instead of chunk 0 of every rank once")));
}

TEST(VerifyMutation, NamesTheStep_WhenAnAverageIsNeverDivided) {
  std::vector<Schedule> job = all_ranks(ring_reduce_scatter, 4);
  job[1].steps[4].completes_reduction = false;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("rank 1"), HasSubstr("step 4"), HasSubstr("does not complete")));
}

TEST(VerifyMutation, NamesTheStep_WhenAnAverageIsDividedTwice) {
  std::vector<Schedule> job = all_ranks(ring_reduce_scatter, 4);
  job[1].steps[0].completes_reduction = true;
  EXPECT_THAT(complaint(job), AllOf(HasSubstr("step 4"), HasSubstr("more than one step completes")));
}

TEST(VerifyMutation, NamesTheStep_WhenTheResultOverwritesWhatIsBeingSent) {
  // The direct all-reduce without its copy: right out of place only.
  std::vector<Schedule> job = all_ranks(direct_all_reduce, 4);
  for (Schedule& schedule : job) {
    schedule = Schedule{.collective = Collective::all_reduce, .rank = schedule.rank, .world = 4};
    schedule.loop(3, std::array{send(input(), linear(schedule.rank + 1, 1), {})});
    schedule.loop(1, std::array{reduce_all(4, input(), output())});
  }
  EXPECT_TRUE(verify(job, {.in_place = false}));
  EXPECT_THAT(complaint(job, true), AllOf(HasSubstr("rank 0, phase 1, iteration 0, step 1"), HasSubstr("output[0]"),
                                          HasSubstr("still being read by rank 0, phase 0, iteration 0, step 0")));
}

TEST(VerifyMutation, NamesTheStep_WhenTheInputIsOverwritten) {
  std::vector<Schedule> job = all_ranks(direct_all_gather, 3);
  job[1].steps[0].target.space = Space::input;
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 1, phase 0, iteration 0, step 0"), HasSubstr("must not be written")));
}

TEST(VerifyMutation, NamesTheStep_WhenAChunkIsReadBeforeItIsWritten) {
  std::vector<Schedule> job = all_ranks(direct_all_gather, 3);
  job[1].steps[1].source = output(linear(1));
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 1, phase 0, iteration 0, step 1"), HasSubstr("read before it is written")));
}

TEST(VerifyMutation, NamesTheStep_WhenItReachesBeyondTheBuffer) {
  std::vector<Schedule> job = all_ranks(direct_all_gather, 3);
  job[1].steps[0].target.extent.base = 4;
  EXPECT_THAT(complaint(job),
              AllOf(HasSubstr("rank 1, phase 0, iteration 0, step 0"), HasSubstr("beyond the last chunk")));
}

TEST(VerifyMutation, NamesTheRank_WhenSchedulesDoNotBelongTogether) {
  std::vector<Schedule> job = all_ranks(direct_all_gather, 3);
  std::vector<Schedule> other = job;
  other[1] = direct_reduce_scatter(1, 3);
  EXPECT_THAT(complaint(other), HasSubstr("rank 1 runs another collective"));
  other = job;
  std::swap(other[1], other[2]);
  EXPECT_THAT(complaint(other), HasSubstr("rank 1 holds the schedule of another rank"));
}

}  // namespace
}  // namespace neuron
