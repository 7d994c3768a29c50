// One thread, a clock that stands still and a seed: two runs are the same, message by message. And what is reduced
// depends on neither timing nor order of arrival.
#include <gtest/gtest.h>

#include "tests/collectives/run/loopback_job.h"
#include "tests/collectives/run/requests.h"
#include "tests/seed.h"

namespace neuron::testing {
namespace {

std::vector<float> random_floats(std::uint64_t seed, std::size_t count) {
  Random random(seed);
  std::vector<float> floats(count);
  for (float& one : floats) one = static_cast<float>(random.below(1U << 24)) / 7.0F;
  return floats;
}

/// Where two sets of results differ, in a line.
std::string differences(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  std::string text;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto [first, other] = std::mismatch(a[i].begin(), a[i].end(), b[i].begin());
    if (first == a[i].end()) continue;
    text += "result " + std::to_string(i) + " from element " + std::to_string(first - a[i].begin()) + ": " +
            std::to_string(*first) + " and " + std::to_string(*other) + "; ";
  }
  return text;
}

struct Replay {
  std::vector<std::vector<float>> results;
  std::vector<std::uint64_t> traffic;  // messages and bytes of each pair
  int rounds = 0;

  friend bool operator==(const Replay&, const Replay&) = default;
};

/// Operations of all ranks, driven in turn by this thread.
Replay run_alone(const loopback::Personality& personality) {
  constexpr Rank kWorld = 4;
  ManualClock clock;
  LoopbackJob job(kWorld, personality, {20 * kSecond, false, &clock});
  Replay run;
  std::vector<OperationRef> operations;
  for (Rank rank = 0; rank < kWorld; ++rank) {
    for (std::uint64_t i = 0; i < 4; ++i)
      run.results.push_back(random_floats(i * 10 + static_cast<std::uint64_t>(rank), 1 + i * 30'000));
  }
  for (std::size_t i = 0; i < run.results.size(); ++i) {
    const auto rank = static_cast<Rank>(i / 4);
    operations.push_back(*job.group(rank).issue(all_reduce(run.results[i])));
  }
  for (bool is_over = false; !is_over && run.rounds < 1'000'000; ++run.rounds) {
    is_over = true;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      is_over &= job.engine(static_cast<Rank>(i / 4)).wait(*operations[i], 0) == WaitOutcome::done;
    }
  }
  for (const OperationRef& operation : operations) EXPECT_EQ(operation->status(), Status());
  for (Rank rank = 0; rank < kWorld; ++rank) {
    for (const PeerTraffic& row : job.engine(rank).traffic()) {
      run.traffic.insert(run.traffic.end(), {row.messages, row.bytes, row.scheduled_bytes});
    }
  }
  return run;
}

TEST(Determinism, RunsOfOneSeedAreTheSame) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  const Replay first = run_alone(loopback::Personality::efa_direct(test_seed()));
  const Replay second = run_alone(loopback::Personality::efa_direct(test_seed()));
  EXPECT_TRUE(first == second);
  const Replay other = run_alone(loopback::Personality::efa_direct(test_seed() + 1));
  EXPECT_EQ(differences(first.results, other.results), "") << "results depend on the order of arrival";
}

TEST(Determinism, RanksGetTheSameBits_HoweverMessagesArrive) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  std::vector<std::vector<float>> of_first_job;
  for (const auto& personality : {loopback::Personality::in_order(), loopback::Personality::efa_direct(test_seed()),
                                  loopback::Personality::no_remote_write(test_seed())}) {
    LoopbackJob job(3, personality);
    std::vector<std::vector<float>> results(3);
    job.run([&](const LocalRank& rank) {
      auto& mine = results[static_cast<std::size_t>(rank.rank)];
      mine = random_floats(static_cast<std::uint64_t>(rank.rank), 100'000);
      EXPECT_EQ(rank.run(all_reduce(mine)), Status());
    });
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
    if (of_first_job.empty()) of_first_job = results;
    EXPECT_EQ(results, of_first_job) << "and over every transport";
  }
}

}  // namespace
}  // namespace neuron::testing
