// The cost of each algorithm is the textbook's.
#include "collectives/schedule/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "tests/collectives/schedule/cases.h"

namespace neuron {
namespace {

using namespace algorithms;

using Build = Schedule (*)(Rank rank, Rank world);

Cost cost_of(Build build, Rank world, const CostModel& model, double bytes) {
  std::vector<Schedule> schedules;
  for (Rank rank = 0; rank < world; ++rank) schedules.push_back(build(rank, world));
  const Result<Cost> result = cost(schedules, model, bytes);
  EXPECT_TRUE(result) << result.status().message();
  return result ? *result : Cost{};
}

constexpr CostModel kLatency{.alpha = 1};
constexpr CostModel kBandwidth{.beta = 1};

TEST(Cost, CountsRounds_WhenOnlyLatencyMatters) {
  for (const Rank n : {2, 3, 5, 8, 16}) {
    EXPECT_DOUBLE_EQ(cost_of(ring_all_reduce, n, kLatency, 1).seconds, 2.0 * (n - 1)) << n;
    EXPECT_DOUBLE_EQ(cost_of(direct_all_reduce, n, kLatency, 1).seconds, 1) << n;
    EXPECT_DOUBLE_EQ(cost_of(direct_two_step_all_reduce, n, kLatency, 1).seconds, 2) << n;
    EXPECT_DOUBLE_EQ(cost_of(ring_all_gather, n, kLatency, 1).seconds, n - 1) << n;
    EXPECT_DOUBLE_EQ(cost_of(ring_reduce_scatter, n, kLatency, 1).seconds, n - 1) << n;
  }
  EXPECT_DOUBLE_EQ(cost_of(dissemination_barrier, 8, kLatency, 1).seconds, 3);
  EXPECT_DOUBLE_EQ(cost_of(dissemination_barrier, 9, kLatency, 1).seconds, 4);
}

TEST(Cost, IsLogarithmic_ForABroadcastTree) {
  const auto build = [](Rank rank, Rank world) { return binomial_broadcast(rank, world, world / 3); };
  int most_hops = 0;  // a rank is as many hops from the root as its distance has bits
  for (Rank n = 2; n <= 33; ++n) {
    most_hops = std::max(most_hops, std::popcount(static_cast<unsigned>(n - 1)));
    const Cost tree = cost_of(build, n, kLatency, 1);
    EXPECT_DOUBLE_EQ(tree.seconds, most_hops) << n;
    EXPECT_EQ(tree.messages, static_cast<std::uint64_t>(n - 1));
  }
  for (int k = 1; k <= 6; ++k) EXPECT_DOUBLE_EQ(cost_of(build, 1 << k, kBandwidth, 1).seconds, k);
}

TEST(Cost, IsOptimalInBytes_ForRingAndTwoStep) {
  for (const Rank n : {2, 3, 4, 8}) {
    const double optimum = 2.0 * (n - 1) / n * 1000;
    const Cost ring = cost_of(ring_all_reduce, n, kBandwidth, 1000);
    EXPECT_NEAR(ring.most_bytes, optimum, 1e-9);
    EXPECT_NEAR(ring.seconds, optimum, 1e-9) << n;
    const Cost two_step = cost_of(direct_two_step_all_reduce, n, kBandwidth, 1000);
    EXPECT_NEAR(two_step.most_bytes, optimum, 1e-9);
    EXPECT_GE(two_step.seconds, optimum - 1e-9);
    EXPECT_NEAR(cost_of(direct_all_reduce, n, kBandwidth, 1000).most_bytes, (n - 1) * 1000.0, 1e-9);
    EXPECT_NEAR(cost_of(ring_all_gather, n, kBandwidth, 1000).most_bytes, optimum / 2, 1e-9);
    EXPECT_NEAR(cost_of(direct_reduce_scatter, n, kBandwidth, 1000).most_bytes, optimum / 2, 1e-9);
  }
}

TEST(Cost, ChargesEveryOperand_WhenCombining) {
  const CostModel model{.gamma = 1};
  // Four operands and the copy that is sent.
  EXPECT_DOUBLE_EQ(cost_of(direct_all_reduce, 4, model, 10).seconds, 50);
  // A ring combines two operands of a chunk three times.
  EXPECT_DOUBLE_EQ(cost_of(ring_all_reduce, 4, model, 4).seconds, 6);
}

TEST(Cost, PrefersDirectForSmallAndRingForLarge) {
  const CostModel model{.alpha = 10e-6, .beta = 1e-10, .gamma = 1e-11};
  EXPECT_LT(cost_of(direct_all_reduce, 8, model, 1024).seconds, cost_of(ring_all_reduce, 8, model, 1024).seconds);
  EXPECT_GT(cost_of(direct_all_reduce, 8, model, 64 << 20).seconds,
            cost_of(ring_all_reduce, 8, model, 64 << 20).seconds);
}

TEST(Cost, PassesTheErrorOn_WhenSchedulesAreWrong) {
  std::vector<Schedule> schedules{direct_all_gather(0, 2), direct_all_gather(1, 2)};
  schedules[1].phase_count = 0;
  const Result<Cost> result = cost(schedules, kLatency, 1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.status().code(), Code::internal);
}

}  // namespace
}  // namespace neuron
