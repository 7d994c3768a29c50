// Every collective over loopback, in order and with everything that a fabric may do to messages, compared with what it
// means.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/collectives/run/loopback_job.h"

namespace neuron::testing {
namespace {

struct Case {
  Rank world;
  std::size_t count;  // float32 elements
  int personality;
};

loopback::Personality personality_of(int number) {
  if (number == 0) return loopback::Personality::in_order();
  if (number == 1) return loopback::Personality::efa_direct(41);
  return loopback::Personality::no_remote_write(42);
}

class Collectives : public ::testing::TestWithParam<Case> {
 protected:
  Collectives() : job_(GetParam().world, personality_of(GetParam().personality)) {}

  [[nodiscard]] std::size_t count() const { return GetParam().count; }
  /// The i-th value of a rank: small integers, so that sums are exact in any order.
  static float value(Rank rank, std::size_t i) {
    return static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 3) % 31);
  }
  static std::vector<float> values(Rank rank, std::size_t count) {
    std::vector<float> filled(count);
    for (std::size_t i = 0; i < count; ++i) filled[i] = value(rank, i);
    return filled;
  }
  static float sum(Rank world, std::size_t i) {
    float total = 0;
    for (Rank rank = 0; rank < world; ++rank) total += value(rank, i);
    return total;
  }
  static Request request(Collective collective, std::vector<float>& input, std::vector<float>& output) {
    Request made;
    made.collective = collective;
    made.data_type = DataType::float32;
    made.input = Buffers::of(buffer_of(input));
    made.output = Buffers::of(buffer_of(output));
    made.urgency = Urgency::caller;
    return made;
  }

  LoopbackJob job_;
};

TEST_P(Collectives, AllReduceSumsInPlace) {
  job_.run([&](const LocalRank& rank) {
    for (int round = 0; round < 3; ++round) {
      auto data = values(rank.rank, count());
      ASSERT_EQ(rank.run(request(Collective::all_reduce, data, data)), Status());
      for (std::size_t i = 0; i < count(); ++i) ASSERT_EQ(data[i], sum(rank.world, i)) << i;
    }
  });
}

TEST_P(Collectives, AllGatherConcatenates) {
  job_.run([&](const LocalRank& rank) {
    auto input = values(rank.rank, count());
    std::vector<float> output(count() * static_cast<std::size_t>(rank.world), -1);
    ASSERT_EQ(rank.run(request(Collective::all_gather, input, output)), Status());
    for (Rank source = 0; source < rank.world; ++source) {
      for (std::size_t i = 0; i < count(); ++i) {
        ASSERT_EQ(output[static_cast<std::size_t>(source) * count() + i], value(source, i));
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachItsChunk) {
  job_.run([&](const LocalRank& rank) {
    auto input = values(rank.rank, count() * static_cast<std::size_t>(rank.world));
    std::vector<float> output(count(), -1);
    ASSERT_EQ(rank.run(request(Collective::reduce_scatter, input, output)), Status());
    for (std::size_t i = 0; i < count(); ++i) {
      ASSERT_EQ(output[i], sum(rank.world, static_cast<std::size_t>(rank.rank) * count() + i)) << i;
    }
  });
}

TEST_P(Collectives, BroadcastCopiesTheRoot) {
  for (const Rank root : {Rank{0}, GetParam().world - 1}) {
    job_.run([&](const LocalRank& rank) {
      auto data = values(rank.rank, count());
      std::vector<float> nothing;
      auto made = request(Collective::broadcast, nothing, data);
      made.root = root;
      ASSERT_EQ(rank.run(made), Status());
      ASSERT_EQ(data, values(root, count()));
    });
  }
}

TEST_P(Collectives, ReduceGatherScatterMeetAtTheRoot) {
  const Rank root = GetParam().world / 2;
  job_.run([&](const LocalRank& rank) {
    const auto n = static_cast<std::size_t>(rank.world);
    auto input = values(rank.rank, count());
    std::vector<float> output(count(), -1);
    auto reduce = request(Collective::reduce, input, output);
    reduce.root = root;
    ASSERT_EQ(rank.run(reduce), Status());
    if (rank.rank == root) {
      for (std::size_t i = 0; i < count(); ++i) ASSERT_EQ(output[i], sum(rank.world, i));
    }
    std::vector<float> gathered(rank.rank == root ? count() * n : 0, -1);
    auto gather = request(Collective::gather, input, gathered);
    gather.root = root;
    ASSERT_EQ(rank.run(gather), Status());
    for (std::size_t i = 0; i < gathered.size(); ++i)
      ASSERT_EQ(gathered[i], value(static_cast<Rank>(i / count()), i % count()));
    std::vector<float> back(count(), -1);
    auto scatter = request(Collective::scatter, gathered, back);
    scatter.root = root;
    ASSERT_EQ(rank.run(scatter), Status());
    ASSERT_EQ(back, input);
  });
}

TEST_P(Collectives, AllToAllTransposes) {
  job_.run([&](const LocalRank& rank) {
    const auto n = static_cast<std::size_t>(rank.world);
    auto input = values(rank.rank, count() * n);
    std::vector<float> output(count() * n, -1);
    ASSERT_EQ(rank.run(request(Collective::all_to_all, input, output)), Status());
    for (std::size_t i = 0; i < output.size(); ++i) {
      const auto source = static_cast<Rank>(i / count());
      ASSERT_EQ(output[i], value(source, static_cast<std::size_t>(rank.rank) * count() + i % count()));
    }
  });
}

TEST_P(Collectives, PointToPointKeepsOrderPerTag) {
  if (GetParam().world == 1) {
    Request to_self;
    to_self.collective = Collective::send;
    to_self.root = 0;
    ASSERT_EQ(job_.group(0).issue(to_self).status().code(), Code::invalid_argument);
    return;
  }
  job_.run([&](const LocalRank& rank) {
    const Rank to = (rank.rank + 1) % rank.world;
    const Rank from = (rank.rank + rank.world - 1) % rank.world;
    std::vector<std::vector<float>> sent;
    std::vector<std::vector<float>> received;
    std::vector<OperationRef> operations;
    for (int i = 0; i < 6; ++i) sent.push_back(values(rank.rank + i * 11, count()));
    for (int i = 0; i < 6; ++i) received.emplace_back(count(), -1.0F);
    for (int i = 0; i < 6; ++i) {  // both sides send first
      std::vector<float> nothing;
      auto send = request(Collective::send, sent[static_cast<std::size_t>(i)], nothing);
      send.root = to;
      send.tag = static_cast<std::uint32_t>(i % 2);
      send.urgency = Urgency::soon;
      operations.push_back(*rank.group.issue(send));
    }
    for (const int i : {1, 0, 3, 2, 5, 4}) {
      std::vector<float> nothing;
      auto receive = request(Collective::receive, nothing, received[static_cast<std::size_t>(i)]);
      receive.root = from;
      receive.tag = static_cast<std::uint32_t>(i % 2);
      operations.push_back(*rank.group.issue(receive));
    }
    for (const OperationRef& operation : operations) ASSERT_EQ(rank.finish(operation), Status());
    for (int i = 0; i < 6; ++i) ASSERT_EQ(received[static_cast<std::size_t>(i)], values(from + i * 11, count())) << i;
  });
}

TEST_P(Collectives, BarrierAndManyAsynchronousOperationsEnd) {
  job_.run([&](const LocalRank& rank) {
    std::vector<std::vector<float>> data;
    std::vector<OperationRef> operations;
    const int operations_at_once = count() > 100'000 ? 10 : 50;
    for (int i = 0; i < operations_at_once; ++i) data.push_back(values(rank.rank, count()));
    for (auto& one : data) {
      auto made = request(Collective::all_reduce, one, one);
      made.urgency = Urgency::background;
      operations.push_back(*rank.group.issue(made));
    }
    Request barrier;
    barrier.urgency = Urgency::caller;
    ASSERT_EQ(rank.run(barrier), Status());
    for (const OperationRef& operation : operations) ASSERT_EQ(rank.finish(operation), Status());
    for (auto& one : data) {
      for (std::size_t i = 0; i < count(); ++i) ASSERT_EQ(one[i], sum(rank.world, i));
    }
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Rank world : {1, 2, 3, 4, 7}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{40'000}, std::size_t{300'000}}) {
      for (int personality = 0; personality < 3; ++personality) {
        // Enough to meet each algorithm with each kind of message on each personality; the rest on the one that is
        // hardest.
        if (personality != 1 && (world > 3 || world == 1 || count == 1 || count > 100'000)) continue;
        if (world == 1 && count > 1000) continue;
        if (world > 4 && count > 100'000) continue;
        all.push_back({world, count, personality});
      }
    }
  }
  return all;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& tested) {
  const std::string personality = tested.param.personality == 0   ? "InOrder"
                                  : tested.param.personality == 1 ? "EfaDirect"
                                                                  : "NoRemoteWrite";
  return "World" + std::to_string(tested.param.world) + "Count" + std::to_string(tested.param.count) + personality;
}

INSTANTIATE_TEST_SUITE_P(Loopback, Collectives, ::testing::ValuesIn(cases()), name_of_case);

}  // namespace
}  // namespace neuron::testing
