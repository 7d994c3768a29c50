// The Schedule value: indices, phases, dependencies by number, hash, text.
#include "collectives/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>

#include "collectives/algorithms/steps.h"
#include "tests/collectives/schedule/cases.h"

namespace neuron {
namespace {

using namespace algorithms;

TEST(Index, GrowsLinearly) {
  const Index index{3, -2, Growth::linear};
  EXPECT_EQ(index.at(0), 3);
  EXPECT_EQ(index.at(4), -5);
}

TEST(Index, DoublesAndHalves) {
  EXPECT_EQ((Index{1, 3, Growth::doubling}).at(4), 1 + 3 * 16);
  EXPECT_EQ((Index{1, -1, Growth::doubling}).at(3), -7);
  EXPECT_EQ((Index{1, 16, Growth::halving}).at(2), 5);
  EXPECT_EQ((Index{1, -16, Growth::halving}).at(2), -3);
}

TEST(Schedule, TakesPeersModuloTheWorldAndChunksModuloTheirSpace) {
  Schedule schedule{.collective = Collective::all_gather, .world = 5, .chunks = 5, .scratch_chunks = 2};
  const Step step = send(output(linear(-1, -1)), linear(4, 1), {});
  EXPECT_EQ(schedule.peer_at(step, 0), 4);
  EXPECT_EQ(schedule.peer_at(step, 1), 0);
  EXPECT_EQ(schedule.chunk_at(step.source, 0), 4U);
  EXPECT_EQ(schedule.chunk_at(step.source, 5), 4U);
  EXPECT_EQ(schedule.chunk_at(scratch(linear(3)), 0), 1U);
  EXPECT_EQ(schedule.chunk_at(input(linear(3)), 0), 0U) << "an all-gather's input is one chunk";
}

TEST(Schedule, KnowsTheChunksOfEachSpace) {
  const auto chunks = [](Collective collective, Space space) {
    return Schedule{.collective = collective, .world = 4, .chunks = 4}.chunks_in(space);
  };
  EXPECT_EQ(chunks(Collective::all_reduce, Space::input), 4U);
  EXPECT_EQ(chunks(Collective::gather, Space::input), 1U);
  EXPECT_EQ(chunks(Collective::gather, Space::output), 4U);
  EXPECT_EQ(chunks(Collective::reduce_scatter, Space::output), 1U);
  EXPECT_EQ(chunks(Collective::scatter, Space::input), 4U);
  EXPECT_EQ(chunks(Collective::all_to_all, Space::output), 4U);
  EXPECT_EQ(chunks(Collective::all_to_all, Space::scratch), 0U);
}

TEST(Schedule, NumbersStepsOfASkippedPhase) {
  Schedule schedule;
  schedule.loop(0, std::array{copy(input(), output()), copy(input(), output())});
  schedule.loop(3, std::array{copy(input(), output())});
  EXPECT_EQ(schedule.step_count, 3);
  ASSERT_EQ(schedule.phase_count, 1);
  EXPECT_EQ(schedule.phases[0], (Phase{3, 2, 1}));
  EXPECT_EQ(schedule.instances(), 3U);
}

TEST(Schedule, ResolvesDependenciesToInstances) {
  Schedule schedule;
  const Step any = copy(input(), output());
  schedule.loop(4, std::array{any, any});  // steps 0 and 1, instances 0..7
  schedule.loop(0, std::array{any});       // step 2
  schedule.loop(6, std::array{any});       // step 3, instances 8..13
  EXPECT_EQ(schedule.awaited({1, Scope::none}, 2).count, 0U);
  EXPECT_EQ(schedule.awaited({1, Scope::same}, 2), (InstanceRange{5, 2, 1}));
  EXPECT_EQ(schedule.awaited({1, Scope::previous}, 2), (InstanceRange{3, 2, 1}));
  EXPECT_EQ(schedule.awaited({1, Scope::previous}, 0).count, 0U) << "satisfied in the first iteration";
  EXPECT_EQ(schedule.awaited({1, Scope::previous}, 4), (InstanceRange{7, 2, 1}));
  EXPECT_EQ(schedule.awaited({1, Scope::same}, 4).count, 0U) << "that phase has no such iteration";
  EXPECT_EQ(schedule.awaited({0, Scope::last}, 0), (InstanceRange{6, 2, 1}));
  EXPECT_EQ(schedule.awaited({0, Scope::all}, 0), (InstanceRange{0, 2, 4}));
  EXPECT_EQ(schedule.awaited({2, Scope::all}, 0).count, 0U) << "a skipped phase is complete";
  EXPECT_EQ(schedule.awaited({3, Scope::previous}, 1), (InstanceRange{8, 1, 1}));
}

TEST(Schedule, HasAStableHash) {
  // Records of different machines are compared by these; they change only with the schedules or the hash itself.
  EXPECT_EQ(Schedule{}.hash(), 0xB1270FD27C830753ULL);
  EXPECT_EQ(ring_all_reduce(1, 4).hash(), 0x63606B6BCC78822FULL);
  EXPECT_EQ(binomial_broadcast(3, 8, 2).hash(), 0xC3131DAF6EF5CDCFULL);
}

TEST(Schedule, HashCoversEveryField) {
  const Schedule base = ring_reduce_scatter(2, 7);
  using Change = std::function<void(Schedule&)>;
  const std::vector<Change> changes{
      [](Schedule& s) { s.collective = Collective::all_gather; },
      [](Schedule& s) { s.algorithm = Algorithm::direct; },
      [](Schedule& s) { ++s.rank; },
      [](Schedule& s) { ++s.world; },
      [](Schedule& s) { ++s.root; },
      [](Schedule& s) { ++s.chunks; },
      [](Schedule& s) { ++s.scratch_chunks; },
      [](Schedule& s) { --s.step_count; },
      [](Schedule& s) { --s.phase_count; },
      [](Schedule& s) { ++s.phases[1].iterations; },
      [](Schedule& s) { ++s.phases[2].first_step; },
      [](Schedule& s) { ++s.phases[3].step_count; },
      [](Schedule& s) { s.steps[0].kind = StepKind::copy; },
      [](Schedule& s) { ++s.steps[1].stage; },
      [](Schedule& s) { s.steps[1].completes_reduction = true; },
      [](Schedule& s) { ++s.steps[2].fan; },
      [](Schedule& s) { ++s.steps[2].peer.base; },
      [](Schedule& s) { ++s.steps[2].peer.step; },
      [](Schedule& s) { s.steps[2].peer.growth = Growth::doubling; },
      [](Schedule& s) { ++s.steps[3].label.base; },
      [](Schedule& s) { s.steps[3].source.space = Space::output; },
      [](Schedule& s) { ++s.steps[3].source.first.step; },
      [](Schedule& s) { ++s.steps[3].source.extent.base; },
      [](Schedule& s) { s.steps[3].target.space = Space::output; },
      [](Schedule& s) { ++s.steps[3].target.first.base; },
      [](Schedule& s) { s.steps[3].target.extent.growth = Growth::halving; },
      [](Schedule& s) { ++s.steps[4].after[0].step; },
      [](Schedule& s) { s.steps[4].after[2].scope = Scope::all; },
      [](Schedule& s) { ++s.steps[kMaxSteps - 1].after[2].step; },
  };
  std::set<std::uint64_t> hashes{base.hash()};
  for (std::size_t k = 0; k < changes.size(); ++k) {
    Schedule changed = base;
    changes[k](changed);
    EXPECT_TRUE(hashes.insert(changed.hash()).second) << "change " << k << " does not show in the hash";
  }
}

TEST(Schedule, HashTellsAllSchedulesApart) {
  std::set<std::uint64_t> hashes;
  std::size_t count = 0;
  for (const Case& algorithm : all_cases()) {
    for (const Rank world : {3, 4, 8}) {
      for (const Rank root : algorithm.is_rooted ? std::vector<Rank>{0, 1} : std::vector<Rank>{0}) {
        for (const Schedule& schedule : build_all(algorithm, world, root)) {
          if (schedule.phase_count == 0) continue;  // not taking part
          hashes.insert(schedule.hash());
          ++count;
        }
      }
    }
  }
  EXPECT_EQ(hashes.size(), count);
}

TEST(Schedule, PrintsItself) {
  EXPECT_THAT(
      ring_all_gather(1, 4).to_string(),
      testing::AllOf(testing::StartsWith("ring all_gather, rank 1 of 4, 4 chunks\n"),
                     testing::HasSubstr("phase 1, 2 iterations\n"),
                     testing::HasSubstr("step 4: send output[0-i] to rank 2, label 0:1+i, after last of step 0, "
                                        "after previous of step 3\n")));
}

TEST(Schedule, KeepsStageAndLabelApart) {
  EXPECT_EQ(message_label(0, 5), 5U);
  EXPECT_EQ(message_label(2, 5), 0x02000005U);
}

}  // namespace
}  // namespace neuron
