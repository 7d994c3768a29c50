// Endpoint: messages, blocks and sleep between two ranks of one process.
#include "transport/shared_memory/endpoint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/transport/shared_memory/node.h"

namespace neuron::shared_memory {
namespace {

Header numbered(std::uint64_t sequence) {
  Header header;
  header.kind = MessageKind::eager;
  header.sequence = sequence;
  return header;
}

class EndpointPair : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(connect(a_, 0, b_, 1)); }

  // Where a block's arena begins: lets a test write what only a broken peer would.
  static std::byte* arena_of(Node& node, const Layout& layout) {
    const auto block = node.endpoint->take_block();
    std::byte* const start = block->address - layout.block_offset(block->index);
    node.endpoint->return_block(*block);
    return start;
  }

  Node a_{0};
  Node b_{1};
};

TEST_F(EndpointPair, DeliversHeaderAndPayload) {
  const auto payload = bytes_of("hello");
  ASSERT_EQ(a_.endpoint->send(1, numbered(7), payload), Posted::done);
  ASSERT_TRUE(eventually([&] { return b_.poll(), !b_.events.messages.empty(); }));
  EXPECT_EQ(b_.events.messages[0].source, 0);
  EXPECT_EQ(b_.events.messages[0].header, numbered(7));
  EXPECT_EQ(b_.events.messages[0].payload, payload);
}

TEST_F(EndpointPair, CountsWhatItSent) {
  ASSERT_EQ(a_.endpoint->send(1, numbered(1), bytes_of("12345")), Posted::done);
  ASSERT_EQ(a_.endpoint->send(1, numbered(2), {}), Posted::done);
  a_.endpoint->count_bulk(1, 100);
  EXPECT_EQ(a_.endpoint->traffic(1).messages, 2U);
  EXPECT_EQ(a_.endpoint->traffic(1).bytes, 105U);
  a_.endpoint->disconnect(1);
  EXPECT_EQ(a_.endpoint->traffic(1).messages, 2U);
  EXPECT_EQ(b_.endpoint->traffic(0).messages, 0U);
}

TEST_F(EndpointPair, SaysLost_WhenThePeerIsUnknown) {
  EXPECT_EQ(a_.endpoint->send(9, numbered(1), {}), Posted::lost);
  EXPECT_FALSE(a_.endpoint->is_connected(9));
}

TEST_F(EndpointPair, SaysAgain_UntilThePeerReads) {
  const std::vector<std::byte> payload(kEagerBytes);
  std::uint64_t sent = 0;
  while (a_.endpoint->send(1, numbered(sent), payload) == Posted::done) ++sent;
  EXPECT_GE(sent, a_.endpoint->traits().receive_slots / 3);
  EXPECT_EQ(a_.endpoint->send(1, numbered(sent), payload), Posted::again);
  ASSERT_TRUE(eventually([&] { return b_.poll(), b_.events.messages.size() == sent; }));
  EXPECT_EQ(a_.endpoint->send(1, numbered(sent), payload), Posted::done);
  for (std::uint64_t i = 0; i < sent; ++i) EXPECT_EQ(b_.events.messages[i].header.sequence, i);
}

TEST_F(EndpointPair, KeepsEveryByte_OverManyRandomMessages) {
  constexpr std::uint64_t kMessages = 100'000;
  const std::uint64_t seed = random_nonce();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto size_of = [seed](std::uint64_t i) {
    const std::uint64_t draw = Random::mix(seed + i);
    return draw % 16 == 0 ? (draw >> 8) % (kEagerBytes + 1) : (draw >> 8) % 256;
  };
  std::uint64_t received = 0;
  std::uint64_t wrong = 0;
  b_.events.on_each = [&](Rank, const Header& header, std::span<const std::byte> payload) {
    if (header.sequence != received || payload.size() != size_of(received) || !is_filled_with(payload, received))
      ++wrong;
    ++received;
  };
  std::thread sender([&] {
    std::vector<std::byte> payload(kEagerBytes);
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      const auto bytes = std::span(payload).first(size_of(i));
      fill_with(bytes, i);
      while (a_.endpoint->send(1, numbered(i), bytes) == Posted::again) std::this_thread::yield();
    }
  });
  eventually([&] {
    if (!b_.endpoint->poll(b_.events)) std::this_thread::yield();
    return received == kMessages;
  });
  sender.join();
  EXPECT_EQ(received, kMessages);
  EXPECT_EQ(wrong, 0U);
}

TEST_F(EndpointPair, LosesThePeer_WhenItsOutboxIsCorrupted) {
  const Layout layout = Layout::for_slots(3);
  ASSERT_EQ(a_.endpoint->send(1, numbered(1), {}), Posted::done);
  const std::uint32_t absurd = 1U << 30;
  std::memcpy(arena_of(a_, layout) + layout.ring_offset(0) + sizeof(Word), &absurd, sizeof absurd);
  ASSERT_TRUE(eventually([&] { return b_.poll(), !b_.events.lost.empty(); }));
  EXPECT_EQ(b_.events.lost[0].first, 0);
  EXPECT_EQ(b_.events.lost[0].second.code(), Code::peer_lost);
  EXPECT_TRUE(b_.events.messages.empty());
  EXPECT_FALSE(b_.endpoint->is_connected(0));
  b_.poll();
  EXPECT_EQ(b_.events.lost.size(), 1U);
}

TEST_F(EndpointPair, LosesThePeer_WhenItClaimsToHaveReadTooMuch) {
  const Layout layout = Layout::for_slots(3);
  word_at(arena_of(b_, layout) + layout.consumed_offset(0)).store(1ULL << 50);
  const std::vector<std::byte> payload(kEagerBytes);
  Posted posted = Posted::done;
  while (posted == Posted::done) posted = a_.endpoint->send(1, numbered(1), payload);
  EXPECT_EQ(posted, Posted::lost);
  a_.poll();
  ASSERT_EQ(a_.events.lost.size(), 1U);
  EXPECT_EQ(a_.events.lost[0].first, 1);
}

TEST_F(EndpointPair, MayBeDisconnected_WhileItsMessageIsDelivered) {
  ASSERT_EQ(a_.endpoint->send(1, numbered(1), {}), Posted::done);
  ASSERT_EQ(a_.endpoint->send(1, numbered(2), {}), Posted::done);
  int heard = 0;
  b_.events.on_each = [&](Rank source, const Header&, std::span<const std::byte>) {
    ++heard;
    b_.endpoint->disconnect(source);
  };
  ASSERT_TRUE(eventually([&] { return b_.poll(), heard > 0; }));
  b_.poll();
  EXPECT_EQ(heard, 1);
  EXPECT_EQ(b_.endpoint->send(0, numbered(1), {}), Posted::lost);
}

TEST_F(EndpointPair, ConnectsAgain_WhenBothHaveForgotten) {
  for (int round = 0; round < 10; ++round) {
    a_.endpoint->disconnect(1);
    b_.endpoint->disconnect(0);
    ASSERT_TRUE(connect(a_, 0, b_, 1));
    ASSERT_EQ(a_.endpoint->send(1, numbered(1), bytes_of("again")), Posted::done);
    ASSERT_TRUE(
        eventually([&] { return b_.poll(), b_.events.messages.size() == static_cast<std::size_t>(round) + 1; }));
  }
}

TEST_F(EndpointPair, SharesBlocksInPlace) {
  const auto block = a_.endpoint->take_block();
  ASSERT_TRUE(block);
  fill_with({block->address, kBlockBytes}, 5);
  const SharedBlock shared = a_.endpoint->share(*block);
  const std::byte* const seen = b_.endpoint->view(0, shared, kBlockBytes);
  ASSERT_NE(seen, nullptr);
  EXPECT_TRUE(is_filled_with({seen, kBlockBytes}, 5));
  EXPECT_TRUE(b_.endpoint->is_current(0, shared));
  a_.endpoint->return_block(*block);
  EXPECT_FALSE(b_.endpoint->is_current(0, shared)) << "the owner may write it from here on";
}

TEST_F(EndpointPair, NamesANewGeneration_EachTimeABlockIsShared) {
  const auto block = a_.endpoint->take_block();
  const SharedBlock first = a_.endpoint->share(*block);
  const SharedBlock second = a_.endpoint->share(*block);
  EXPECT_FALSE(b_.endpoint->is_current(0, first));
  EXPECT_TRUE(b_.endpoint->is_current(0, second));
  a_.endpoint->return_block(*block);
  const auto again = a_.endpoint->take_block();
  EXPECT_EQ(again->index, block->index) << "the block used last is the warmest";
  const SharedBlock third = a_.endpoint->share(*again);
  EXPECT_FALSE(b_.endpoint->is_current(0, second));
  EXPECT_TRUE(b_.endpoint->is_current(0, third));
}

TEST_F(EndpointPair, ViewsNothing_OutsideThePeersBlocks) {
  const auto block = a_.endpoint->take_block();
  const SharedBlock good = a_.endpoint->share(*block);
  const auto refuses = [&](auto change, std::size_t bytes) {
    SharedBlock bad = good;
    change(bad);
    return b_.endpoint->view(0, bad, bytes) == nullptr;
  };
  EXPECT_TRUE(refuses([](SharedBlock& bad) { bad.arena = 1; }, 1));
  EXPECT_TRUE(refuses([](SharedBlock& bad) { bad.offset = 0; }, 1));
  EXPECT_TRUE(refuses([](SharedBlock& bad) { bad.offset = ~0ULL; }, 1));
  EXPECT_TRUE(refuses([](SharedBlock& bad) { bad.offset += kArenaStep; }, 1));
  EXPECT_TRUE(refuses([](SharedBlock& bad) { bad.offset += 1; }, kBlockBytes));
  EXPECT_TRUE(refuses([](SharedBlock&) {}, kBlockBytes + 1));
  EXPECT_TRUE(refuses([](SharedBlock&) {}, ~std::size_t{0}));
  EXPECT_EQ(b_.endpoint->view(9, good, 1), nullptr);
  SharedBlock never = good;
  never.generation = 0;
  EXPECT_FALSE(b_.endpoint->is_current(0, never));
}

TEST_F(EndpointPair, HasAsManyBlocksAsItSays) {
  std::vector<Block> taken;
  while (const auto block = a_.endpoint->take_block()) taken.push_back(*block);
  EXPECT_EQ(taken.size(), a_.endpoint->traits().blocks);
  for (const auto& block : taken) a_.endpoint->return_block(block);
  EXPECT_TRUE(a_.endpoint->take_block());
}

TEST_F(EndpointPair, DoesNotSleep_WhenSomethingHasArrived) {
  EXPECT_TRUE(b_.endpoint->arm());
  b_.endpoint->disarm();
  ASSERT_EQ(a_.endpoint->send(1, numbered(1), {}), Posted::done);
  EXPECT_FALSE(b_.endpoint->arm());
  b_.poll();
  EXPECT_TRUE(b_.endpoint->arm());
}

TEST_F(EndpointPair, IsRungOnlyWhenAsleep) {
  WaitSet waits;
  waits.add(b_.doorbell.descriptor());
  b_.doorbell.silence();
  ASSERT_EQ(a_.endpoint->send(1, numbered(1), {}), Posted::done);
  EXPECT_EQ(waits.wait(0), WaitSet::Wake::timeout);
  b_.poll();
  ASSERT_TRUE(b_.endpoint->arm());
  ASSERT_EQ(a_.endpoint->send(1, numbered(2), {}), Posted::done);
  EXPECT_EQ(waits.wait(kPatience), WaitSet::Wake::readable);
}

// A rank that sleeps whenever it finds nothing, by the rules of Transport::arm.
class Sleeper {
 public:
  explicit Sleeper(Node& node) : node_(node) { waits_.add(node.doorbell.descriptor()); }

  // False when nobody rang although something was to come.
  bool poll_or_sleep() {
    if (node_.endpoint->poll(node_.events) || !node_.endpoint->arm()) return true;
    const bool is_rung = waits_.wait(kPatience) == WaitSet::Wake::readable;
    node_.endpoint->disarm();
    node_.doorbell.silence();
    return is_rung;
  }

 private:
  Node& node_;
  WaitSet waits_;
};

TEST_F(EndpointPair, NeverLosesAWakeUp_WhenBothSleep) {
  constexpr std::uint64_t kRounds = 20'000;
  std::atomic<bool> is_lost{false};
  const auto play = [&](Node& node, Rank other, bool begins) {
    std::uint64_t heard = 0;
    Sleeper sleeper(node);
    node.events.on_each = [&](Rank, const Header& header, std::span<const std::byte>) { heard = header.sequence; };
    if (begins) node.endpoint->send(other, numbered(1), {});
    for (std::uint64_t expected = begins ? 2 : 1; expected <= kRounds; expected += 2) {
      while (heard != expected && !is_lost) {
        if (!sleeper.poll_or_sleep()) is_lost = true;
      }
      if (expected < kRounds) node.endpoint->send(other, numbered(expected + 1), {});
    }
  };
  std::thread other([&] { play(b_, 0, false); });
  play(a_, 1, true);
  other.join();
  EXPECT_FALSE(is_lost);
}

TEST_F(EndpointPair, WakesASender_WhenThereIsRoomAgain) {
  constexpr std::uint64_t kMessages = 3'000;
  std::uint64_t received = 0;
  std::atomic<bool> is_lost{false};
  b_.events.on_each = [&](Rank, const Header&, std::span<const std::byte>) { ++received; };
  std::thread receiver([&] {
    Sleeper sleeper(b_);
    while (received < kMessages && !is_lost) {
      if (!sleeper.poll_or_sleep()) is_lost = true;
    }
  });
  Sleeper sleeper(a_);
  const std::vector<std::byte> payload(kEagerBytes);
  for (std::uint64_t sent = 0; sent < kMessages && !is_lost;) {
    if (a_.endpoint->send(1, numbered(sent), payload) == Posted::done) {
      ++sent;
    } else if (!sleeper.poll_or_sleep()) {
      is_lost = true;
    }
  }
  receiver.join();
  EXPECT_FALSE(is_lost);
  EXPECT_EQ(received, kMessages);
}

TEST(Endpoint, IsInvalid_WithoutAToken) {
  const Doorbell doorbell;
  const auto made = Endpoint::create({.rank = 0, .nonce = 1}, doorbell);
  ASSERT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().code(), Code::invalid_argument);
}

TEST(Endpoint, IsUnavailable_WithTooManyLocalRanks) {
  const Doorbell doorbell;
  const auto made = Endpoint::create({.rank = 0, .nonce = 1, .local_ranks = 300, .token = kToken}, doorbell);
  ASSERT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().code(), Code::unavailable);
}

TEST(Endpoint, ServesPeersFairly_WhenOneFloods) {
  Node hub(0);
  Node loud(1);
  Node quiet(2);
  ASSERT_TRUE(connect(loud, 1, hub, 0));
  ASSERT_TRUE(connect(quiet, 2, hub, 0));
  int polls_until_heard = 0;
  bool is_heard = false;
  hub.events.on_each = [&](Rank source, const Header&, std::span<const std::byte>) {
    is_heard = is_heard || source == 2;
  };
  ASSERT_EQ(quiet.endpoint->send(0, numbered(1), {}), Posted::done);
  for (; !is_heard && polls_until_heard < 10; ++polls_until_heard) {
    while (loud.endpoint->send(0, numbered(1), {}) == Posted::done) {
    }
    hub.poll();
  }
  EXPECT_LE(polls_until_heard, 2);
}

}  // namespace
}  // namespace neuron::shared_memory
