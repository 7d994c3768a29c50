// How peers are reached: shared memory where it works, the fabric where it does not, and what is said where nothing
// does.
#include <gtest/gtest.h>

#include "tests/collectives/run/requests.h"
#include "transport/loopback/loopback.h"
#include "transport/shared_memory/endpoint.h"

namespace neuron::testing {
namespace {

std::unique_ptr<Transport> shared_memory_of(Rank rank, const Doorbell& doorbell, const std::string& token) {
  shared_memory::Options options;
  options.rank = rank;
  options.nonce = Job::nonce(rank);
  options.token = token;
  auto made = shared_memory::Endpoint::create(std::move(options), doorbell);
  EXPECT_TRUE(made) << made.status().message();
  return made ? std::move(*made) : nullptr;
}

void expect_works(Job& job, const std::string& transport) {
  job.run([&](const LocalRank& rank) {
    std::vector<float> data(100'000, 1);
    ASSERT_EQ(rank.run(all_reduce(data)), Status());
    ASSERT_EQ(data, std::vector<float>(100'000, 2));
    std::vector<std::string> used;
    for (const PeerTraffic& row : rank.engine.traffic()) {
      if (row.bytes > 0) used.push_back(row.transport);
    }
    EXPECT_EQ(used, std::vector<std::string>{transport});
  });
}

TEST(Connection, GoesThroughSharedMemory) {
  Job job(2, [](Rank rank, EngineOptions& options) {
    options.shared_memory = shared_memory_of(rank, *options.doorbell, "token");
  });
  expect_works(job, "shared_memory");
}

TEST(Connection, GoesThroughTheFabric_WhenTheHandOverFails) {
  loopback::Hub hub(2, {});
  Job job(2, [&](Rank rank, EngineOptions& options) {
    options.shared_memory = shared_memory_of(rank, *options.doorbell, "token " + std::to_string(rank));
    options.open_fabric = [&hub, rank, doorbell = options.doorbell]() -> Result<std::unique_ptr<Transport>> {
      return hub.endpoint(rank, doorbell);
    };
  });
  expect_works(job, "loopback");
}

TEST(Connection, GoesThroughTheFabric_BetweenHosts) {
  loopback::Hub hub(2, {});
  Job job(2, [&](Rank rank, EngineOptions& options) {
    options.topology = Topology::from_hosts(std::vector<std::string>{"left", "right"});
    options.shared_memory = shared_memory_of(rank, *options.doorbell, "token");
    options.fabric = hub.endpoint(rank, options.doorbell);
  });
  expect_works(job, "loopback");
}

TEST(Connection, IsRefusedByName_WhereNothingWorks) {
  Job job(2, [](Rank rank, EngineOptions& options) {
    options.topology = Topology::from_hosts(std::vector<std::string>{"left", "right"});
    if (rank == 1) {
      options.open_fabric = []() -> Result<std::unique_ptr<Transport>> {
        return Status(Code::unavailable, "libfabric is not installed");
      };
    }
  });
  std::vector<float> data(10);
  const Status here = job.local(0).run(all_reduce(data));
  EXPECT_EQ(here.code(), Code::peer_lost);
  EXPECT_TRUE(
      mentions(here.message(), {"rank 1 (host host-1, pid 4001)", "cannot be reached", "neither shared memory"}));
  const Status there = job.local(1).run(all_reduce(data));
  EXPECT_EQ(there.code(), Code::peer_lost);
  EXPECT_TRUE(
      mentions(there.message(), {"rank 0 (host host-0, pid 4000)", "cannot be reached", "libfabric is not installed"}));
}

}  // namespace
}  // namespace neuron::testing
