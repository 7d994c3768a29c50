#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "process.h"

namespace neuron::control {
namespace {

using namespace std::chrono_literals;

bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Two network namespaces with a veth pair; names hold this process's id, so that tests may run side by side.
class TwoHosts {
 public:
  TwoHosts() {
    const std::string id = std::to_string(::getpid());
    for (int i = 0; i < 2; ++i) names[i] = "neuron" + id + (i == 0 ? "a" : "b");
    are_there = run("ip netns add " + names[0]) && run("ip netns add " + names[1]) &&
                run("ip -n " + names[0] + " link add eth0 type veth peer name eth0 netns " + names[1]);
    for (int i = 0; i < 2 && are_there; ++i) {
      are_there = run("ip -n " + names[i] + " link set lo up") &&
                  run("ip -n " + names[i] + " addr add 10.99.7." + std::to_string(i + 1) + "/24 dev eth0") &&
                  run("ip -n " + names[i] + " link set eth0 up");
    }
  }
  ~TwoHosts() {
    for (const auto& name : names) run("ip netns del " + name);
  }
  std::vector<std::string> enter(int host) const { return {"nsenter", "--net=/run/netns/" + names[host]}; }

  std::string names[2];
  bool are_there = false;
};

TEST(Namespaces, Job_JoinsTalksAndNoticesALostHost_OverARealNetwork) {
  if (::geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  const TwoHosts hosts;
  if (!hosts.are_there) GTEST_SKIP() << "`ip netns` does not work here";
  const StoreFolder store;
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<RankProcess>(rank, 4, "", store, hosts.enter(rank % 2)));
  }
  for (auto& rank : ranks) {
    Event event;
    ASSERT_TRUE(rank->hears("joined")) << (rank->hears("failed", -1, event, 1ms) ? event.text : "no answer");
  }
  ranks[2]->tell("send 3 hello");
  Event message;
  ASSERT_TRUE(ranks[3]->hears("message", 2, message, 5s));
  EXPECT_EQ(message.text, "hello");

  const double down_at = monotonic_seconds();
  ASSERT_TRUE(run("ip -n " + hosts.names[0] + " link set eth0 down"));
  for (int rank = 0; rank < 4; ++rank) {
    for (int other = (rank + 1) % 2; other < 4; other += 2) {
      Event death;
      ASSERT_TRUE(ranks[static_cast<std::size_t>(rank)]->hears("death", other, death, 20s)) << rank << " of " << other;
      EXPECT_NE(death.text.find("its host cannot be reached"), std::string::npos) << death.text;
      EXPECT_LT(death.at - down_at, 15.0);
      std::printf("link down: rank %d reports rank %d after %.1f s\n", rank, other, death.at - down_at);
    }
    EXPECT_EQ(ranks[static_cast<std::size_t>(rank)]->count("death"), 2);
  }
}

}  // namespace
}  // namespace neuron::control
