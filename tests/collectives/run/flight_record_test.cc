#include "collectives/run/flight_record.h"

#include <gtest/gtest.h>

#include "collectives/algorithms/algorithms.h"
#include "tests/collectives/run/loopback_job.h"
#include "tests/collectives/run/requests.h"

namespace neuron::testing {
namespace {

TEST(FlightRing, KeepsTheLastOnes) {
  FlightRing ring(4);
  for (std::uint64_t i = 1; i <= 10; ++i) {
    FlightRecord record;
    record.sequence = i;
    EXPECT_EQ(ring.issued(record), i);
  }
  ring.finished(3, 99, "overwritten long ago");
  const auto records = ring.snapshot();
  ASSERT_EQ(records.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(records[i].number, 7 + i);
    EXPECT_EQ(records[i].sequence, 7 + i);
    EXPECT_EQ(records[i].state, FlightRecord::State::issued);
  }
}

/// What a replay needs: algorithm, shape, and the hash of the schedule that it must arrive at.
TEST(FlightRecord, NamesTheScheduleThatWasRun) {
  LoopbackJob job(3);
  job.run([](const LocalRank& rank) {
    std::vector<float> data(1'000'000, 1);
    ASSERT_EQ(rank.run(all_reduce(data)), Status());
  });
  for (const Rank rank : {0, 1, 2}) {
    const auto records = job.engine(rank).flight_records();
    ASSERT_EQ(records.size(), 1U);
    const FlightRecord& record = records[0];
    EXPECT_EQ(record.state, FlightRecord::State::done);
    EXPECT_EQ(record.collective, Collective::all_reduce);
    EXPECT_EQ(record.group_name, "default");
    EXPECT_EQ(record.rank, rank);
    EXPECT_EQ(record.world, 3);
    EXPECT_EQ(record.input_bytes, 4'000'000U);
    EXPECT_GT(record.segment_bytes, 0U);
    EXPECT_EQ(record.topology, Topology::single_host(3).digest());
    EXPECT_LE(record.issued_at, record.started_at);
    EXPECT_LE(record.started_at, record.finished_at);
    ASSERT_EQ(record.algorithm, Algorithm::direct) << "then build that one here";
    EXPECT_EQ(record.schedule, algorithms::direct_two_step_all_reduce(rank, 3).hash());
  }
}

TEST(FlightRecord, SaysWhyAnOperationFailed) {
  LoopbackJob job(2);
  std::vector<float> data(10);
  const OperationRef operation = *job.group(0).issue(all_reduce(data));
  job.group(0).abort("enough");
  ASSERT_EQ(job.local(0).finish(operation).code(), Code::aborted);
  const FlightRecord record = job.engine(0).flight_records().back();
  EXPECT_EQ(record.state, FlightRecord::State::failed);
  EXPECT_TRUE(mentions(record.error, {"enough"}));
}

}  // namespace
}  // namespace neuron::testing
