#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "c10d_neuron/control/job_status.h"
#include "job.h"

namespace neuron::control {
namespace {

using ::testing::TestWithParam;

struct JobSize {
  Rank world;
  int hosts;
};

class JoinOfSize : public TestWithParam<JobSize> {};

TEST_P(JoinOfSize, Join_GivesEveryRankTheSameShape_ForThisSize) {
  const auto [world, hosts] = GetParam();
  Job job(world, hosts);
  job.join();
  ASSERT_TRUE(job.all_joined());
  for (Rank rank = 0; rank < world; ++rank) {
    const Shape& shape = job[rank].shape();
    EXPECT_EQ(shape.generation, job[0].shape().generation);
    EXPECT_EQ(shape.topology, job[0].shape().topology);
    EXPECT_EQ(shape.topology.hosts(), std::min<int>(hosts, world));
    EXPECT_EQ(job[rank].token(), job[0].token());
    ASSERT_EQ(shape.members.size(), static_cast<std::size_t>(world));
    for (Rank other = 0; other < world; ++other) {
      const Member& member = shape.members[static_cast<std::size_t>(other)];
      EXPECT_EQ(member.rank, other);
      EXPECT_EQ(member.nonce, job[other].shape().members[static_cast<std::size_t>(other)].nonce);
      EXPECT_EQ(member.host_name, "fake" + std::to_string(other % hosts));
    }
  }
  job.leave_all();
  EXPECT_EQ(job.deaths(), "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, JoinOfSize,
                         ::testing::Values(JobSize{1, 1}, JobSize{2, 1}, JobSize{3, 1}, JobSize{8, 1}, JobSize{2, 2},
                                           JobSize{3, 2}, JobSize{4, 2}, JobSize{7, 2}, JobSize{3, 3}, JobSize{8, 3}),
                         [](const auto& size) {
                           return std::to_string(size.param.world) + "RanksOn" + std::to_string(size.param.hosts) +
                                  "Hosts";
                         });

TEST(Join, Member_TravelsWhole_IncludingTheSharedMemoryAddress) {
  Job job(2, 2);
  job.join([](JoinOptions& options) {
    options.self.shared_memory_address = bytes_of(std::string("\0arena ", 7) + std::to_string(options.rank));
    options.self.nonce = 100 + static_cast<std::uint64_t>(options.rank);
  });
  ASSERT_TRUE(job.all_joined());
  EXPECT_EQ(job[0].shape().members[1].shared_memory_address, bytes_of(std::string("\0arena 1", 8)));
  EXPECT_EQ(job[1].shape().members[0].nonce, 100U);
  EXPECT_EQ(job[1].shape().members[0].pid, static_cast<std::uint32_t>(::getpid()));
  job.leave_all();
}

void expect_all_fail(Job& job, Code code, const std::vector<std::string>& words) {
  for (const auto& result : job.results) {
    ASSERT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), code) << result.status().message();
    for (const auto& word : words)
      EXPECT_NE(result.status().message().find(word), std::string::npos) << result.status().message();
  }
}

TEST(Join, Join_FailsOnAllRanksWithBothSizes_WhenWorldSizesDiffer) {
  Job job(4, 2);
  job.join([](JoinOptions& options) {
    if (options.rank == 2) options.world = 5;
  });
  expect_all_fail(job, Code::mismatch, {"rank 2", "world size 5", "rank 0 with 4"});
}

TEST(Join, Join_FailsOnAllRanksWithBothProcesses_WhenARankIsTakenTwice) {
  Job job(4, 2);
  job.join([](JoinOptions& options) {
    if (options.rank == 3) options.rank = 1;
    options.self.pid = 4000 + static_cast<std::uint32_t>(options.self.host_name == "fake0");
  });
  expect_all_fail(job, Code::mismatch, {"Two processes", "rank 1", "pid 4000"});
}

TEST(Join, Join_FailsOnAllRanksWithBothVersions_WhenTheyDiffer) {
  Job job(3, 2);
  job.join([](JoinOptions& options) {
    if (options.rank == 1) options.self.version = "test 2";
  });
  expect_all_fail(job, Code::mismatch, {"rank 1", "host fake1", "test 2", "rank 0 runs test 1"});
}

TEST(Join, Join_FailsOnAllRanks_WhenARankIsOutOfRange) {
  Job job(3, 1);
  job.join([](JoinOptions& options) {
    if (options.rank == 2) options.rank = 7;
  });
  expect_all_fail(job, Code::invalid_argument, {"rank 7", "from 0 to 2"});
}

TEST(Join, LateRank_HearsWhyTheJoinFailed_WhileRank0Lives) {
  Job job(2, 1);
  job.join([](JoinOptions& options) {
    if (options.rank == 1) options.self.version = "test 2";
  });
  Ear ear;
  const auto late = Control::join(options_of(1, 2, 1, 10s), job.store, ear);
  ASSERT_FALSE(late.is_ok());
  EXPECT_EQ(late.status().message(), job.results[0].status().message());
}

TEST(Join, Join_SaysWhoIsMissing_WhenTheTimeIsOver) {
  Job job(2, 1);
  job.join([](JoinOptions& options) {
    options.world = 6;
    options.timeout = options.rank == 0 ? 700ms : 5s;
  });
  expect_all_fail(job, Code::timeout, {"ranks 2-5 have not joined after 700 ms", "2 of 6"});
}

TEST(Join, Join_SaysWhatItWaitsFor_WhenRank0NeverComes) {
  InMemoryStore store;
  Ear ear;
  const auto result = Control::join(options_of(1, 2, 0, 300ms), store, ear);
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), Code::timeout);
  EXPECT_NE(result.status().message().find("rank 0 to say in the store where to join"), std::string::npos)
      << result.status().message();
}

/// A key as rank 0 publishes it, taken from a job that is over.
std::string stale_key(InMemoryStore& store) {
  Ear ear;
  auto control = Control::join(options_of(0, 1, 0), store, ear);
  EXPECT_TRUE(control.is_ok());
  (*control)->leave();
  return *store.get(kJoinKey, 1s);
}

TEST(Join, Join_NamesAddressAndError_WhenRank0CannotBeReached) {
  InMemoryStore store;
  stale_key(store);
  Ear ear;
  const auto result = Control::join(options_of(1, 2, 0, 800ms), store, ear);
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), Code::timeout);
  for (const char* word : {"rank 0 (host fake0", "cannot be reached", "Connection refused", "C10D_NEURON_INTERFACE"}) {
    EXPECT_NE(result.status().message().find(word), std::string::npos) << word << " in " << result.status().message();
  }
}

TEST(Join, Rank_JoinsAgain_WhenTheKeyWasOfAnEarlierIncarnation) {
  Job job(3, 2);
  stale_key(job.store);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 3; ++rank) job.results.emplace_back(Status(Code::internal, "not tried"));
  const auto join = [&](Rank rank) {
    job.results[static_cast<std::size_t>(rank)] =
        Control::join(options_of(rank, 3, rank % 2), job.store, job.ear(rank));
  };
  threads.emplace_back(join, 1);
  threads.emplace_back(join, 2);
  std::this_thread::sleep_for(150ms);  // so that they try the stale key; right with any other timing too
  threads.emplace_back(join, 0);
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(job.all_joined());
  job.leave_all();
}

TEST(Join, Job_CanBeMadeAndLeftManyTimes_OnOneStore) {
  Job job(4, 2);
  std::set<std::uint64_t> generations;
  for (int round = 0; round < 5; ++round) {
    job.join();
    ASSERT_TRUE(job.all_joined());
    generations.insert(job[0].shape().generation);
    job.leave_all();
  }
  EXPECT_EQ(generations.size(), 5U);
  EXPECT_EQ(job.deaths(), "");
}

TEST(Join, Rank_FindsTheNextJoin_WhileRank0IsStillInThePreviousOne) {
  Job job(2, 1);
  job.join();
  ASSERT_TRUE(job.all_joined());
  job[1].leave();
  Ear ear;
  Result<std::unique_ptr<Control>> again = Status(Code::internal, "not tried");
  std::thread early([&] { again = Control::join(options_of(1, 2, 0), job.store, ear); });
  std::this_thread::sleep_for(100ms);  // so that it meets the previous join; right with any other timing too
  job[0].leave();
  auto first = Control::join(options_of(0, 2, 0), job.store, job.ear(0));
  early.join();
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  ASSERT_TRUE(again.is_ok()) << again.status().message();
  (*first)->leave();
  (*again)->leave();
}

TEST(Join, Interface_ThatDoesNotExist_IsNamedWithThoseThatDo) {
  InMemoryStore store;
  Ear ear;
  auto options = options_of(0, 1, 0);
  options.network_interface = "nosuch0";
  const auto result = Control::join(options, store, ear);
  ASSERT_FALSE(result.is_ok());
  EXPECT_NE(result.status().message().find("nosuch0"), std::string::npos);
  EXPECT_NE(result.status().message().find("lo"), std::string::npos) << result.status().message();
}

TEST(Join, Loopback_CanBeChosenAsInterface) {
  Job job(3, 2);
  job.join([](JoinOptions& options) { options.network_interface = "lo"; });
  EXPECT_TRUE(job.all_joined());
  job.leave_all();
}

class TokenFile {
 public:
  TokenFile(const std::string& content, mode_t mode) {
    char name[] = "/tmp/neuron-token-XXXXXX";
    const int descriptor = ::mkstemp(name);
    path = name;
    ::close(descriptor);
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
  }
  ~TokenFile() { ::unlink(path.c_str()); }
  std::string path;
};

TEST(Join, Token_ComesFromTheFile_AndNotThroughTheStore) {
  const TokenFile file("0123456789abcdef0123456789abcdef\n", 0600);
  Job job(3, 2);
  job.join([&](JoinOptions& options) { options.token_file = file.path; });
  ASSERT_TRUE(job.all_joined());
  EXPECT_EQ(job[1].token(), "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(job.store.get(kJoinKey, 1s)->find("0123456789abcdef"), std::string::npos);
  job.leave_all();
}

TEST(Join, TokenFile_IsRefused_WhenOthersCanReadIt) {
  const TokenFile file("0123456789abcdef0123456789abcdef\n", 0644);
  InMemoryStore store;
  Ear ear;
  auto options = options_of(0, 1, 0);
  options.token_file = file.path;
  const auto result = Control::join(options, store, ear);
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), Code::refused);
  EXPECT_NE(result.status().message().find("0600"), std::string::npos);
}

TEST(Join, Stranger_IsRefused_AndTheRealJoinSucceeds) {
  const TokenFile right("0123456789abcdef0123456789abcdef", 0600);
  const TokenFile wrong("another token, also long enough", 0600);
  Job job(3, 1);
  Result<std::unique_ptr<Control>> stranger = Status(Code::internal, "not tried");
  Result<std::unique_ptr<Control>> without = Status(Code::internal, "not tried");
  std::thread strangers([&] {
    Ear ear;
    auto options = options_of(1, 3, 0, 10s);
    options.token_file = wrong.path;
    stranger = Control::join(options, job.store, ear);
    options.token_file.clear();
    without = Control::join(options, job.store, ear);
  });
  job.join([&](JoinOptions& options) {
    if (options.rank == 2) std::this_thread::sleep_for(500ms);  // the strangers come first
    options.token_file = right.path;
  });
  strangers.join();
  EXPECT_TRUE(job.all_joined());
  ASSERT_FALSE(stranger.is_ok());
  EXPECT_EQ(stranger.status().code(), Code::refused);
  EXPECT_NE(stranger.status().message().find("tokens differ"), std::string::npos) << stranger.status().message();
  ASSERT_FALSE(without.is_ok());
  EXPECT_EQ(without.status().code(), Code::refused);
  EXPECT_NE(without.status().message().find("uses a token file"), std::string::npos) << without.status().message();
  job.leave_all();
}

TEST(Join, Status_IsToldByRank0_ToWhoKnowsTheToken) {
  Job job(4, 2);
  job.join();
  ASSERT_TRUE(job.all_joined());
  job[3].leave();
  ASSERT_TRUE(job.ear(0).hears([&] { return job.ear(0).leaves.size() == 1; }));
  const std::string key = *job.store.get(kJoinKey, 1s);
  const auto status = job_status(key, "");
  ASSERT_TRUE(status.is_ok()) << status.status().message();
  EXPECT_EQ(status->world, 4);
  EXPECT_EQ(status->hosts, 2);
  EXPECT_EQ(status->left, std::vector<Rank>{3});
  EXPECT_TRUE(status->dead.empty());
  EXPECT_EQ(job_status(key, "not the token").status().code(), Code::refused);
  job.leave_all();
  EXPECT_EQ(job_status(key, "").status().code(), Code::unavailable);
}

}  // namespace
}  // namespace neuron::control
