// The contract of every transport, as a job sees it: everything arrives, once, in order per tag, unchanged, whatever
// its size and however much of it, and a rank that does not look costs the others no memory.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "tests/collectives/run/requests.h"
#include "tests/transport/contract/links.h"

namespace neuron::testing {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

/// Bytes that tell sender, message and place.
std::vector<std::uint32_t> numbers(Rank sender, std::uint32_t message, std::size_t count) {
  std::vector<std::uint32_t> filled(count);
  for (std::size_t i = 0; i < count; ++i) {
    filled[i] = static_cast<std::uint32_t>(i) * 2654435761U + message * 40503U + static_cast<std::uint32_t>(sender);
  }
  return filled;
}

class Contract : public ::testing::TestWithParam<Link> {};

TEST_P(Contract, DeliversMessagesOfEverySize) {
  LinkedJob job(GetParam(), 2);
  std::vector<std::size_t> counts = {0, 1, 15, 16, 17, 255, 1000};
  for (const std::size_t edge : {kEagerBytes, kBlockBytes / 2, kBlockBytes, kMiB, 5 * kMiB}) {
    for (const std::size_t nearby : {edge / 4 - 1, edge / 4, edge / 4 + 1}) counts.push_back(nearby);
  }
  job.run([&](const LocalRank& rank) {
    for (std::uint32_t i = 0; i < counts.size(); ++i) {
      auto sent = numbers(rank.rank, i, counts[i]);
      std::vector<std::uint32_t> got(counts[i]);
      const OperationRef send = *rank.group.issue(send_to(1 - rank.rank, sent));
      ASSERT_EQ(rank.run(receive_from(1 - rank.rank, got)), Status()) << counts[i];
      ASSERT_EQ(got, numbers(1 - rank.rank, i, counts[i])) << counts[i];
      ASSERT_EQ(rank.finish(send), Status());
    }
  });
}

TEST_P(Contract, KeepsOrderPerTag) {
  LinkedJob job(GetParam(), 2);
  constexpr std::uint32_t kMessages = 60;
  constexpr std::uint32_t kTags = 3;
  job.run([](const LocalRank& rank) {
    std::vector<std::vector<std::uint32_t>> sent;
    std::vector<std::vector<std::uint32_t>> got;
    std::vector<OperationRef> operations;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      sent.push_back(numbers(rank.rank, i, i % 7 == 0 ? 50'000 : 20));
      got.emplace_back(sent.back().size());
      operations.push_back(*rank.group.issue(send_to(1 - rank.rank, sent.back(), i % kTags)));
    }
    for (std::uint32_t tag = kTags; tag-- > 0;) {  // the last tag first
      for (std::uint32_t i = tag; i < kMessages; i += kTags) {
        operations.push_back(*rank.group.issue(receive_from(1 - rank.rank, got[i], tag)));
      }
    }
    for (const OperationRef& operation : operations) ASSERT_EQ(rank.finish(operation), Status());
    for (std::uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(got[i], numbers(1 - rank.rank, i, got[i].size())) << i;
  });
}

TEST_P(Contract, DeliversManySmallMessages) {
  LinkedJob job(GetParam(), 2);
  constexpr std::uint32_t kMessages = 3000;
  job.run([](const LocalRank& rank) {
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      std::vector<std::uint32_t> data = numbers(0, i, 4);
      std::vector<std::uint32_t> got(4);
      if (rank.rank == 0) {
        ASSERT_EQ(rank.run(send_to(1, data)), Status());
      } else {
        ASSERT_EQ(rank.run(receive_from(0, got)), Status());
        ASSERT_EQ(got, data);
      }
    }
  });
}

TEST_P(Contract, ReducesTheSameEverywhere) {
  LinkedJob job(GetParam(), 3);
  job.run([](const LocalRank& rank) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{3000}, std::size_t{100'000}, std::size_t{1'500'000}}) {
      std::vector<float> data(count, static_cast<float>(rank.rank + 1));
      ASSERT_EQ(rank.run(all_reduce(data)), Status()) << count;
      ASSERT_EQ(data, std::vector<float>(count, 6)) << count;
    }
    ASSERT_EQ(rank.run(barrier()), Status());
  });
}

TEST_P(Contract, ServesSeveralGroupsAndThreads) {
  constexpr Rank kWorld = 3;
  constexpr std::uint64_t kGroups = 3;
  LinkedJob job(GetParam(), kWorld);
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < kGroups * kWorld; ++i) {
    groups.push_back(
        job.make_group(static_cast<Rank>(i % kWorld), 100 + i / kWorld, "group " + std::to_string(i / kWorld)));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto rank = static_cast<Rank>(i % kWorld);
      const LocalRank local{rank, kWorld, job.engine(rank), *groups[i]};
      for (int round = 0; round < 20; ++round) {
        std::vector<float> data(round % 4 == 0 ? 200'000 : 100, static_cast<float>(i / kWorld));
        ASSERT_EQ(local.run(all_reduce(data, round % 2 == 0 ? Urgency::caller : Urgency::background)), Status());
        ASSERT_EQ(data, std::vector<float>(data.size(), 3 * static_cast<float>(i / kWorld)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  groups.clear();
}

TEST_P(Contract, EndsEveryRanksOperations_AtAnAbort) {
  LinkedJob job(GetParam(), 3);
  job.run([](const LocalRank& rank) {  // connected
    std::vector<float> data(100'000, 1);
    ASSERT_EQ(rank.run(all_reduce(data)), Status());
  });
  std::vector<std::vector<float>> data(2, std::vector<float>(1'000'000, 1));
  const OperationRef on_0 = *job.group(0).issue(all_reduce(data[0], Urgency::background));
  const OperationRef on_1 = *job.group(1).issue(all_reduce(data[1], Urgency::background));
  ASSERT_TRUE(eventually([&] { return job.engine(0).flight_records().back().started_at != 0; }));
  job.group(0).abort("half-way");
  EXPECT_EQ(job.local(0).finish(on_0).code(), Code::aborted);
  EXPECT_EQ(job.local(1).finish(on_1).code(), Code::aborted);
  ASSERT_TRUE(eventually([&] { return !job.group(2).error().is_ok(); }));
  EXPECT_EQ(job.group(2).issue(barrier()).status().code(), Code::aborted);
  job.run([](const LocalRank& rank) {
    std::vector<float> ones(300'000, 1);
    ASSERT_EQ(rank.run(all_reduce(ones)), Status());
    ASSERT_EQ(ones, std::vector<float>(300'000, 3));
  });
}

// ---- memory ----

std::size_t resident_bytes() {
  malloc_trim(0);
  std::size_t pages = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Rank 1 computes: none of its threads calls in until it is told to. Meanwhile rank 0 issues very much.
class Flood : public Contract {
 protected:
  static constexpr std::uint32_t kMessages = 10'000;
  static constexpr std::size_t kCount = 1024;  // 4 KiB
  static constexpr std::size_t kLimit = 16 * kMiB;

  Flood() : job_(GetParam(), 2) {
    for (const Rank rank : {0, 1}) other_.push_back(job_.make_group(rank, 50, "other"));
    for (std::uint32_t i = 0; i < kMessages; ++i) data_.push_back(numbers(0, i, kCount));
    operations_.reserve(kMessages);
    both_groups();  // connected; pools and stacks are there
    memory_before_ = {job_.engine(0).memory_in_use(), job_.engine(1).memory_in_use()};
    resident_before_ = resident_bytes();
  }
  ~Flood() override {
    operations_.clear();
    for (auto& group : other_) group.reset();
  }

  /// An operation of the other group, also with large messages, between the same two ranks.
  void both_groups() {
    std::vector<std::thread> threads;
    for (const Rank rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        const LocalRank local{rank, 2, job_.engine(rank), *other_[static_cast<std::size_t>(rank)]};
        for (const std::size_t count : {10, 400'000}) {
          std::vector<float> ones(count, 1);
          ASSERT_EQ(local.run(all_reduce(ones)), Status());
          ASSERT_EQ(ones, std::vector<float>(count, 2));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  /// While nobody receives: memory stays bounded, the other group works.
  void expect_bounded() {
    const SteadyClock clock;
    for (const Nanoseconds end = clock.now() + kSecond; clock.now() < end;) both_groups();
    for (const Rank rank : {0, 1}) {
      const std::size_t in_use = job_.engine(rank).memory_in_use();
      EXPECT_LT(in_use, memory_before_[static_cast<std::size_t>(rank)] + kLimit) << "rank " << rank;
    }
    // Handles of the user's; c10d's Work objects are not counted either.
    const std::size_t handles = operations_.size() * sizeof(Operation);
    EXPECT_LT(resident_bytes(), resident_before_ + handles + 2 * kLimit) << "both engines together";
  }

  LinkedJob job_;
  std::vector<std::unique_ptr<Communicator>> other_;
  std::vector<std::vector<std::uint32_t>> data_;
  std::vector<OperationRef> operations_;
  std::array<std::size_t, 2> memory_before_{};
  std::size_t resident_before_ = 0;
};

TEST_P(Flood, OfBroadcastsLeavesMemoryBounded) {
  for (auto& one : data_) {
    Request request;
    request.collective = Collective::broadcast;
    request.root = 0;
    request.output = Buffers::of(buffer_of(one));
    operations_.push_back(*job_.group(0).issue(std::move(request)));
  }
  expect_bounded();
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    std::vector<std::uint32_t> got(kCount);
    Request request;
    request.collective = Collective::broadcast;
    request.root = 0;
    request.output = Buffers::of(buffer_of(got));
    ASSERT_EQ(job_.local(1).run(std::move(request)), Status()) << i;
    ASSERT_EQ(got, data_[i]) << i;
  }
  for (const OperationRef& operation : operations_) ASSERT_EQ(job_.local(0).finish(operation), Status());
}

TEST_P(Flood, OfSendsLeavesMemoryBounded) {
  for (std::uint32_t i = 0; i < kMessages; ++i)
    operations_.push_back(*job_.group(0).issue(send_to(1, data_[i], i % 2)));
  expect_bounded();
  for (const std::uint32_t tag : {1U, 0U}) {  // all of the second tag first
    for (std::uint32_t i = tag; i < kMessages; i += 2) {
      std::vector<std::uint32_t> got(kCount);
      ASSERT_EQ(job_.local(1).run(receive_from(0, got, tag)), Status()) << i;
      ASSERT_EQ(got, data_[i]) << i;
    }
  }
  for (const OperationRef& operation : operations_) ASSERT_EQ(job_.local(0).finish(operation), Status());
}

INSTANTIATE_TEST_SUITE_P(All, Contract, all_links(), [](const auto& tested) { return name_of(tested.param); });
INSTANTIATE_TEST_SUITE_P(All, Flood, all_links(), [](const auto& tested) { return name_of(tested.param); });

}  // namespace
}  // namespace neuron::testing
