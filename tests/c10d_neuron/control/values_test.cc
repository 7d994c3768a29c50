#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "c10d_neuron/control/broadcast_log.h"
#include "c10d_neuron/control/courier.h"
#include "c10d_neuron/control/lifeline_graph.h"
#include "c10d_neuron/control/roster.h"

namespace neuron::control {
namespace {

Participant participant(Rank rank, Rank world, std::uint64_t nonce) {
  Participant made;
  made.member.rank = rank;
  made.member.nonce = nonce;
  made.member.version = "v";
  made.world = world;
  return made;
}

TEST(Roster, Roster_ForgetsTheRanksOfAStream_WhenItBreaks) {
  Roster roster(3, "v");
  ASSERT_TRUE(roster.add(1, participant(0, 3, 10)).is_ok());
  ASSERT_TRUE(roster.add(2, participant(1, 3, 11)).is_ok());
  ASSERT_TRUE(roster.add(2, participant(2, 3, 12)).is_ok());
  EXPECT_TRUE(roster.is_complete());
  roster.remove_stream(2);
  EXPECT_EQ(roster.missing(), (std::vector<Rank>{1, 2}));
  EXPECT_TRUE(roster.add(3, participant(1, 3, 99)).is_ok()) << "the rank was started again";
  roster.remove(1, 98);
  EXPECT_EQ(roster.missing(), (std::vector<Rank>{2}));
}

TEST(Roster, SameProcess_MayComeTwice_OverANewLeader) {
  Roster roster(2, "v");
  ASSERT_TRUE(roster.add(1, participant(0, 2, 10)).is_ok());
  ASSERT_TRUE(roster.add(2, participant(0, 2, 10)).is_ok());
  roster.remove_stream(1);
  EXPECT_EQ(roster.joined(), 1);
}

TEST(Roster, RanksText_NamesRangesAndCountsTheRest) {
  EXPECT_EQ(ranks_text(std::vector<Rank>{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::vector<Rank>{3, 5, 6, 8, 9, 10}), "ranks 3, 5, 6, 8-10");
  std::vector<Rank> odd;
  for (Rank rank = 1; rank < 60; rank += 2) odd.push_back(rank);
  EXPECT_EQ(ranks_text(odd), "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 18 more");
}

Encoded frame(const std::string& text) { return std::make_shared<const std::string>(text); }

TEST(BroadcastLog, Log_TellsWhatAnotherLacks_InOrder) {
  BroadcastLog log(10, 1000);
  EXPECT_TRUE(log.accept(1, 0, frame("a")));
  EXPECT_TRUE(log.accept(2, 0, frame("b")));
  EXPECT_TRUE(log.accept(1, 1, frame("c")));
  EXPECT_FALSE(log.accept(1, 0, frame("a")));
  const auto lacking = log.lacking({{1, 1}});
  ASSERT_EQ(lacking.size(), 2U);
  EXPECT_EQ(*lacking[0], "b");
  EXPECT_EQ(*lacking[1], "c");
  EXPECT_TRUE(log.lacking(log.seen()).empty());
}

TEST(BroadcastLog, Log_StaysWithinItsBounds_AndRemembersWhatWasSeen) {
  BroadcastLog log(3, 1000);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(log.accept(0, i, frame("x")));
  EXPECT_EQ(log.lacking({}).size(), 3U);
  EXPECT_FALSE(log.accept(0, 0, frame("x")));
  BroadcastLog small(100, 25);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(small.accept(0, i, frame("0123456789")));
  EXPECT_EQ(small.lacking({}).size(), 2U);
}

TEST(LifelineGraph, Graph_StaysConnectedWithoutAnyOneHost_AndIsSparse) {
  for (int count = 2; count <= 70; ++count) {
    std::vector<int> hosts;
    for (int host = 0; host < count; ++host) hosts.push_back(3 * host);
    for (int lost = -1; lost < count; ++lost) {
      std::set<int> reached;
      std::deque<int> todo = {hosts[lost == 0 ? 1 : 0]};
      while (!todo.empty()) {
        const int host = todo.front();
        todo.pop_front();
        if ((lost >= 0 && host == hosts[static_cast<std::size_t>(lost)]) || !reached.insert(host).second) continue;
        const auto neighbours = lifeline_neighbours(hosts, host);
        EXPECT_LE(neighbours.size(), 9U);
        for (const int neighbour : neighbours) {
          EXPECT_TRUE(lifeline_neighbours(hosts, neighbour).contains(host)) << "a link is wanted by both ends";
          todo.push_back(neighbour);
        }
      }
      EXPECT_EQ(reached.size(), static_cast<std::size_t>(lost >= 0 ? count - 1 : count))
          << count << " without " << lost;
    }
  }
}

/// Two couriers over a network that loses, repeats and delays.
struct LossyPair {
  struct Packet {
    int to;
    bool is_message;
    std::uint64_t number;
    std::vector<std::byte> bytes;
  };
  explicit LossyPair(unsigned seed) : random(seed) {
    for (int self = 0; self < 2; ++self) {
      couriers.push_back(std::make_unique<Courier>(
          Courier::Outlet{[this](Rank to, std::uint64_t sequence, std::span<const std::byte> bytes) {
                            put({to, true, sequence, {bytes.begin(), bytes.end()}});
                          },
                          [this](Rank to, std::uint64_t next) { put({to, false, next, {}}); },
                          [this, self](Rank, std::span<const std::byte> bytes) {
                            received[self].push_back(static_cast<int>(bytes[0]) + 256 * static_cast<int>(bytes[1]));
                          }}));
    }
  }
  void put(Packet packet) {
    if (random() % 4 == 0) return;
    if (random() % 8 == 0) wire.push_back(packet);
    wire.push_back(std::move(packet));
  }
  void step() {
    now += 10 * kMillisecond;
    for (std::size_t count = wire.size(); count > 0; --count) {
      auto packet = std::move(wire.front());
      wire.pop_front();
      auto& courier = *couriers[static_cast<std::size_t>(packet.to)];
      if (packet.is_message) courier.on_message(1 - packet.to, packet.number, packet.bytes);
      if (!packet.is_message) courier.on_confirmation(1 - packet.to, packet.number, now);
    }
    for (auto& courier : couriers) {
      courier->confirm_all();
      courier->repeat_due(now);
    }
  }
  std::mt19937 random;
  Nanoseconds now = 1;
  std::deque<Packet> wire;
  std::vector<std::unique_ptr<Courier>> couriers;
  std::vector<int> received[2];
};

TEST(Courier, Messages_ArriveOnceAndInOrder_OverALossyNetwork) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  LossyPair pair(seed);
  std::vector<int> expected;
  for (int i = 0; i < 1000; ++i) {
    expected.push_back(i);
    const std::vector<std::byte> bytes = {static_cast<std::byte>(i % 256), static_cast<std::byte>(i / 256)};
    EXPECT_TRUE(pair.couriers[0]->send(1, bytes, pair.now));
    EXPECT_TRUE(pair.couriers[1]->send(0, bytes, pair.now));
    if (i % 10 == 0) pair.step();
  }
  for (int i = 0; i < 1'000'000 && (pair.couriers[0]->is_waiting() || pair.couriers[1]->is_waiting()); ++i) pair.step();
  EXPECT_EQ(pair.received[0], expected);
  EXPECT_EQ(pair.received[1], expected);
}

TEST(Courier, Memory_StaysBounded_WhenADestinationIsSilent) {
  Courier courier({[](Rank, std::uint64_t, std::span<const std::byte>) {}, [](Rank, std::uint64_t) {},
                   [](Rank, std::span<const std::byte>) {}});
  int accepted = 0;
  while (courier.send(1, std::vector<std::byte>(1 << 20), 1)) accepted += 1;
  EXPECT_EQ(accepted, 64);
  courier.forget(1);
  EXPECT_FALSE(courier.is_waiting());
  EXPECT_TRUE(courier.send(1, std::vector<std::byte>(1), 1));
}

}  // namespace
}  // namespace neuron::control
