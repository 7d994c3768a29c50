// What the loopback transport does to messages and writes, by personality.
#include "transport/loopback/loopback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "tests/seed.h"

namespace neuron::loopback {
namespace {

class Recorder final : public TransportEvents {
 public:
  void on_message(Rank source, const Header& header, std::span<const std::byte> payload) override {
    sequences.push_back(header.sequence);
    sources.insert(source);
    bytes += payload.size();
  }
  void on_written(std::uint32_t immediate) override {
    written.push_back(immediate);
    if (on_write) on_write(immediate);
  }
  void on_write_done(std::uint64_t cookie, const Status& status) override {
    EXPECT_TRUE(status.is_ok());
    done.push_back(cookie);
  }
  void on_peer_lost(Rank peer, const Status& why) override {
    EXPECT_EQ(why.code(), Code::peer_lost);
    lost.push_back(peer);
  }

  std::vector<std::uint64_t> sequences;
  std::set<Rank> sources;
  std::size_t bytes = 0;
  std::vector<std::uint32_t> written;
  std::function<void(std::uint32_t)> on_write;
  std::vector<std::uint64_t> done;
  std::vector<Rank> lost;
};

struct Pair {
  explicit Pair(Personality personality, Rank world = 2) : hub(world, personality) {
    for (Rank rank = 0; rank < world; ++rank) {
      bells.push_back(std::make_shared<Doorbell>());
      ends.push_back(hub.endpoint(rank, bells.back()));
    }
    EXPECT_EQ(ends[0]->connect(1, {}), Status());
  }
  /// Until the transport takes it; the number of refusals.
  int send(std::uint64_t sequence, std::size_t size = 8) {
    Header header;
    header.sequence = sequence;
    const std::vector<std::byte> payload(size);
    int refusals = 0;
    while (ends[0]->send(1, header, payload) != Posted::done) ++refusals;
    return refusals;
  }
  void drain(Rank rank, Recorder& recorder) {
    while (ends[static_cast<std::size_t>(rank)]->poll(recorder)) {
    }
  }

  Hub hub;
  std::vector<std::shared_ptr<Doorbell>> bells;
  std::vector<std::unique_ptr<Transport>> ends;
};

std::vector<std::uint64_t> counted(std::uint64_t count) {
  std::vector<std::uint64_t> numbers(count);
  for (std::uint64_t i = 0; i < count; ++i) numbers[i] = i;
  return numbers;
}

TEST(Loopback, KeepsOrderByDefault) {
  Pair pair(Personality::in_order());
  Recorder recorder;
  for (std::uint64_t i = 0; i < 500; ++i) EXPECT_EQ(pair.send(i), 0);
  pair.drain(1, recorder);
  EXPECT_EQ(recorder.sequences, counted(500));
  EXPECT_EQ(recorder.sources, std::set<Rank>{0});
  EXPECT_EQ(recorder.bytes, 500U * 8);
}

TEST(Loopback, ReordersAndRefuses_ButDeliversEachOnce_AsEfaDirect) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Pair pair(Personality::efa_direct(test_seed()));
  Recorder recorder;
  int refusals = 0;
  for (std::uint64_t i = 0; i < 500; ++i) refusals += pair.send(i);
  pair.drain(1, recorder);
  EXPECT_GT(refusals, 0);
  EXPECT_NE(recorder.sequences, counted(500));
  std::sort(recorder.sequences.begin(), recorder.sequences.end());
  EXPECT_EQ(recorder.sequences, counted(500));
}

TEST(Loopback, OvertakesByNoMoreThanItsWindow) {
  Personality personality;
  personality.reorder_window = 3;
  Pair pair(personality);
  Recorder recorder;
  for (std::uint64_t i = 0; i < 500; ++i) pair.send(i);
  pair.drain(1, recorder);
  for (std::uint64_t i = 0; i < 500; ++i) EXPECT_LE(recorder.sequences[i], i + 3);
}

TEST(Loopback, RepeatsItselfForASeed) {
  const auto order = [](std::uint64_t seed) {
    Pair pair(Personality::efa_direct(seed));
    Recorder recorder;
    for (std::uint64_t i = 0; i < 200; ++i) pair.send(i);
    pair.drain(1, recorder);
    return recorder.sequences;
  };
  EXPECT_EQ(order(5), order(5));
  EXPECT_NE(order(5), order(6));
}

TEST(Loopback, CountsWhatHasLeft) {
  Pair pair(Personality::efa_direct(7));
  for (std::uint64_t i = 0; i < 100; ++i) pair.send(i, 10);
  const TrafficCount count = pair.ends[0]->traffic(1);
  EXPECT_EQ(count.messages, 100U) << "refused posts do not count";
  EXPECT_EQ(count.bytes, 1000U);
}

TEST(Loopback, HasWritten_WhenItSaysSo) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  Pair pair(Personality::efa_direct(test_seed()));
  Recorder writer;
  Recorder reader;
  std::vector<Block> from;
  std::vector<Block> to;
  for (std::uint32_t i = 0; i < 30; ++i) {
    from.push_back(*pair.ends[0]->take_block());
    to.push_back(*pair.ends[1]->take_block());
    std::fill_n(from[i].address, 1000, static_cast<std::byte>(i + 1));
    while (pair.ends[0]->write(1, from[i], 1000, pair.ends[1]->expose(to[i]), i, 100 + i) != Posted::done) {
    }
  }
  reader.on_write = [&](std::uint32_t immediate) {
    EXPECT_EQ(to[immediate].address[999], static_cast<std::byte>(immediate + 1));
  };
  pair.drain(1, reader);
  pair.drain(0, writer);
  EXPECT_EQ(reader.written.size(), 30U);
  EXPECT_EQ(writer.done.size(), 30U);
  EXPECT_EQ(pair.ends[0]->traffic(1).bytes, 30'000U);
}

TEST(Loopback, LendsAtMostItsBlocks) {
  Personality personality;
  personality.blocks = 3;
  Pair pair(personality);
  std::vector<Block> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(*pair.ends[0]->take_block());
  EXPECT_FALSE(pair.ends[0]->take_block());
  pair.ends[0]->return_block(blocks[1]);
  EXPECT_EQ(pair.ends[0]->take_block()->address, blocks[1].address);
}

TEST(Loopback, TellsEveryoneOfADeath_Once) {
  Pair pair(Personality::in_order(), 3);
  pair.send(0);
  pair.hub.kill(1);
  EXPECT_EQ(pair.ends[0]->send(1, Header(), {}), Posted::lost);
  EXPECT_EQ(pair.ends[1]->send(0, Header(), {}), Posted::lost);
  for (const Rank rank : {0, 2}) {
    Recorder survivor;
    pair.drain(rank, survivor);
    pair.drain(rank, survivor);
    EXPECT_EQ(survivor.lost, std::vector<Rank>{1});
  }
}

TEST(Loopback, RingsASleeperOnly) {
  Pair pair(Personality::in_order());
  Recorder recorder;
  WaitSet waits;
  waits.add(pair.bells[1]->descriptor());
  pair.send(0);
  EXPECT_EQ(waits.wait(0), WaitSet::Wake::timeout) << "nobody sleeps";
  EXPECT_FALSE(pair.ends[1]->arm()) << "something has arrived";
  pair.drain(1, recorder);
  EXPECT_TRUE(pair.ends[1]->arm());
  pair.send(1);
  EXPECT_EQ(waits.wait(0), WaitSet::Wake::readable);
}

TEST(LoopbackDeathTest, RefusesMessagesThatAreTooLarge) {
  Pair pair(Personality::in_order());
  EXPECT_DEATH(pair.send(0, kEagerBytes + 1), "larger than the transport takes");
}

}  // namespace
}  // namespace neuron::loopback
