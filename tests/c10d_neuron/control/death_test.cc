#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "process.h"

namespace neuron::control {
namespace {

using namespace std::chrono_literals;

/// Ranks as processes; rank r is on fake host r % hosts.
class Processes {
 public:
  Processes(int world, int hosts) {
    for (int rank = 0; rank < world; ++rank) {
      ranks_.push_back(std::make_unique<RankProcess>(rank, world, "fake" + std::to_string(rank % hosts), store_));
    }
  }
  bool all_joined() {
    for (auto& rank : ranks_) {
      if (!rank->hears("joined")) return false;
    }
    return true;
  }
  RankProcess& operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int world() const { return static_cast<int>(ranks_.size()); }

 private:
  StoreFolder store_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
};

/// All but the victims hear of each victim's death, once. Returns the slowest time since `killed_at`, for those in
/// `latest`.
double expect_deaths_heard(Processes& job, const std::vector<int>& victims, const std::vector<int>& latest,
                           double killed_at) {
  double slowest = 0;
  for (int rank = 0; rank < job.world(); ++rank) {
    if (std::find(victims.begin(), victims.end(), rank) != victims.end()) continue;
    for (const int victim : latest) {
      Event event;
      const bool heard = job[rank].hears("death", victim, event, 10s);
      EXPECT_TRUE(heard) << "rank " << rank << " of rank " << victim;
      if (!heard) continue;
      slowest = std::max(slowest, event.at - killed_at);
      EXPECT_NE(event.text.find("its process has ended (host fake"), std::string::npos) << event.text;
    }
    EXPECT_EQ(job[rank].count("death"), static_cast<int>(victims.size())) << "rank " << rank;
  }
  return slowest;
}

class VictimAt : public ::testing::TestWithParam<int> {};

// Whichever rank it is: with six ranks on two hosts, two of them lead, and rank 0 serves.
TEST_P(VictimAt, KilledRank_IsKnownToAllOthers_InWellUnderASecond) {
  const int victim = GetParam();
  Processes job(6, 2);
  ASSERT_TRUE(job.all_joined());
  const double killed_at = monotonic_seconds();
  job[victim].kill();
  const double slowest = expect_deaths_heard(job, {victim}, {victim}, killed_at);
  std::printf("rank %d killed: the last one heard after %.1f ms\n", victim, 1e3 * slowest);
  EXPECT_LT(slowest, 1.0);
  // Whoever led, the others can still talk.
  for (int rank = 0; rank < 6; ++rank) {
    if (rank != victim) job[rank].tell("broadcast from" + std::to_string(rank));
  }
  for (int rank = 0; rank < 6; ++rank) {
    for (int other = 0; other < 6; ++other) {
      if (rank == victim || other == victim || rank == other) continue;
      EXPECT_TRUE(job[rank].hears("message", other)) << rank << " from " << other;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, VictimAt, ::testing::Range(0, 6));

TEST(Death, RanksKilledOneAfterTheOther_AreAllReported) {
  Processes job(6, 2);
  ASSERT_TRUE(job.all_joined());
  std::vector<int> victims;
  for (const int victim : {0, 1, 2, 3}) {
    victims.push_back(victim);
    const double killed_at = monotonic_seconds();
    job[victim].kill();
    const double slowest = expect_deaths_heard(job, victims, {victim}, killed_at);
    std::printf("rank %d killed: the last one heard after %.1f ms\n", victim, 1e3 * slowest);
    EXPECT_LT(slowest, 1.0);
  }
}

TEST(Death, AllRanksOfAHost_AreReported_WhenTheyDieTogether) {
  Processes job(6, 2);
  ASSERT_TRUE(job.all_joined());
  const double killed_at = monotonic_seconds();
  for (const int victim : {1, 3, 5}) job[victim].signal(SIGKILL);
  const double slowest = expect_deaths_heard(job, {1, 3, 5}, {1, 3, 5}, killed_at);
  std::printf("host killed: the last one heard after %.1f ms\n", 1e3 * slowest);
  EXPECT_LT(slowest, 2.0);
}

TEST(Death, LeaderAndOneOfItsLocals_AreReported_WhenTheyDieTogether) {
  Processes job(8, 2);
  ASSERT_TRUE(job.all_joined());
  const double killed_at = monotonic_seconds();
  for (const int victim : {0, 2, 4}) job[victim].signal(SIGKILL);
  const double slowest = expect_deaths_heard(job, {0, 2, 4}, {0, 2, 4}, killed_at);
  std::printf("leader and locals killed: the last one heard after %.1f ms\n", 1e3 * slowest);
  EXPECT_LT(slowest, 1.0);
}

TEST(Death, KilledRank_IsReportedAtOnce_AlthoughItsForkedChildLives) {
  for (const int victim : {1, 2}) {
    Processes job(4, 2);
    ASSERT_TRUE(job.all_joined());
    job[victim].tell("fork lives");
    Event forked;
    ASSERT_TRUE(job[victim].hears("forked", -1, forked, 5s));
    const double killed_at = monotonic_seconds();
    job[victim].kill();
    const double slowest = expect_deaths_heard(job, {victim}, {victim}, killed_at);
    std::printf("rank %d killed, its child lives: heard after %.1f ms\n", victim, 1e3 * slowest);
    EXPECT_LT(slowest, 1.0);
    ::kill(forked.rank, SIGKILL);
  }
}

TEST(Death, ForkedChild_MayUseAndEndWithTheInheritedControl_WithoutHarm) {
  Processes job(4, 2);
  ASSERT_TRUE(job.all_joined());
  for (int rank = 0; rank < 4; ++rank) {
    job[rank].tell("fork exits");
    Event forked;
    ASSERT_TRUE(job[rank].hears("forked", -1, forked, 10s));
    EXPECT_EQ(forked.text, "ok");
  }
  for (int rank = 0; rank < 4; ++rank) job[rank].tell("broadcast still-here");
  for (int rank = 0; rank < 4; ++rank) {
    Event message;
    EXPECT_TRUE(job[rank].hears("message", (rank + 1) % 4, message, 5s));
    EXPECT_EQ(message.text, "still-here");
    EXPECT_EQ(job[rank].count("death"), 0);
  }
}

TEST(Death, WatchedRank_IsReportedOnce) {
  Processes job(4, 1);
  ASSERT_TRUE(job.all_joined());
  for (int rank = 0; rank < 3; ++rank) job[rank].tell("watch 3");
  job[0].tell("send 1 ping");
  ASSERT_TRUE(job[1].hears("message"));
  const double killed_at = monotonic_seconds();
  job[3].kill();
  expect_deaths_heard(job, {3}, {3}, killed_at);
}

TEST(Death, RanksThatLeaveAndExit_AreNotReportedDead) {
  Processes job(6, 2);
  ASSERT_TRUE(job.all_joined());
  for (const int leaver : {0, 3, 1}) {
    job[leaver].tell("leave");
    ASSERT_TRUE(job[leaver].hears("left"));
    job[leaver].kill();
  }
  for (const int rank : {2, 4, 5}) {
    for (const int leaver : {0, 3, 1}) EXPECT_TRUE(job[rank].hears("leave", leaver));
    EXPECT_EQ(job[rank].count("death"), 0);
  }
  const double killed_at = monotonic_seconds();
  job[5].kill();
  for (const int rank : {2, 4}) {
    Event event;
    EXPECT_TRUE(job[rank].hears("death", 5, event, 10s));
    EXPECT_LT(event.at - killed_at, 1.0);
  }
}

}  // namespace
}  // namespace neuron::control
