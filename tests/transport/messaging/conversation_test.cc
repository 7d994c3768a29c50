// Two Messengers talk at random, over every way to move large payloads: what is received is what was sent, nothing is
// lost, posts may be cancelled at any moment, and in the end nobody holds anything.
#include <gtest/gtest.h>

#include "tests/seed.h"
#include "tests/transport/messaging/fake_transport.h"

namespace neuron::testing {
namespace {

struct Side {
  Side(Rank own, BulkMode mode, Random& random) : rank(own), wire(own, mode, 10, 64), messenger(options(), events) {
    events.messenger = &messenger;
    events.connects = [this](Rank peer) { messenger.use_route(peer, wire); };
    wire.refuses = [&random] { return random.one_in(10); };
  }
  Messenger::Options options() {
    Messenger::Options made;
    made.rank = rank;
    made.nonces = {Station::kNonce, Station::kNonce + 1};
    made.transports = {&wire};
    return made;
  }

  const Rank rank;
  FakeTransport wire;
  FakeEvents events;
  Messenger messenger;
  std::vector<std::unique_ptr<TestSend>> sends;
  std::vector<std::unique_ptr<TestReceive>> receives;
};

std::size_t random_size(Random& random) {
  switch (random.below(4)) {
    case 0:
      return random.below(100);
    case 1:
      return random.below(kEagerBytes + 1);
    case 2:
      return kEagerBytes + 1 + random.below(3000);
    default:
      return random.below(kBlockBytes + 1);
  }
}

class Conversation : public ::testing::TestWithParam<BulkMode> {
 protected:
  Conversation() : random_(test_seed()), sides_{Side(0, GetParam(), random_), Side(1, GetParam(), random_)} {
    sides_[0].wire.others[1] = &sides_[1].wire;
    sides_[1].wire.others[0] = &sides_[0].wire;
  }

  void progress() {
    for (Side& side : sides_) side.messenger.progress();
  }
  void settle() {
    for (int i = 0; i < 2000; ++i) progress();
  }
  /// Posts message `sequence` of both directions, on both sides, in any order.
  void post(std::uint64_t sequence, bool lent) {
    for (Side& side : sides_) {
      const Rank peer = 1 - side.rank;
      const std::size_t bytes = sizes_[static_cast<std::size_t>(side.rank)][sequence];
      const std::size_t incoming = sizes_[static_cast<std::size_t>(peer)][sequence];
      side.sends.push_back(std::make_unique<TestSend>(sequence, bytes, peer));
      side.receives.push_back(std::make_unique<TestReceive>(sequence, incoming, lent, peer));
      std::fill(side.sends.back()->memory.begin(), side.sends.back()->memory.end(), content(side.rank, sequence));
    }
  }
  static void give_back_one(Side& side) {
    if (side.events.kept.empty()) return;
    const auto [post, view] = *side.events.kept.begin();
    const std::byte expected = content(1 - side.rank, post->key.sequence);
    ASSERT_TRUE(std::all_of(view, view + post->target.bytes, [&](std::byte one) { return one == expected; }));
    ASSERT_TRUE(side.messenger.give_back(*post));
    side.events.kept.erase(post);
  }
  static void cancel(Side& side, SendPost& post) { side.messenger.cancel(post); }
  static void cancel(Side& side, ReceivePost& post) {
    side.events.kept.erase(&post);
    side.messenger.cancel(post);
  }
  [[nodiscard]] bool is_over(std::size_t count) const {
    return std::all_of(std::begin(sides_), std::end(sides_), [&](const Side& side) {
      return side.events.sent.size() == count && side.events.received.size() == count && side.events.kept.empty();
    });
  }
  void expect_nothing_held() {
    settle();
    for (Side& side : sides_) {
      EXPECT_EQ(side.wire.blocks_in_use(), 0U) << "rank " << side.rank;
      EXPECT_EQ(side.messenger.memory_in_use(), 0U) << "rank " << side.rank;
      EXPECT_FALSE(side.messenger.has_unfinished()) << "rank " << side.rank;
    }
  }
  static std::byte content(Rank sender, std::uint64_t sequence) {
    return static_cast<std::byte>(sequence * 2 + static_cast<std::uint64_t>(sender));
  }

  Random random_;
  Side sides_[2];
  std::vector<std::size_t> sizes_[2];
};

TEST_P(Conversation, DeliversEverythingUnchanged) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  constexpr std::uint64_t kCount = 600;
  for (auto& sizes : sizes_) {
    for (std::uint64_t i = 0; i < kCount; ++i) sizes.push_back(random_size(random_));
  }
  for (std::uint64_t i = 0; i < kCount; ++i) post(i, i % 5 == 0);
  for (Side& side : sides_) side.events.keeps = true;
  // Sends in order; receives shuffled within a reach that is larger than every window.
  for (Side& side : sides_) {
    std::vector<std::size_t> order(kCount);
    for (std::size_t i = 0; i < kCount; ++i) order[i] = i;
    for (std::size_t i = 0; i < kCount; ++i)
      std::swap(order[i], order[std::min<std::size_t>(kCount - 1, i + random_.below(200))]);
    std::size_t next_send = 0;
    std::size_t next_receive = 0;
    while (next_send < kCount || next_receive < kCount) {
      if (next_send < kCount && (next_receive == kCount || random_.one_in(2))) {
        side.messenger.post_send(*side.sends[next_send++]);
      } else {
        side.messenger.post_receive(*side.receives[order[next_receive++]]);
      }
      if (random_.one_in(3)) progress();
      for (Side& other : sides_) {
        if (random_.one_in(4) || other.events.kept.size() > 20) give_back_one(other);
      }
    }
  }
  for (int i = 0; i < 100'000 && !is_over(kCount); ++i) {
    progress();
    for (Side& side : sides_) give_back_one(side);
  }
  for (Side& side : sides_) {
    EXPECT_EQ(side.events.sent.size(), kCount);
    ASSERT_EQ(side.events.received.size(), kCount);
    EXPECT_TRUE(side.events.mismatched.empty());
    EXPECT_TRUE(side.events.view_lost.empty());
    for (const auto& [post, view] : side.events.received) {
      const std::byte expected = content(1 - side.rank, post->key.sequence);
      ASSERT_EQ(view, std::vector<std::byte>(post->target.bytes, expected)) << post->key.sequence;
      ASSERT_TRUE(post->is_lent() || static_cast<TestReceive*>(post)->memory == view);
    }
  }
  expect_nothing_held();
}

TEST_P(Conversation, SurvivesCancelsAtAnyMoment) {
  SCOPED_TRACE("seed " + std::to_string(test_seed()));
  constexpr std::uint64_t kCount = 2000;
  for (auto& sizes : sizes_) {
    for (std::uint64_t i = 0; i < kCount; ++i) sizes.push_back(random_size(random_));
  }
  for (Side& side : sides_) side.events.keeps = true;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    post(i, i % 3 == 0);
    for (Side& side : sides_) {
      side.messenger.post_send(*side.sends.back());
      side.messenger.post_receive(*side.receives.back());
    }
    for (std::uint64_t steps = random_.below(4); steps > 0; --steps) progress();
    for (Side& side : sides_) {
      if (random_.one_in(3)) cancel(side, *side.sends[random_.below(side.sends.size())]);
      if (random_.one_in(3)) cancel(side, *side.receives[random_.below(side.receives.size())]);
      give_back_one(side);
    }
  }
  for (Side& side : sides_) {
    for (auto& send : side.sends) cancel(side, *send);
    for (auto& receive : side.receives) cancel(side, *receive);
  }
  settle();
  for (Side& side : sides_) side.messenger.drop_arrivals(5, 0);
  settle();
  for (Side& side : sides_) {
    EXPECT_TRUE(side.events.mismatched.empty());
    for (const auto& [post, view] : side.events.received) {
      const std::byte expected = content(1 - side.rank, post->key.sequence);
      ASSERT_EQ(view, std::vector<std::byte>(post->target.bytes, expected)) << post->key.sequence;
    }
  }
  expect_nothing_held();
}

INSTANTIATE_TEST_SUITE_P(Modes, Conversation, ::testing::Values(BulkMode::pull, BulkMode::write, BulkMode::messages));

}  // namespace
}  // namespace neuron::testing
