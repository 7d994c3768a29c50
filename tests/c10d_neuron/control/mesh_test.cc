#include <time.h>

#include <random>

#include "job.h"

namespace neuron::control {
namespace {

std::vector<std::string> numbered(const std::string& prefix, int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(prefix + std::to_string(i));
  return all;
}

TEST(Mesh, Messages_ArriveOnceAndInOrder_BetweenAllPairs) {
  constexpr Rank kWorld = 6;
  constexpr int kCount = 300;
  Job job(kWorld, 3);
  job.join();
  ASSERT_TRUE(job.all_joined());
  for (int i = 0; i < kCount; ++i) {
    for (Rank from = 0; from < kWorld; ++from) {
      for (Rank to = 0; to < kWorld; ++to) {
        job[from].send(to, bytes_of(std::to_string(from) + ">" + std::to_string(to) + ":" + std::to_string(i)));
      }
    }
  }
  for (Rank to = 0; to < kWorld; ++to) {
    Ear& ear = job.ear(to);
    for (Rank from = 0; from < kWorld; ++from) {
      ASSERT_TRUE(ear.hears([&] { return ear.messages[from].size() == kCount; })) << from << " to " << to;
      EXPECT_EQ(ear.messages[from], numbered(std::to_string(from) + ">" + std::to_string(to) + ":", kCount));
    }
  }
  job.leave_all();
}

TEST(Mesh, TenThousandBroadcasts_ReachEveryOtherRankInOrder) {
  constexpr Rank kWorld = 5;
  constexpr int kCount = 10'000;
  Job job(kWorld, 3);
  job.join();
  ASSERT_TRUE(job.all_joined());
  for (int i = 0; i < kCount; ++i) job[i % 2].broadcast(bytes_of("b" + std::to_string(i / 2)));
  const auto expected = numbered("b", kCount / 2);
  for (Rank to = 0; to < kWorld; ++to) {
    Ear& ear = job.ear(to);
    for (Rank from = 0; from < 2; ++from) {
      if (from == to) continue;
      ASSERT_TRUE(ear.hears([&] { return ear.messages[from].size() == expected.size(); })) << from << " to " << to;
      EXPECT_EQ(ear.messages[from], expected);
    }
    EXPECT_EQ(ear.messages.contains(to), false);
  }
  job.leave_all();
}

TEST(Mesh, LargeMessage_Arrives_AcrossHosts) {
  Job job(4, 2);
  job.join();
  ASSERT_TRUE(job.all_joined());
  const std::string large(4 << 20, 'x');
  job[2].send(1, bytes_of(large));
  job[2].broadcast(bytes_of(large + "y"));
  Ear& ear = job.ear(1);
  ASSERT_TRUE(ear.hears([&] { return ear.messages[2].size() == 2; }));
  EXPECT_TRUE((ear.messages[2] == std::vector<std::string>{large, large + "y"}) ||
              (ear.messages[2] == std::vector<std::string>{large + "y", large}));
  job.leave_all();
}

TEST(Mesh, WhatWasSentJustBeforeLeaving_StillArrives) {
  for (const Rank leaver : {0, 1, 2, 3}) {
    Job job(4, 2);
    job.join();
    ASSERT_TRUE(job.all_joined());
    for (int i = 0; i < 100; ++i) {
      for (Rank to = 0; to < 4; ++to) {
        if (to != leaver) job[leaver].send(to, bytes_of("s" + std::to_string(i)));
      }
    }
    job[leaver].broadcast(bytes_of("last"));
    job[leaver].leave();
    for (Rank to = 0; to < 4; ++to) {
      if (to == leaver) continue;
      Ear& ear = job.ear(to);
      EXPECT_TRUE(ear.hears([&] { return ear.messages[leaver].size() == 101; })) << leaver << " to " << to;
      EXPECT_TRUE(ear.hears([&] { return ear.leaves == std::vector<Rank>{leaver}; }));
      EXPECT_EQ(ear.death_calls, 0);
    }
    job.leave_all();
  }
}

TEST(Mesh, RanksThatLeaveInAnyOrder_AreNeverReportedDead) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 6; ++round) {
    Job job(6, 1 + round % 3);
    job.join();
    ASSERT_TRUE(job.all_joined());
    std::vector<Rank> order = {0, 1, 2, 3, 4, 5};
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Rank> gone;
    for (const Rank rank : order) {
      const auto start = std::chrono::steady_clock::now();
      job[rank].leave();
      EXPECT_LT(std::chrono::steady_clock::now() - start, 1500ms);
      gone.push_back(rank);
      for (const Rank other : order) {
        if (std::find(gone.begin(), gone.end(), other) != gone.end()) continue;
        Ear& ear = job.ear(other);
        EXPECT_TRUE(ear.hears([&] { return ear.leaves.size() == gone.size(); }))
            << "rank " << other << " round " << round;
      }
    }
    EXPECT_EQ(job.deaths(), "");
  }
}

TEST(Mesh, OthersStillTalk_AfterLeadersHaveLeft) {
  Job job(8, 2);
  job.join();
  ASSERT_TRUE(job.all_joined());
  // Ranks 0..5 leave one after the other; all leaders are among them at some time. 6 is on host 0, 7 on host 1.
  int count = 0;
  for (Rank leaver = 0; leaver < 6; ++leaver) {
    job[leaver].leave();
    job[6].send(7, bytes_of("to 7"));
    job[7].send(6, bytes_of("to 6"));
    job[6].broadcast(bytes_of("all"));
    count += 1;
    ASSERT_TRUE(job.ear(7).hears([&] { return job.ear(7).messages[6].size() == static_cast<std::size_t>(2 * count); }))
        << "after rank " << leaver << " left";
    ASSERT_TRUE(job.ear(6).hears([&] { return job.ear(6).messages[7].size() == static_cast<std::size_t>(count); }));
  }
  job.leave_all();
  EXPECT_EQ(job.deaths(), "");
}

TEST(Mesh, MessagesUnderWay_SurviveAChangeOfLeaders) {
  constexpr int kCount = 2000;
  Job job(6, 2);
  job.join();
  ASSERT_TRUE(job.all_joined());
  std::thread sender([&] {
    for (int i = 0; i < kCount; ++i) {
      job[4].send(5, bytes_of("s" + std::to_string(i)));
      job[5].broadcast(bytes_of("b" + std::to_string(i)));
      if (i % 20 == 0) std::this_thread::sleep_for(1ms);  // so that the leaders leave meanwhile
    }
  });
  for (Rank leaver = 0; leaver < 4; ++leaver) job[leaver].leave();
  sender.join();
  Ear& five = job.ear(5);
  Ear& four = job.ear(4);
  EXPECT_TRUE(five.hears([&] { return five.messages[4].size() == kCount; })) << five.messages[4].size();
  EXPECT_TRUE(four.hears([&] { return four.messages[5].size() == kCount; })) << four.messages[5].size();
  EXPECT_EQ(five.messages[4], numbered("s", kCount));
  EXPECT_EQ(four.messages[5], numbered("b", kCount));
  job.leave_all();
}

TEST(Mesh, Leave_CanBeCalledTwice_AndCallsAfterItDoNothing) {
  Job job(2, 1);
  job.join();
  ASSERT_TRUE(job.all_joined());
  job[1].leave();
  job[1].leave();
  job[1].send(0, bytes_of("late"));
  job[1].broadcast(bytes_of("late"));
  job[1].watch(0, 0);
  job.leave_all();
  EXPECT_TRUE(job.ear(0).messages.empty());
}

TEST(Mesh, IdleJob_UsesNearlyNoProcessorTime) {
  Job job(4, 2);
  job.join();
  ASSERT_TRUE(job.all_joined());
  const auto cpu_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  std::this_thread::sleep_for(200ms);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(2s);
  const double per_rank = (cpu_seconds() - before) / 2 / 4;
  std::printf("idle: %.4f%% of a core per rank\n", 100 * per_rank);
  EXPECT_LT(per_rank, 0.002);
  job.leave_all();
}

}  // namespace
}  // namespace neuron::control
