// Ranks that call different things are told so, all of them, quickly, and the group goes on in its next epoch.
#include <gtest/gtest.h>

#include "tests/collectives/run/loopback_job.h"
#include "tests/collectives/run/requests.h"

namespace neuron::testing {
namespace {

struct Case {
  const char* name;
  std::function<Request(std::vector<float>&)> of_rank_0;
  std::function<Request(std::vector<float>&)> of_the_others;
};

Request reduce_op(ReduceOp op, std::vector<float>& data) {
  Request request = all_reduce(data);
  request.reduce_op = op;
  return request;
}

Request all_reduce_of_type(DataType type, std::vector<float>& data) {
  Request request = all_reduce(data);
  request.data_type = type;
  return request;
}

Request prefix(std::vector<float>& data, std::size_t bytes) {
  Request request = all_reduce(data);
  request.input.whole.bytes = request.output.whole.bytes = bytes;
  return request;
}

Request with_layout(std::vector<float>& data, std::uint64_t layout) {
  Request request = all_reduce(data);
  request.layout = layout;
  return request;
}

std::vector<Case> cases() {
  using Data = std::vector<float>&;
  return {
      {"Operation", [](Data d) { return all_reduce(d); }, [](Data d) { return rooted(Collective::broadcast, 0, d); }},
      {"DataType", [](Data d) { return all_reduce(d); }, [](Data d) { return all_reduce_of_type(DataType::int32, d); }},
      {"ReduceOp", [](Data d) { return all_reduce(d); }, [](Data d) { return reduce_op(ReduceOp::maximum, d); }},
      {"Layout", [](Data d) { return with_layout(d, 1); }, [](Data d) { return with_layout(d, 2); }},
      {"SmallSize", [](Data d) { return prefix(d, 64); }, [](Data d) { return prefix(d, 128); }},
      {"LargeSize", [](Data d) { return prefix(d, 64); }, [](Data d) { return prefix(d, 400'000); }},
      {"LargeSizes", [](Data d) { return prefix(d, 399'996); }, [](Data d) { return prefix(d, 400'000); }},
      {"BroadcastRoot", [](Data d) { return rooted(Collective::broadcast, 0, d); },
       [](Data d) { return rooted(Collective::broadcast, 1, d); }},
      {"ReduceRoot", [](Data d) { return rooted(Collective::reduce, 0, d); },
       [](Data d) { return rooted(Collective::reduce, 1, d); }},
      // Both wait to receive: nothing is exchanged that could be compared.
      {"NothingExchanged", [](Data d) { return rooted(Collective::reduce, 0, d); },
       [](Data d) { return rooted(Collective::broadcast, 0, d); }},
      {"ReduceAgainstBroadcast", [](Data d) { return rooted(Collective::reduce, 0, d); },
       [](Data d) { return rooted(Collective::broadcast, 1, d); }},
      {"BarrierAgainstAllReduce", [](Data) { return barrier(); }, [](Data d) { return all_reduce(d); }},
  };
}

class Mismatch : public ::testing::TestWithParam<std::tuple<std::size_t, Rank>> {
 protected:
  [[nodiscard]] static Case tested() { return cases()[std::get<0>(GetParam())]; }
  [[nodiscard]] static Rank world() { return std::get<1>(GetParam()); }
};

TEST_P(Mismatch, EndsOnEveryRankWithOneMessage) {
  LoopbackJob job(world());
  std::vector<Status> heard(static_cast<std::size_t>(world()));
  const SteadyClock clock;
  const Nanoseconds before = clock.now();
  job.run([&](const LocalRank& rank) {
    std::vector<float> data(100'000);
    Status& status = heard[static_cast<std::size_t>(rank.rank)];
    // A rank whose part ends without the others (a root that only sends) hears of it at a later call.
    while (status.is_ok()) status = rank.run(rank.rank == 0 ? tested().of_rank_0(data) : tested().of_the_others(data));
  });
  EXPECT_LT(clock.now() - before, 5 * kSecond);
  for (const Status& status : heard) {
    EXPECT_EQ(status.code(), Code::mismatch) << status.message();
    EXPECT_TRUE(mentions(status.message(), {"of group default", "rank ", "host host-", "pid 40"}));
  }
  job.run([](const LocalRank& rank) {
    std::vector<float> ones(1000, 1);
    Status status = rank.run(all_reduce(ones));
    EXPECT_EQ(status, Status());
    EXPECT_EQ(ones.back(), static_cast<float>(rank.world));
  });
}

INSTANTIATE_TEST_SUITE_P(All, Mismatch,
                         ::testing::Combine(::testing::Range(std::size_t{0}, cases().size()), ::testing::Values(2, 3)),
                         [](const auto& tested) {
                           return std::string(cases()[std::get<0>(tested.param)].name) + "World" +
                                  std::to_string(std::get<1>(tested.param));
                         });

TEST(PointToPointMismatch, FailsThePairOnly) {
  LoopbackJob job(2);
  job.run([](const LocalRank& rank) {
    std::vector<float> two(2, 1);
    std::vector<float> four(4, 0);
    if (rank.rank == 0) {
      EXPECT_EQ(rank.run(send_to(1, two)), Status());
      EXPECT_EQ(rank.run(send_to(1, four)), Status());
    } else {
      const Status status = rank.run(receive_from(0, four));
      EXPECT_EQ(status.code(), Code::mismatch);
      EXPECT_TRUE(mentions(status.message(), {"receive from rank 0", "sends 8 bytes", "expects 16"}));
      EXPECT_EQ(rank.run(receive_from(0, four)), Status());
    }
    std::vector<float> ones(10, 1);
    EXPECT_EQ(rank.run(all_reduce(ones)), Status());
  });
}

TEST(PointToPointMismatch, IsToldToTheSenderOfALargeMessage) {
  LoopbackJob job(2);
  job.run([](const LocalRank& rank) {
    std::vector<float> large(200'000, 1);
    std::vector<float> larger(300'000, 0);
    const Status status = rank.run(rank.rank == 0 ? send_to(1, large) : receive_from(0, larger));
    EXPECT_EQ(status.code(), rank.rank == 0 ? Code::aborted : Code::mismatch) << status.message();
    EXPECT_TRUE(mentions(status.message(), {"800000 bytes", "1200000"}));
    EXPECT_EQ(rank.run(rank.rank == 0 ? send_to(1, large) : receive_from(0, large)), Status());
  });
}

}  // namespace
}  // namespace neuron::testing
