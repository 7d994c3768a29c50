// Flow control: nobody sends without credit, except what the other side wants; credit grows where it is used well.
#include <gtest/gtest.h>

#include "tests/transport/messaging/fake_transport.h"

namespace neuron::testing {
namespace {

constexpr std::uint32_t kFirstWindow = 32;  // with two ranks and 256 receive slots

std::vector<std::unique_ptr<TestSend>> post_sends(Station& station, int count, std::size_t bytes = 8,
                                                  std::uint64_t first = 0) {
  std::vector<std::unique_ptr<TestSend>> sends;
  for (int i = 0; i < count; ++i) {
    sends.push_back(std::make_unique<TestSend>(first + static_cast<std::uint64_t>(i), bytes));
    station.messenger.post_send(*sends.back());
  }
  return sends;
}

void cancel_all(Station& station, std::vector<std::unique_ptr<TestSend>>& sends) {
  for (auto& send : sends) station.messenger.cancel(*send);
}

TEST(Credit, IsAskedForByTheFirstSend) {
  Station station(BulkMode::write);
  TestSend send(0, 8);
  station.messenger.post_send(send);
  EXPECT_EQ(station.events.connections_needed, std::vector<Rank>{1});
  EXPECT_TRUE(station.wire.sent.empty());
  station.meet(1, 4);
  EXPECT_EQ(station.wire.sent_count(MessageKind::hello), 1U);
  EXPECT_EQ(station.wire.sent_count(MessageKind::eager), 1U);
}

TEST(Credit, IsNeverExceeded) {
  Station station(BulkMode::write);
  station.meet(1, 3);
  auto sends = post_sends(station, 10);
  EXPECT_EQ(station.wire.sent_count(MessageKind::eager), 3U);
  station.give_credit(1, 2);
  EXPECT_EQ(station.wire.sent_count(MessageKind::eager), 5U);
  station.give_credit(1, 100);
  EXPECT_EQ(station.wire.sent_count(MessageKind::eager), 10U);
  EXPECT_EQ(station.events.sent.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(station.events.sent[i], sends[i].get()) << "in order";
}

TEST(Credit, IsNeverExceeded_ByAnnouncements) {
  Station station(BulkMode::write);
  station.meet(1, 3);
  auto sends = post_sends(station, 10, 100'000);
  EXPECT_EQ(station.wire.sent_count(MessageKind::announce), 3U);
  cancel_all(station, sends);
}

TEST(Credit, IsNotSpentOnARefusedPost) {
  Station station(BulkMode::write);
  station.meet(1, 1);
  station.wire.refusals = 1;
  auto sends = post_sends(station, 1);
  station.settle();
  EXPECT_EQ(station.wire.sent_count(MessageKind::eager), 1U);
}

TEST(Credit, OfTheFirstWindowComesWithTheHello) {
  Station station(BulkMode::write);
  station.meet(1);
  const auto hello = station.wire.take_sent(MessageKind::hello);
  ASSERT_EQ(hello.size(), 1U);
  EXPECT_EQ(hello[0].header.credits, kFirstWindow);
  EXPECT_EQ(hello[0].header.nonce_check, static_cast<std::uint32_t>(Station::kNonce + 1));
}

TEST(Credit, OfAllPeersTogetherIsAtMostHalfTheReceiveQueue) {
  constexpr Rank kWorld = 33;
  Station station(BulkMode::write, kWorld, 16, 256);
  std::uint32_t granted = 0;
  for (Rank peer = 1; peer < kWorld; ++peer) station.meet(peer);
  for (const auto& hello : station.wire.take_sent(MessageKind::hello)) granted += hello.header.credits;
  EXPECT_LE(granted, 128U);
  EXPECT_GE(granted, 2U * (kWorld - 1));
}

/// Credits that have left for rank 1.
std::uint32_t credits_sent(Station& station) {
  std::uint32_t credits = 0;
  for (const auto& one : station.wire.sent) credits += one.header.credits;
  station.wire.sent.clear();
  return credits;
}

TEST(Credit, OfUnmatchedMessagesIsHeldBack) {
  Station station(BulkMode::write);
  station.meet(1);
  ASSERT_EQ(credits_sent(station), kFirstWindow);
  for (std::uint64_t i = 0; i < kFirstWindow; ++i) station.eager(1, i);
  EXPECT_EQ(credits_sent(station), 0U);
  std::vector<std::unique_ptr<TestReceive>> receives;
  for (std::uint64_t i = 0; i < kFirstWindow; ++i) {
    receives.push_back(std::make_unique<TestReceive>(i, 8));
    station.messenger.post_receive(*receives.back());
    station.settle();
  }
  EXPECT_EQ(station.events.received.size(), kFirstWindow);
  EXPECT_GE(credits_sent(station), kFirstWindow * 3 / 4) << "given back when they meet their receives";
}

TEST(Credit, OfWantedMessagesIsNotReturned) {
  Station station(BulkMode::write);
  station.meet(1);
  credits_sent(station);
  std::vector<std::unique_ptr<TestReceive>> receives;
  for (std::uint64_t i = 0; i < 100; ++i) {
    receives.push_back(std::make_unique<TestReceive>(i, 8));
    station.messenger.post_receive(*receives.back());
    station.eager(1, i, 8, flag::kUncredited);
  }
  EXPECT_EQ(station.events.received.size(), 100U);
  EXPECT_EQ(credits_sent(station), 0U);
}

TEST(Window, GrowsWhileArrivalsFindTheirReceives) {
  Station station(BulkMode::write, 2, 16, 4096);
  station.meet(1);
  std::uint64_t sequence = 0;
  std::uint32_t outstanding = credits_sent(station);
  EXPECT_EQ(outstanding, kFirstWindow);
  std::uint32_t most = outstanding;
  for (int i = 0; i < 5000; ++i) {
    TestReceive receive(sequence, 8);
    station.messenger.post_receive(receive);
    station.eager(1, sequence++);
    outstanding = outstanding - 1 + credits_sent(station);
    most = std::max(most, outstanding);
  }
  EXPECT_LE(most, Messenger::kMaxWindow);
  EXPECT_GT(most, Messenger::kMaxWindow * 3 / 4);
}

TEST(Window, OfAllPeersStaysWithinHalfTheReceiveQueue) {
  Station station(BulkMode::write, 3, 16, 256);
  std::vector<std::uint32_t> outstanding(3, 0);
  for (const Rank peer : {1, 2}) station.meet(peer);
  const auto account = [&] {
    for (const auto& one : station.wire.sent) outstanding[static_cast<std::size_t>(one.peer)] += one.header.credits;
    station.wire.sent.clear();
    return outstanding[1] + outstanding[2];
  };
  account();
  for (std::uint64_t i = 0; i < 2000; ++i) {
    for (const Rank peer : {1, 2}) {
      TestReceive receive(i, 8, false, peer);
      station.messenger.post_receive(receive);
      station.eager(peer, i);
      --outstanding[static_cast<std::size_t>(peer)];
      ASSERT_LE(account(), 128U);
    }
  }
}

TEST(Window, OfALostPeerIsForTheOthers) {
  Station station(BulkMode::write, 3, 16, 256);
  for (const Rank peer : {1, 2}) station.meet(peer);
  station.wire.lose(1);
  station.settle();
  station.wire.sent.clear();
  std::uint32_t outstanding = kFirstWindow;
  std::uint32_t most = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    TestReceive receive(i, 8, false, 2);
    station.messenger.post_receive(receive);
    station.eager(2, i);
    outstanding = outstanding - 1 + credits_sent(station);
    most = std::max(most, outstanding);
  }
  EXPECT_LE(most, 128U);
  EXPECT_GT(most, 96U);
}

TEST(Window, IsGrantedAgain_WhenThePeerIsReachedAnotherWay) {
  FakeEvents events;
  FakeTransport first(0, BulkMode::pull);
  FakeTransport second(0, BulkMode::write);
  Messenger::Options options;
  options.nonces = {Station::kNonce, Station::kNonce + 1};
  options.transports = {&first, &second};
  Messenger messenger(options, events);
  events.messenger = &messenger;
  messenger.use_route(1, first);
  EXPECT_EQ(first.sent.back().header.credits, kFirstWindow);
  Header hello;
  hello.kind = MessageKind::hello;
  hello.nonce_check = static_cast<std::uint32_t>(Station::kNonce);
  hello.credits = 20;
  first.arrive(1, hello);
  messenger.progress();
  messenger.use_route(1, second);
  EXPECT_EQ(second.sent.back().header.credits, kFirstWindow);
  hello.credits = 3;
  second.arrive(1, hello);
  messenger.progress();
  std::vector<std::unique_ptr<TestSend>> sends;
  for (std::uint64_t i = 0; i < 10; ++i) {
    sends.push_back(std::make_unique<TestSend>(i, 8));
    messenger.post_send(*sends.back());
  }
  EXPECT_EQ(second.sent_count(MessageKind::eager), 3U) << "credit of the former way does not count";
  for (auto& send : sends) messenger.cancel(*send);
}

TEST(Window, DoesNotGrow_WhileMessagesAreUnmatched) {
  Station station(BulkMode::write, 2, 16, 4096);
  station.meet(1);
  std::uint32_t outstanding = credits_sent(station);
  station.eager(1, 1'000'000);  // nobody takes it
  --outstanding;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    TestReceive receive(i, 8);
    station.messenger.post_receive(receive);
    station.eager(1, i);
    outstanding = outstanding - 1 + credits_sent(station);
    ASSERT_LT(outstanding, kFirstWindow);
  }
}

// ---- want ----

/// Rank 1 has used all its credit on messages that nobody receives.
void exhaust(Station& station) {
  station.meet(1);
  for (std::uint64_t i = 0; i < kFirstWindow; ++i) station.eager(1, 1000 + i, 8, 0, 6);
  station.wire.sent.clear();
}

TEST(Want, IsSent_WhenAReceiveIsPostedUnderPressure) {
  Station station(BulkMode::write);
  exhaust(station);
  TestReceive receive(3, 8);
  station.messenger.post_receive(receive);
  const auto wants = station.wire.take_sent(MessageKind::want);
  ASSERT_EQ(wants.size(), 1U);
  EXPECT_EQ(MessageKey::of(wants[0].header, 1), receive.key);
  station.eager(1, 3, 8, flag::kUncredited);
  EXPECT_EQ(station.events.received.size(), 1U);
}

TEST(Want, IsSentForReceivesThatWereThereBefore) {
  Station station(BulkMode::write);
  station.meet(1);
  TestReceive receive(3, 8);
  station.messenger.post_receive(receive);
  for (std::uint64_t i = 0; i < kFirstWindow; ++i) station.eager(1, 1000 + i, 8, 0, 6);
  EXPECT_EQ(station.wire.sent_count(MessageKind::want), 1U) << "once";
  station.messenger.cancel(receive);
}

TEST(Want, IsNotSent_WithoutPressure) {
  Station station(BulkMode::write);
  station.meet(1);
  station.eager(1, 1000, 8, 0, 6);
  TestReceive receive(3, 8);
  station.messenger.post_receive(receive);
  EXPECT_EQ(station.wire.sent_count(MessageKind::want), 0U);
  station.messenger.cancel(receive);
}

TEST(Want, IsSent_WhenThePeerSaysThatItHasNoBlockToStageIn) {
  Station station(BulkMode::pull);
  station.meet(1);
  TestReceive receive(3, 100'000);
  station.messenger.post_receive(receive);
  station.give_credit(1, 0, flag::kStarved);
  EXPECT_EQ(station.wire.sent_count(MessageKind::want), 1U);
  station.messenger.cancel(receive);
}

class Wanted : public ::testing::TestWithParam<std::tuple<BulkMode, std::size_t>> {
 protected:
  [[nodiscard]] static std::size_t bytes() { return std::get<1>(GetParam()); }
  [[nodiscard]] static MessageKind kind() { return bytes() > kEagerBytes ? MessageKind::announce : MessageKind::eager; }
  Station station_{std::get<0>(GetParam())};
};

TEST_P(Wanted, LeavesWithoutCredit_BeforeWhatIsQueued) {
  station_.meet(1, 0);
  auto sends = post_sends(station_, 5, bytes());
  EXPECT_EQ(station_.wire.sent_count(kind()), 0U);
  station_.want(1, 3);
  const auto left = station_.wire.take_sent(kind());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].header.sequence, 3U);
  EXPECT_NE(left[0].header.flags & flag::kUncredited, 0);
  cancel_all(station_, sends);
}

TEST_P(Wanted, LeavesWhenItIsPosted_IfTheWantCameBefore) {
  station_.meet(1, 0);
  station_.want(1, 3);
  auto sends = post_sends(station_, 1, bytes(), 3);
  const auto left = station_.wire.take_sent(kind());
  ASSERT_EQ(left.size(), 1U) << "the queue is empty and there is no credit";
  EXPECT_NE(left[0].header.flags & flag::kUncredited, 0);
  cancel_all(station_, sends);
}

TEST_P(Wanted, LeavesWhenItIsPosted_BehindAQueue) {
  station_.meet(1, 0);
  station_.want(1, 3);
  auto sends = post_sends(station_, 4, bytes());
  const auto left = station_.wire.take_sent(kind());
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].header.sequence, 3U);
  cancel_all(station_, sends);
}

TEST_P(Wanted, LeavesLater_WhenTheTransportHasNoRoom) {
  station_.meet(1, 0);
  auto sends = post_sends(station_, 5, bytes());
  station_.wire.refusals = 1;
  station_.want(1, 3);
  station_.settle();
  EXPECT_EQ(station_.wire.sent_count(kind()), 1U);
  cancel_all(station_, sends);
}

INSTANTIATE_TEST_SUITE_P(All, Wanted,
                         ::testing::Combine(::testing::Values(BulkMode::pull, BulkMode::write, BulkMode::messages),
                                            ::testing::Values(std::size_t{8}, std::size_t{100'000})));

TEST(Starved, IsSaid_WhenThereIsNoBlockToStageIn) {
  Station station(BulkMode::pull, 6, 4);  // of 4 blocks, 3 may be used without a want
  for (Rank peer = 1; peer < 6; ++peer) station.meet(peer, 32);
  std::vector<std::unique_ptr<TestSend>> sends;
  for (Rank peer = 1; peer < 6; ++peer) {
    sends.push_back(std::make_unique<TestSend>(0, 100'000, peer));
    station.messenger.post_send(*sends.back());
  }
  EXPECT_EQ(station.wire.sent_count(MessageKind::announce), 3U);
  std::size_t starved = 0;
  for (const auto& one : station.wire.take_sent(MessageKind::credit))
    starved += (one.header.flags & flag::kStarved) != 0;
  EXPECT_EQ(starved, 2U);
  station.want(5, 0);
  EXPECT_EQ(station.wire.sent_count(MessageKind::announce), 4U) << "the last block is for what is wanted";
  cancel_all(station, sends);
}

}  // namespace
}  // namespace neuron::testing
